"""The models that the benchmarks train: Hugging Face configs with random weights, nothing downloaded."""

import dataclasses
import json

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM


@dataclasses.dataclass(frozen=True)
class Shape:
    """A causal language model and the batch it is trained on."""

    name: str
    model_type: str
    config: dict
    batch: int
    tokens: int
    dtype: torch.dtype
    rounds: int = 60
    # A short step is timed as the mean of several, after one that fills the caches.
    steps: int = 1
    warm_steps: int = 0
    # How Hugging Face runs the experts, where there are any; None: as it does by default, all in one grouped matmul.
    experts: str | None = None

    @property
    def has_experts(self):
        return any(key in self.config for key in ("num_experts", "num_local_experts"))


OP_BOUND = Shape(
    name="op_bound",
    model_type="qwen3",
    config={
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 512,
    },
    batch=1,
    tokens=64,
    dtype=torch.float32,
    rounds=120,
    steps=4,
    warm_steps=1,
)

COMPUTE_BOUND = Shape(
    name="compute_bound",
    model_type="qwen3",
    config={
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "vocab_size": 2048,
    },
    batch=4,
    tokens=256,
    dtype=torch.bfloat16,
)

COMPUTE_FP32 = dataclasses.replace(COMPUTE_BOUND, name="compute_fp32", dtype=torch.float32)

MOE = Shape(
    name="moe",
    model_type="qwen3_moe",
    config={
        "hidden_size": 256,
        "moe_intermediate_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "norm_topk_prob": True,
        "vocab_size": 1024,
    },
    batch=2,
    tokens=128,
    dtype=torch.float32,
    steps=2,
    warm_steps=1,
)

# Three gated delta nets and one attention.
HYBRID = Shape(
    name="hybrid",
    model_type="qwen3_5_text",
    config={
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 64,
        "linear_value_head_dim": 64,
        "vocab_size": 1024,
    },
    batch=2,
    tokens=128,
    dtype=torch.float32,
    steps=2,
    warm_steps=1,
)

# Experts run one by one, about a quarter of them without tokens.
MOE_EAGER = dataclasses.replace(
    MOE, name="moe_eager", config=MOE.config | {"num_experts": 32}, steps=1, warm_steps=0, experts="eager"
)

SHAPES = {shape.name: shape for shape in (OP_BOUND, COMPUTE_BOUND, COMPUTE_FP32, MOE, HYBRID, MOE_EAGER)}


def custom_shape(config_file, model_type, overrides, batch, tokens, dtype, rounds):
    """A shape from a config.json, or from a model type, with `key=value` overrides (values in JSON)."""
    config = {}
    if config_file:
        with open(config_file, encoding="utf-8") as file:
            config = json.load(file)
        model_type = config.pop("model_type", model_type)
    if not model_type:
        raise ValueError("a config without model_type needs --model-type")
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator:
            raise ValueError(f"--set takes KEY=VALUE, not {override!r}")
        config[key] = json.loads(value)
    return Shape("custom", model_type, config, batch, tokens, getattr(torch, dtype), rounds)


def with_usable_dtype(shape, forced):
    """The shape itself, or in float32 where this CPU has no bfloat16 matmuls and `forced` is false; says so.

    torch then emulates them tens of times slower than float32, so that a step takes minutes and is nearly all matmul.
    """
    if shape.dtype != torch.bfloat16 or forced or torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return shape
    print(f"{shape.name}: this CPU has no bfloat16 matmuls, timing it in float32 (--keep-dtype times the emulated ones)")
    return dataclasses.replace(shape, dtype=torch.float32)


def build_model(shape):
    """The model in training mode, its gradients allocated and zero."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(shape.model_type, **shape.config)
    config.use_cache = False
    model = AutoModelForCausalLM.from_config(config, dtype=shape.dtype, attn_implementation="sdpa").train()
    if shape.experts:
        model.set_experts_implementation(shape.experts)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model


def build_batch(shape, model):
    """Keyword arguments of one forward: random tokens, the labels among them, so that the model computes its loss."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(model.config.get_text_config().vocab_size, (shape.batch, shape.tokens), generator=generator)
    return {"input_ids": tokens, "labels": tokens}


def blocks_of(model):
    """The repeated layers: the children of the longest ModuleList."""
    return list(max((module for module in model.modules() if isinstance(module, nn.ModuleList)), key=len))
