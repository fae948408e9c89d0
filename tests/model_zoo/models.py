"""Builds tiny models of every type."""

from __future__ import annotations

import contextlib
import random

import numpy
import torch
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .classes import model_class
from .configs import tiny_config

MOST_PARAMETERS = 40_000_000


def model_types() -> list[str]:
    """All model types of transformers, by name."""
    return sorted(CONFIG_MAPPING)


def seed_all(seed: int) -> None:
    """Masks of speech models are drawn by numpy, dropped layers by Python."""
    torch.manual_seed(seed)
    numpy.random.seed(seed)
    random.seed(seed)


class TooLarge(Exception):
    """A model that the rules for tiny configurations leave large."""


def require_tiny(model_type: str) -> None:
    """Raises TooLarge, without allocating the model."""
    with contextlib.suppress(NotImplementedError, RuntimeError), torch.device("meta"):
        count = sum(parameter.numel() for parameter in model_class(model_type)(tiny_config(model_type)).parameters())
        if count > MOST_PARAMETERS:
            raise TooLarge(f"still has {count / 1e6:.0f} million parameters where everything is made small that has a rule")


def build(model_type: str, dtype: torch.dtype) -> nn.Module:
    """A model in training mode, with the same weights every time."""
    seed_all(0)
    chosen = model_class(model_type)
    config = tiny_config(model_type)
    model = chosen._from_config(config, dtype=dtype) if dtype != torch.float32 else chosen(config)
    return model.to(dtype).train()
