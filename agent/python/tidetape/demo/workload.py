"""What the demo trains: a Qwen3-shaped model on the bytes of Python's own standard library."""

from __future__ import annotations

import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3Config

# Bytes are the tokens.
_VOCABULARY = 256
_TEXT_BYTES = 2 << 20


@dataclass(frozen=True)
class Workload:
    """Sizes and seed. Two workloads with equal fields give equal losses, to the bit, however their memory is managed."""

    hidden: int = 64
    layers: int = 8
    batch: int = 4
    sequence: int = 256
    steps: int = 12
    seed: int = 0

    def build(self, device: torch.device) -> nn.Module:
        """The model in training mode, in bf16; sharded by FSDP2 (a unit a layer, and the root) where there are several ranks."""
        torch.manual_seed(self.seed)
        heads = max(1, self.hidden // 64)
        config = Qwen3Config(
            vocab_size=_VOCABULARY,
            hidden_size=self.hidden,
            intermediate_size=3 * self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=heads,
            num_key_value_heads=max(1, heads // 2),
            head_dim=64,
            use_cache=False,
            tie_word_embeddings=False,
        )
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).to(device).train()
        if dist.is_initialized() and dist.get_world_size() > 1:
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for layer in model.model.layers:
                fully_shard(layer, mp_policy=policy)
            fully_shard(model, mp_policy=policy)
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)

    def batches(self, device: torch.device) -> list[torch.Tensor]:
        """One batch of tokens a step, [batch, sequence], other ones on each rank."""
        text = torch.frombuffer(bytearray(standard_library_text()), dtype=torch.uint8)
        rank = dist.get_rank() if dist.is_initialized() else 0
        generator = torch.Generator().manual_seed(1000 * self.seed + rank)
        last = text.numel() - self.sequence
        batches = []
        for _ in range(self.steps):
            starts = torch.randint(last, (self.batch,), generator=generator).tolist()
            batches.append(torch.stack([text[start : start + self.sequence] for start in starts]).long().to(device))
        return batches


def standard_library_text(limit: int = _TEXT_BYTES) -> bytes:
    """The sources of the standard library's modules one after the other, in order of name, at most `limit` bytes."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= limit:
            break
    return bytes(text[:limit])
