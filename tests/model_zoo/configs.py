"""Tiny configurations of transformers' model types: every size that a config declares, made small by the name of its field."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields

from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from .overrides import CONFIGS

VOCABULARY = 160
FIRST_SPECIAL_TOKEN = 112
"""Tokens below are text; placeholders for images and the like are numbered from here."""

_LAYERS = re.compile(
    r"(^|_)(layers?|blocks?|n_layer|depth)$|^num_(hidden|encoder|decoder|conv)_layers$|_num_(hidden_)?layers$|^num_hidden_layers$"
)
_NOT_LAYERS = re.compile(
    r"feature_layer|dense_layers|adapter_layers|spatial_layers|mask_layer|every|conditional_layer|vision_layer|num_encoder_blocks|num_blocks_per|block_repeats"
)
_KEY_VALUE_HEADS = re.compile(r"key_value_heads$|(^|_)num_(kv|key)_heads$|_key_heads$|key_value_attention_heads$")
_HEADS = re.compile(r"(^|_)heads?$")
_HEAD_WIDTH = re.compile(r"(head_dim|head_size|d_kv|kv_channels|dim_head|d_head|_d_kv)$")
_INNER = re.compile(
    r"(intermediate_size|intermediate_dim|ffn_dim|mlp_dim|d_ff|ffn_hidden_size|n_inner|feedforward|linear_units|ff_dim|dff)$"
)
_WIDTH = re.compile(
    r"(hidden_sizes?|hidden_dim|d_model|embed_dims?|embedding_dim|embedding_size|n_embd|emb_dim|_dims?|^dim|channels|width|projection_size"
    r"|_lora_rank|_features_size|feature_size|_units|hidden_size_\w+|input_size|output_size|embeds_dim|(hidden|filter)_channels)$"
)
_NOT_WIDTH = re.compile(
    r"^(num_channels|in_channels|in_chans|input_channels|audio_channels|mel_dim|in_channel|rotary_dim|head_dim|qk_rope_head_dim"
    r"|num_input_channels|out_channels_in)$"
)
_EXPERTS = re.compile(r"(num_experts|n_routed_experts|num_local_experts|moe_num_experts|zero_expert_num)$")
_EXPERTS_USED = re.compile(r"(experts_per_tok|experts_per_token|moe_topk|moe_top_k|moe_k|num_selected_experts)$")
_VOCABULARY = re.compile(r"(^|_)vocab_size(s)?$")
_POSITIONS = re.compile(
    r"^(max_position_embeddings|n_positions|max_sequence_length|n_ctx|max_seq_len|seq_len|max_target_positions)$"
)
_TOKEN = re.compile(r"(_token_(id|index)|_(index|id|token))$")
_NOT_TOKEN = re.compile(r"ignore|speaker_id|lang_id|merge_index|eval_idx|decode_index|layer_id|altup|default_prompt|_layer_")

_EXACT = {
    "image_size": 32,
    "patch_size": 8,
    "max_source_positions": 16,
    "codebook_size": 32,
    "sliding_window": 8,
    "attention_window": 8,
    "num_queries": 8,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_denoising": 4,
    "index_topk": 8,
    "moe_num_shared_experts": 1,
    "train_num_points": 16,
    "mamba_n_heads": 8,
    "mamba_num_heads": 8,
    "mamba_d_head": 8,
    "mamba_d_state": 8,
    "state_size": 8,
    "chunk_size": 8,
    "mamba_chunk_size": 8,
    "window_size": 4,
    "num_key_value_groups": 1,
    "num_position_embeddings": 64,
    "expert_capacity": 16,
    "original_max_position_embeddings": 64,
    "image_seq_length": 16,
    "num_frames": 2,
    "num_query_tokens": 4,
    "num_image_tokens": 16,
    "mm_tokens_per_image": 4,
    "embedding_rank": 8,
    "upsample_groups": 32,
}
"""By name, where the value is larger."""


def tiny_config(model_type: str) -> PreTrainedConfig:
    """A config of `model_type` with two layers or one of each kind, 32 wide, and a vocabulary of a few tokens."""
    config = _tiny(CONFIG_MAPPING[model_type], {}, {})
    _complete(config)
    return config


def _complete(config: PreTrainedConfig) -> None:
    """What training needs and a default config leaves open, in `config` and the configs inside it."""
    for name in config.sub_configs_defaults or {}:
        part = getattr(config, name, None)
        if isinstance(part, PreTrainedConfig):
            _complete(part)
    if getattr(config, "is_encoder_decoder", False):
        for name, value in (("decoder_start_token_id", 1), ("pad_token_id", 0)):
            if getattr(config, name, None) is None:
                setattr(config, name, value)
    rope = config.__dict__.get("rope_parameters")
    heads, width = config.__dict__.get("num_attention_heads"), config.__dict__.get("hidden_size")
    if isinstance(rope, dict) and "rope_type" in rope and isinstance(heads, int) and isinstance(width, int):
        width = config.__dict__.get("head_dim") or width // heads
        half = int(width * rope.get("partial_rotary_factor", 1)) // 2
        # Frequencies of time, height and width, in models that have them; the others do not look.
        rope["mrope_section"] = [half - 2 * (half // 3), half // 3, half // 3]


def _tiny(config_class: type, given: dict, numbers: dict[str, int], own: dict | None = None) -> PreTrainedConfig:
    """`given` are the defaults that an outer config has for this one, `numbers` the special tokens named so far, `own` the outer
    type's overrides for this sub-config."""
    overrides = {**CONFIGS.get(config_class.model_type, {}), **(own or {})}
    if overrides.pop("as_declared", False):
        return config_class(**{**given, **overrides})
    wide = overrides.pop("wide", False)
    arguments = _layers_of_each_kind(config_class, given, overrides)
    subconfigs = config_class.sub_configs_defaults or {}
    all_heads = given.get("num_attention_heads", getattr(config_class, "num_attention_heads", None))
    for field in fields(config_class):
        value = given.get(field.name, _default(field))
        if field.name in overrides or field.name in arguments:
            continue
        if field.name not in subconfigs:
            small = _small(field.name, value, numbers, wide, all_heads == value)
            if small is not value or field.name in given:
                arguments[field.name] = small
    for name, value in given.items():
        arguments.setdefault(name, _small(name, value, numbers, wide, all_heads == value))
    for name, spec in subconfigs.items():
        inner = overrides.pop(name, {})
        if inner is None or not isinstance(inner, dict):
            arguments[name] = inner
            continue
        declared = given.get(name)
        if spec.optional and declared is None and not inner and _is_none(config_class, name):
            continue
        arguments[name] = _tiny_of(spec, declared, inner, numbers)
    arguments.update(overrides)
    return config_class(**arguments)


def _tiny_of(spec, declared, inner: dict, numbers: dict[str, int]) -> PreTrainedConfig:
    declared = declared if isinstance(declared, dict) else {}
    model_type = inner.get("model_type") or declared.get("model_type") or spec.model_type
    by_name = not issubclass(spec.config_class, PreTrainedConfig) and model_type in CONFIG_MAPPING
    config_class = CONFIG_MAPPING[model_type] if by_name else spec.config_class
    if not issubclass(config_class, PreTrainedConfig):
        raise ValueError(f"{model_type} is no model type")
    same_type = model_type == spec.model_type
    given = {**(spec.init_kwargs if same_type else {}), **declared}
    given.pop("model_type", None)
    return _tiny(config_class, given, numbers, {k: v for k, v in inner.items() if k != "model_type"})


def _is_none(config_class: type, name: str) -> bool:
    return all(_default(field) is None for field in fields(config_class) if field.name == name)


def _default(field):
    if field.default is not MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not MISSING else None


def _layers_of_each_kind(config_class: type, given: dict, overrides: dict) -> dict:
    """One layer of each kind where a config says what kind each layer is, two at least."""
    if "num_hidden_layers" in overrides or "layer_types" in overrides:
        return {}
    named = {field.name for field in fields(config_class)}
    if not {"layer_types", "num_hidden_layers"} <= named:
        return {}
    try:
        types = config_class(**given).layer_types
    except Exception:  # not every config can be made without arguments
        return {}
    if not types:
        return {}
    kinds = list(dict.fromkeys(types))
    kinds = kinds if len(kinds) > 1 else kinds * 2
    return {"layer_types": kinds, "num_hidden_layers": len(kinds)}


def _small(name: str, value, numbers: dict[str, int], wide: bool, as_many_as_heads: bool):
    """The value for a tiny model, or `value` itself. `wide`: widths and heads stay."""
    if isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
        return value if wide and _WIDTH.search(name) else _small_list(name, value)
    if type(value) is not int:
        return value
    if _TOKEN.search(name) and not _NOT_TOKEN.search(name):
        return value if value < FIRST_SPECIAL_TOKEN - 8 else _special_token(name, numbers)
    limit = 4 if as_many_as_heads and _KEY_VALUE_HEADS.search(name) else _limit(name, value, wide)
    return value if limit is None or value <= limit else limit


def _special_token(name: str, numbers: dict[str, int]) -> int:
    plain = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1, "mask": 3, "sep": 2, "cls": 1, "unk": 3}
    stem = re.sub(r"(_token)?(_id|_index)?$", "", name)
    if stem in plain:
        return plain[stem]
    return numbers.setdefault(stem, FIRST_SPECIAL_TOKEN + len(numbers))


def _limit(name: str, value: int, wide: bool) -> int | None:
    if name in _EXACT:
        return _EXACT[name]
    if _VOCABULARY.search(name):
        return VOCABULARY
    if _POSITIONS.search(name):
        return 128
    if _EXPERTS_USED.search(name):
        return 2
    if _EXPERTS.search(name):
        return 4
    if _LAYERS.search(name) and not _NOT_LAYERS.search(name):
        return 2
    if wide:
        return None
    if _KEY_VALUE_HEADS.search(name):
        return 2
    if _HEADS.search(name):
        return 4
    if _HEAD_WIDTH.search(name):
        return 8
    if _INNER.search(name):
        return 64
    if _WIDTH.search(name) and not _NOT_WIDTH.search(name):
        return 32
    return None


def _small_list(name: str, value):
    if re.search(r"depths$|num_blocks$|layers$", name):
        return type(value)(min(item, 2) for item in value)
    if _WIDTH.search(name) and not _NOT_WIDTH.search(name) and min(value) >= 16:
        return type(value)(max(8, item * 16 // min(value) // 8 * 8) for item in value)
    if name == "image_size":
        return type(value)(32 for _ in value)
    return value
