"""A model that nobody chose: architecture, sizes and batch drawn by a seed, so that no figure holds for the fixed shapes alone."""

import random

import torch

from tests.benchmarks.shapes import Shape

# Architectures of Hugging Face without dropout, which torch_remat would draw anew.
_ARCHITECTURES = (
    "cohere",
    "glm4",
    "granite",
    "llama",
    "mistral",
    "mixtral",
    "olmo2",
    "phi3",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "stablelm",
)
_WITH_EXPERTS = ("mixtral", "qwen3_moe")
_ROUNDS = 20


def random_shape(seed):
    """The shape of this seed, always the same; a step takes well below a second."""
    draw = random.Random(seed)
    heads, head_dim = draw.choice((2, 4, 8)), draw.choice((16, 32, 64))
    hidden = heads * head_dim
    config = {
        "hidden_size": hidden,
        "intermediate_size": draw.choice((2, 3, 4)) * hidden,
        "num_hidden_layers": draw.randint(2, 8),
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([count for count in (1, 2, 4, 8) if heads % count == 0]),
        "vocab_size": draw.choice((256, 512, 1000)),
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    architecture = draw.choice(_ARCHITECTURES)
    if architecture in _WITH_EXPERTS:
        config |= {"num_local_experts": draw.choice((4, 8)), "num_experts_per_tok": draw.randint(1, 3)}
    if architecture == "qwen3_moe":
        config |= {"moe_intermediate_size": hidden, "norm_topk_prob": draw.random() < 0.5}
    return Shape(
        name="random",
        model_type=architecture,
        config=config,
        batch=draw.randint(1, 4),
        tokens=draw.choice((32, 64, 96, 128, 200)),
        dtype=draw.choice((torch.float32, torch.bfloat16)),
        rounds=_ROUNDS,
    )
