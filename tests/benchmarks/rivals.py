"""What an engineer has today: torch.utils.checkpoint and its selective policies, with their published defaults."""

import functools

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

aten = torch.ops.aten

_MATMULS = frozenset({aten.mm.default, aten.addmm.default, aten.bmm.default, aten.linear.default})
_ATTENTION = frozenset(
    {
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_cudnn_attention.default,
    }
)
# torchtitan 0.3.0's list, as far as one device has its ops, and the CPU's fused attention, which the stock list lacks and would
# therefore compute again.
_TITAN_SAVED = _MATMULS | _ATTENTION | {aten.max.default, aten.topk.default}


def checkpoint_blocks(blocks):
    """Full activation checkpointing of every block."""
    _wrap(blocks, functools.partial(checkpoint, use_reentrant=False))


def checkpoint_blocks_saving(blocks, make_policy):
    """Selective checkpointing: `make_policy()` gives the policy of one call of a block."""

    def contexts():
        return create_selective_checkpoint_contexts(make_policy())

    _wrap(blocks, functools.partial(checkpoint, use_reentrant=False, context_fn=contexts))


def titan_policy():
    """torchtitan's per-op policy: its list is saved, of the matmuls every second one is computed again."""
    matmuls = {False: 0, True: 0}

    def policy(context, op, *args, **kwargs):
        if op in _MATMULS:
            matmuls[context.is_recompute] += 1
            if matmuls[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if op in _TITAN_SAVED else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def all_matmuls_policy():
    """Every matmul and the attention are saved, the rest is computed again."""

    def policy(context, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op in _MATMULS or op in _ATTENTION else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def _wrap(blocks, run):
    for block in blocks:
        block.forward = functools.partial(run, block.forward)
