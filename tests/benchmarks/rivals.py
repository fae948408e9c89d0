"""What an engineer has today: torch.utils.checkpoint, its selective policies with their published defaults, and torch_remat."""

import functools

import torch
import torch_remat
from torch import nn
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
_ALL_MATMULS_AND_ATTENTION = _MATMULS | _ATTENTION | {aten._grouped_mm.default}
# torchtitan 0.3.0's list, as far as one device has its ops, and the CPU's fused attention, which the stock list lacks and would
# therefore compute again.
_TITAN_SAVED = _MATMULS | _ATTENTION | {aten.max.default, aten.topk.default}
# Hugging Face's routers divide the values of topk in place, and SAC raises where what it saved was written.
_TITAN_SAVED_WITH_EXPERTS = _TITAN_SAVED - {aten.topk.default}


def checkpoint_blocks(blocks):
    """Full activation checkpointing of every block."""
    _wrap(blocks, functools.partial(checkpoint, use_reentrant=False))


def checkpoint_blocks_saving(blocks, make_policy):
    """Selective checkpointing: `make_policy()` gives the policy of one call of a block."""

    def contexts():
        return create_selective_checkpoint_contexts(make_policy())

    _wrap(blocks, functools.partial(checkpoint, use_reentrant=False, context_fn=contexts))


def remat_blocks(blocks):
    """torch_remat with nothing saved."""
    _wrap(blocks, lambda forward, *args, **kwargs: torch_remat.checkpoint()(forward)(*args, **kwargs))


def remat_blocks_saving_matmuls(blocks):
    """torch_remat, by hand: every Linear and the attention lie in regions that are saved."""
    for block in blocks:
        for name, module in block.named_modules():
            if isinstance(module, nn.Linear):
                module.forward = _saved_region(module.forward, name)
    # Models call it by this name; outside of a checkpointed block the region does nothing.
    nn.functional.scaled_dot_product_attention = _saved_region(nn.functional.scaled_dot_product_attention, "attention")
    remat_blocks(blocks)


def _saved_region(function, name):
    region = torch_remat.region(function, name, recompute=False)

    def run(*args, **kwargs):
        output = region(*args, **kwargs)
        torch_remat.recompute_needs_tensor(output)
        return output

    return run


def titan_policy(with_experts=False):
    """torchtitan's per-op policy: its list is saved, of the matmuls every second one is computed again."""
    matmuls = {False: 0, True: 0}
    saved = _TITAN_SAVED_WITH_EXPERTS if with_experts else _TITAN_SAVED

    def policy(context, op, *args, **kwargs):
        if op in _MATMULS:
            matmuls[context.is_recompute] += 1
            if matmuls[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if op in saved else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def all_matmuls_policy():
    """Every matmul, the experts' grouped ones among them, and the attention are saved, the rest is computed again."""

    def policy(context, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if op in _ALL_MATMULS_AND_ATTENTION else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


def _wrap(blocks, run):
    for block in blocks:
        block.forward = functools.partial(run, block.forward)
