"""Tiny models with random weights, nothing downloaded, and the inputs of a training step."""

import dataclasses
from collections.abc import Callable

import torch
import transformers
from torch import nn


@dataclasses.dataclass(frozen=True)
class Model:
    """How to build a model (in training mode, the same weights every time) and the inputs of its steps."""

    name: str
    build: Callable[[torch.dtype], nn.Module]
    inputs: Callable[[nn.Module, torch.dtype, int], dict]


def _text_inputs(model, dtype, step):
    generator = torch.Generator().manual_seed(100 + step)
    tokens = torch.randint(model.config.get_text_config().vocab_size, (2, 16), generator=generator)
    return {"input_ids": tokens, "labels": tokens}


def _image_inputs(model, dtype, step):
    generator = torch.Generator().manual_seed(100 + step)
    # So many that activations outweigh what some CPUs' convolutions need beside them.
    count = 40
    images = torch.randn(count, 3, 32, 32, generator=generator).to(dtype)
    return {"pixel_values": images, "labels": torch.randint(model.config.num_labels, (count,), generator=generator)}


def _hugging_face(auto_class, config_class, **config):
    def build(dtype):
        torch.manual_seed(0)
        return auto_class.from_config(config_class(**config), dtype=dtype).train()

    return build


_DECODER = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "use_cache": False,
}
_EXPERTS = {**_DECODER, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


def _mixture_one_expert_at_a_time(dtype):
    model = _hugging_face(transformers.AutoModelForCausalLM, transformers.Qwen3MoeConfig, **_EXPERTS)(dtype)
    model.set_experts_implementation("eager")
    return model


MODELS = [
    Model(
        "qwen3",
        _hugging_face(transformers.AutoModelForCausalLM, transformers.Qwen3Config, **_DECODER, head_dim=8),
        _text_inputs,
    ),
    Model("qwen3_moe", _hugging_face(transformers.AutoModelForCausalLM, transformers.Qwen3MoeConfig, **_EXPERTS), _text_inputs),
    Model("qwen3_moe_eager_experts", _mixture_one_expert_at_a_time, _text_inputs),
    Model("llama", _hugging_face(transformers.AutoModelForCausalLM, transformers.LlamaConfig, **_DECODER), _text_inputs),
    Model(
        "gpt2_with_dropout",
        _hugging_face(
            transformers.AutoModelForCausalLM,
            transformers.GPT2Config,
            vocab_size=128,
            n_embd=32,
            n_layer=3,
            n_head=4,
            n_positions=32,
            resid_pdrop=0.1,
            embd_pdrop=0.1,
            attn_pdrop=0.1,
            use_cache=False,
        ),
        _text_inputs,
    ),
    Model(
        "vit",
        _hugging_face(
            transformers.AutoModelForImageClassification,
            transformers.ViTConfig,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
            num_labels=5,
            hidden_dropout_prob=0.1,
        ),
        _image_inputs,
    ),
    Model(
        "t5",
        _hugging_face(
            transformers.AutoModelForSeq2SeqLM,
            transformers.T5Config,
            vocab_size=128,
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.1,
            decoder_start_token_id=0,
            pad_token_id=0,
            use_cache=False,
        ),
        _text_inputs,
    ),
]


class Residual(nn.Module):
    """A block with batch normalisation, an in-place activation and dropout."""

    def __init__(self, width):
        super().__init__()
        self.spread = nn.Linear(width, 2 * width)
        self.normalise = nn.BatchNorm1d(2 * width)
        self.activate = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.2)
        self.gather = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.gather(self.drop(self.activate(self.normalise(self.spread(x)))))


class Stack(nn.Module):
    """Repeated blocks and a loss."""

    def __init__(self, make_block, count=3):
        super().__init__()
        self.blocks = nn.ModuleList(make_block() for _ in range(count))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def residual_stack(width=16, count=3):
    """A stack of Residual blocks, the same weights every time."""
    torch.manual_seed(0)
    return Stack(lambda: Residual(width), count).train()


def residual_input(width=16, rows=8):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(1))
