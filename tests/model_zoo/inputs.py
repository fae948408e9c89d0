"""Inputs of a training step, made from the signature of a model's forward and its config."""

from __future__ import annotations

import inspect
import math

import torch

from .configs import FIRST_SPECIAL_TOKEN
from .overrides import CHANNELS_LAST, IMAGE_SIZES, INPUTS, NO_LABELS, ONE_CHANNEL, PATCH_IMAGES, SEVERAL_IMAGES, TEXT_ONLY, VIDEOS

BATCH = 2
LENGTH = 12
SAMPLES = 8000
"""Of raw audio: half a second."""
FRAMES = 2
GRID = (1, 4, 4)
"""Patches of an image, for models that take a flat list of patches: frames, rows, columns."""


class NoRule(Exception):
    """The name of an argument that a forward needs and that no rule makes."""


class Maker:
    """Makes the arguments of one forward. Numbers come from a generator of its own, in fp32, so that every dtype sees the same."""

    def __init__(self, model, dtype: torch.dtype, step: int):
        self.model, self.config, self.dtype = model, model.config, dtype
        self.type = model.config.model_type
        self.generator = torch.Generator().manual_seed(100 + step)
        self.signature = inspect.signature(type(model).forward).parameters
        self.vision = _sub(
            self.config, "vision_config", "image_config", "visual_config", "vit_config", "backbone_config", "vision_tower"
        )
        self.audio = _sub(self.config, "audio_config", "speech_config", "audio_encoder_config", "encoder_config")
        self.text = _text(self.config)
        self.arguments: dict = {}

    # --- numbers -------------------------------------------------------------------------------------------------------------

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator).to(self.dtype)

    def uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self.generator).to(self.dtype)

    def integers(self, high: int, *shape: int, low: int = 0) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=self.generator)

    def tokens(self, length: int = LENGTH, rows: int = BATCH) -> torch.Tensor:
        """Ids of plain text."""
        vocabulary = next(
            (v for v in (getattr(self.text, n, None) for n in ("vocab_size", "src_vocab_size")) if isinstance(v, int)), 64
        )
        return self.integers(min(vocabulary, FIRST_SPECIAL_TOKEN - 8), rows, length, low=4)

    def ones(self, *shape: int) -> torch.Tensor:
        return torch.ones(*shape, dtype=torch.long)

    # --- the config ----------------------------------------------------------------------------------------------------------

    def of(self, *names: str, default=None):
        """The first of these attributes that the vision, audio, outer or text config has set."""
        for config in (self.vision, self.audio, self.config, self.text):
            for name in names:
                value = getattr(config, name, None)
                if value is not None:
                    return value
        return default

    def one(self, *names: str, default: int) -> int:
        value = self.of(*names, default=default)
        if isinstance(value, dict):
            value = value.get("height", default)
        return value[0] if isinstance(value, list | tuple) else value

    def image(self, *leading: int) -> torch.Tensor:
        size = self.of("image_size", "img_size", "resolution", default=32)
        size = IMAGE_SIZES.get(self.type, size)
        size = (size.get("height", 32), size.get("width", 32)) if isinstance(size, dict) else size
        height, width = (size, size) if isinstance(size, int) else size[-2:]
        return self.normal(*(leading or (BATCH,)), self.one("num_channels", "in_channels", "in_chans", default=3), height, width)

    def mels(self) -> int:
        return self.of("num_mel_bins", "feature_size", "input_feat_size", "n_mels", "input_dim", default=80)

    # --- arguments -----------------------------------------------------------------------------------------------------------

    def make(self) -> dict:
        own = INPUTS.get(self.type)
        if callable(own):
            return own(self)
        for name, parameter in self.signature.items():
            required = parameter.default is inspect.Parameter.empty and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            if name != "self" and (required or name in _ALWAYS) and not (self.type in TEXT_ONLY and name in _NOT_TEXT):
                maker = _MAKERS.get(name)
                if maker is None:
                    raise NoRule(name)
                value = maker(self)
                if value is not None:
                    self.arguments[name] = value
        self.place("image", "pixel_values", "image_grid_thw", "image_sizes", "pixel_attention_mask", "spatial_shapes")
        self.place("audio", "input_features", "input_features_mask", "feature_attention_mask", "input_values", "padding_mask")
        labels = self.labels()
        if labels is not None:
            self.arguments["labels"] = labels
        return self.arguments

    def place(self, kind: str, *names: str) -> None:
        """Puts as many placeholders in front of the text as the model makes features of the other modality."""
        ids = self.arguments.get("input_ids")
        read = next((getattr(m, f"get_{kind}_features") for m in self.model.modules() if hasattr(m, f"get_{kind}_features")), None)
        token = self.placeholder(kind)
        if ids is None or read is None or token is None or not any(name in self.arguments for name in names):
            return
        known = inspect.signature(read).parameters
        known = names if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values()) and "kwargs" not in known else known
        self.model.eval()
        try:
            with torch.no_grad():
                rows = _rows(read(**{name: self.arguments[name] for name in names if name in known and name in self.arguments}))
        finally:
            self.model.train()
        each = rows // BATCH
        placed = torch.cat([torch.full((BATCH, each), token), ids], 1)
        self.arguments["input_ids"] = placed
        for name in ("mm_token_type_ids", "token_type_ids"):
            if name in self.signature:
                self.arguments[name] = (placed == token).long()

    def placeholder(self, kind: str) -> int | None:
        for config in (self.config, self.text, _sub(self.config, "vlm_config")):
            for name in (f"{kind}_token_id", f"{kind}_token_index", f"{kind}_token"):
                value = getattr(config, name, None)
                if isinstance(value, int):
                    return value
        return None

    def labels(self):
        if "labels" not in self.signature or self.type in NO_LABELS:
            return None
        name = type(self.model).__name__
        if name.endswith(("ForImageClassification", "ForVideoClassification", "SequenceClassification")):
            return self.integers(self.config.num_labels, BATCH)
        if name.endswith("ForCTC"):
            return self.integers(min(self.config.vocab_size, 32), BATCH, 3, low=4)
        if name.endswith("ForSpeechSeq2Seq"):
            return self.tokens(6)
        ids = self.arguments.get("input_ids")
        if not name.endswith(_LANGUAGE) and "LM" not in name:
            return None
        if "decoder_input_ids" in self.signature:
            return self.tokens()
        return None if ids is None else ids.masked_fill(ids >= FIRST_SPECIAL_TOKEN, -100)


_LANGUAGE = ("LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForConditionalGeneration", "MTModel", "EncoderDecoderModel")


def _rows(features) -> int:
    """How many tokens stand for `features`: what get_*_features returned, in whatever shape."""
    for name in ("pooler_output", "last_hidden_state"):
        found = getattr(features, name, None)
        if found is not None:
            features = found
            break
    if isinstance(features, torch.Tensor):
        return math.prod(features.shape[:-1])
    return sum(_rows(item) for item in features if item is not None)


def _sub(config, *names: str):
    for name in names:
        found = getattr(config, name, None)
        if found is not None and not isinstance(found, dict):
            return found
    return config


def _text(config):
    try:
        return config.get_text_config()
    except Exception:  # a config with several text parts refuses to choose
        return _sub(config, "text_config", "decoder", "encoder")


def _patch_width(maker: Maker) -> int:
    patch = maker.one("patch_size", "spatial_patch_size", default=8)
    frames = maker.of("temporal_patch_size", "patch_temporal", default=1)
    return maker.one("num_channels", "in_channels", "in_chans", default=3) * patch * patch * frames


def _pixels(maker: Maker):
    if maker.type in PATCH_IMAGES:
        leading = PATCH_IMAGES[maker.type]
        patch = maker.one("patch_size", default=8)
        return maker.normal(*leading, BATCH * math.prod(GRID), maker.one("num_channels", "in_channels", default=3), patch, patch)
    if "image_grid_thw" in maker.signature or "grid_thw" in maker.signature:
        return maker.normal(BATCH * math.prod(GRID), _patch_width(maker))
    if "spatial_shapes" in maker.signature:
        return maker.normal(BATCH, GRID[1] * GRID[2], _patch_width(maker))
    if maker.type in VIDEOS:
        return maker.image(BATCH, maker.one("num_frames", "frames_per_clip", default=FRAMES))
    images = SEVERAL_IMAGES.get(maker.type)
    return maker.image(BATCH, images) if images else maker.image()


def _grid(maker: Maker):
    return torch.tensor([GRID] * BATCH)


def _hidden(maker: Maker):
    if "grid_thw" in maker.signature:
        return maker.normal(BATCH * math.prod(GRID), _patch_width(maker))
    return maker.normal(BATCH, LENGTH, maker.of("hidden_size", "d_model", "embed_dim"))


def _features(maker: Maker):
    length = maker.one("max_source_positions", default=16) * 2
    return maker.normal(BATCH, length, maker.mels()) if maker.type in CHANNELS_LAST else maker.normal(BATCH, maker.mels(), length)


def _features_mask(maker: Maker):
    if "input_features" not in maker.signature:
        return None
    return maker.ones(BATCH, _features(maker).shape[1 if maker.type in CHANNELS_LAST else 2])


def _flattened(maker: Maker):
    """Patches with their row and column in front, as Pix2Struct reads them."""
    places = torch.cartesian_prod(torch.arange(1, 5), torch.arange(1, 5)).to(maker.dtype)
    patches = maker.normal(BATCH, 16, _patch_width(maker))
    return torch.cat([places.expand(BATCH, 16, 2), patches], -1)


_ALWAYS = {
    "input_ids",
    "pixel_values",
    "input_features",
    "input_features_mask",
    "feature_attention_mask",
    "input_values",
    "bbox",
    "decoder_input_ids",
    "return_loss",
    "image_grid_thw",
    "spatial_shapes",
    "pixel_attention_mask",
    "flattened_patches",
    "target_sizes",
    "image_merge_sizes",
    "visual_feats",
    "visual_pos",
    "qformer_input_ids",
}

_NOT_TEXT = _ALWAYS - {"input_ids", "decoder_input_ids"}

_MAKERS = {
    "input_ids": lambda m: m.tokens(),
    "decoder_input_ids": lambda m: None if m.labels() is not None else m.tokens(),
    "pixel_values": _pixels,
    "image_grid_thw": _grid,
    "grid_thw": _grid,
    "image_sizes": lambda m: torch.tensor([[m.one("image_size", default=32)] * 2] * BATCH),
    "image_merge_sizes": lambda m: m.ones(BATCH),
    "merge_sizes": lambda m: m.ones(BATCH),
    "target_sizes": lambda m: torch.tensor([GRID[1:]] * BATCH) if "pixel_values" in m.signature else None,
    "flattened_patches": _flattened,
    "visual_feats": lambda m: m.normal(BATCH, 5, m.config.visual_feat_dim),
    "visual_pos": lambda m: m.uniform(BATCH, 5, 4),
    "qformer_input_ids": lambda m: m.tokens(),
    "query_embeds": lambda m: m.normal(BATCH, 4, m.config.hidden_size),
    "image": lambda m: m.image(),
    "latents": lambda m: m.normal(BATCH, m.config.hidden_size, 8),
    "spatial_shapes": lambda m: torch.tensor([GRID[1:]] * BATCH) if "pixel_values" in m.signature else None,
    "pixel_attention_mask": lambda m: m.ones(BATCH, GRID[1] * GRID[2]) if "spatial_shapes" in m.signature else None,
    "pixel_values_videos": lambda m: m.image(BATCH, m.one("num_frames", "frames_per_clip", default=FRAMES)),
    "input_values": lambda m: m.normal(BATCH, 1, SAMPLES) if m.type in ONE_CHANNEL else m.normal(BATCH, SAMPLES),
    "input_features": _features,
    "input_features_mask": _features_mask,
    "feature_attention_mask": _features_mask,
    "hidden_states": _hidden,
    "inputs_embeds": _hidden,
    "attention_mask": lambda m: m.ones(BATCH, LENGTH),
    "bbox": lambda m: torch.cat([m.integers(50, BATCH, LENGTH, 2), m.integers(50, BATCH, LENGTH, 2) + 50], -1),
    "return_loss": lambda m: True if "pixel_values" in m.signature else None,
    "past_values": lambda m: m.normal(BATCH, getattr(m.config, "context_length", 16), getattr(m.config, "num_input_channels", 1)),
    "speaker_embeddings": lambda m: m.normal(BATCH, m.config.speaker_embedding_dim),
    "spectrogram": lambda m: m.normal(BATCH, 16, m.config.model_in_dim),
}


def make_inputs(model, dtype: torch.dtype, step: int) -> dict:
    """Keyword arguments of step `step` for `model`."""
    with torch.random.fork_rng(devices=[]):
        return Maker(model, dtype, step).make()
