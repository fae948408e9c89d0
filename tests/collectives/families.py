"""Models as people train them, small: by family, how to make one, its blocks, and its loss on a rank's batch of a step."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from tests.collectives.shapes import Convolutions

TOKENS = 24
VOCABULARY = 131


@dataclass(frozen=True)
class Family:
    make: Callable[[], nn.Module]
    blocks: Callable[[nn.Module], list[nn.Module]]
    loss: Callable[[nn.Module, torch.Generator], torch.Tensor]


def _causal_lm(model_type, **config):
    def make():
        from transformers import AutoConfig, AutoModelForCausalLM

        common = {
            "vocab_size": VOCABULARY,
            "hidden_size": 48,
            "intermediate_size": 88,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 12,
            "use_cache": False,
        }
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **(common | config)), attn_implementation="sdpa")

    def loss(model, generator):
        tokens = torch.randint(VOCABULARY, (2, TOKENS), generator=generator)
        return model(input_ids=tokens, labels=tokens).loss

    return Family(make, lambda model: list(model.model.layers), loss)


class DiffusionBlock(nn.Module):
    """As in Wan2.2: self-attention, cross-attention to the text, and an MLP, modulated by the time step."""

    def __init__(self, width, heads, text):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.cross_norm = nn.LayerNorm(width)
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.cross = nn.MultiheadAttention(width, heads, kdim=text, vdim=text, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(approximate="tanh"), nn.Linear(3 * width, width))
        self.modulation = nn.Parameter(torch.randn(1, 6, width) / width**0.5)

    def forward(self, x, time, text):
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = (self.modulation + time).unbind(1)
        y = self.norms[0](x) * (1 + scale[:, None]) + shift[:, None]
        x = x + gate[:, None] * self.attend(y, y, y, need_weights=False)[0]
        x = x + self.cross(self.cross_norm(x), text, text, need_weights=False)[0]
        y = self.norms[1](x) * (1 + mlp_scale[:, None]) + mlp_shift[:, None]
        return x + mlp_gate[:, None] * self.mlp(y)


class DiffusionTransformer(nn.Module):
    """A video is cut into patches by a 3D convolution, and its flow is predicted patch by patch."""

    def __init__(self, width=48, heads=4, text=20, layers=3):
        super().__init__()
        self.patches = nn.Conv3d(4, width, (1, 2, 2), (1, 2, 2))
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, 6 * width))
        self.blocks = nn.ModuleList(DiffusionBlock(width, heads, text) for _ in range(layers))
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.head = nn.Linear(width, 16)

    def forward(self, video, time, text):
        x = self.patches(video).flatten(2).transpose(1, 2)
        modulation = self.time(time).unflatten(1, (6, -1))
        for block in self.blocks:
            x = block(x, modulation, text)
        return self.head(self.norm(x))


def _flow_loss(model, generator):
    video = torch.randn(2, 4, 2, 6, 6, generator=generator)
    time = torch.randn(2, 16, generator=generator)
    text = torch.randn(2, 5, 20, generator=generator)
    target = torch.randn(2, 18, 16, generator=generator)
    return functional.mse_loss(model(video, time, text).float(), target)


FAMILIES = {
    "qwen3": _causal_lm("qwen3"),
    "qwen3 moe": _causal_lm("qwen3_moe", num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True),
    "llama 3.1": _causal_lm(
        "llama",
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "wan 2.2": Family(DiffusionTransformer, lambda model: list(model.blocks), _flow_loss),
    "convolutions": Family(
        Convolutions, lambda model: list(model.blocks), lambda model, generator: model(torch.randn(6, 16, generator=generator))
    ),
    # Nothing divides evenly among 2, 3, 4 or 8 ranks.
    "uneven": _causal_lm("qwen3", hidden_size=44, intermediate_size=77, vocab_size=VOCABULARY, head_dim=10),
}
