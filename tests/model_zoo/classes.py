"""Which class of a model type is trained."""

from __future__ import annotations

import importlib
import inspect

from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .overrides import CLASSES

# Tasks in order of preference: those with a loss of their own come first.
_TASKS = (
    "IMAGE_TEXT_TO_TEXT",
    "MULTIMODAL_LM",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "SPEECH_SEQ_2_SEQ",
    "MASKED_LM",
    "CAUSAL_LM",
    "CTC",
    "VIDEO_CLASSIFICATION",
    "IMAGE_CLASSIFICATION",
    "AUDIO_CLASSIFICATION",
    "SEQUENCE_CLASSIFICATION",
    "OBJECT_DETECTION",
    "ZERO_SHOT_OBJECT_DETECTION",
    "UNIVERSAL_SEGMENTATION",
    "SEMANTIC_SEGMENTATION",
    "IMAGE_SEGMENTATION",
    "DEPTH_ESTIMATION",
    "TIME_SERIES_PREDICTION",
)


class NoModel(Exception):
    """A type that has no torch model of its own, with the reason."""


def model_class(model_type: str) -> type[PreTrainedModel]:
    """The class to train: the one that overrides name, the preferred task's, or the base model's."""
    config_class = CONFIG_MAPPING[model_type]
    if model_type in CLASSES:
        return getattr(_module(config_class), CLASSES[model_type])
    for task in _TASKS:
        found = _of_mapping(getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES"), model_type, config_class)
        if found is not None:
            return found
    found = _of_mapping(modeling_auto.MODEL_MAPPING_NAMES, model_type, config_class)
    if found is not None:
        return found
    declared = [
        item
        for item in vars(_module(config_class)).values()
        if inspect.isclass(item)
        and issubclass(item, PreTrainedModel)
        and item.__module__ == _module(config_class).__name__
        and item.__dict__.get("config_class", item.__annotations__.get("config")) in (config_class, config_class.__name__)
        and not item.__name__.endswith("PreTrainedModel")
    ]
    if not declared:
        raise NoModel("a part of other models, without a model class of its own")
    return declared[-1]


def _module(config_class: type):
    name = config_class.__module__.replace(".configuration_", ".modeling_")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and not error.name.startswith("transformers"):
            raise NoModel(f"needs the library {error.name}") from error
        raise NoModel("a configuration only: its model is another type's") from error


def _of_mapping(names: dict, model_type: str, config_class: type):
    name = names.get(model_type)
    if name is None:
        return None
    name = name[0] if isinstance(name, tuple | list) else name
    try:
        return getattr(_module(config_class), name, None) or getattr(importlib.import_module("transformers"), name)
    except NoModel:
        return getattr(importlib.import_module("transformers"), name)
