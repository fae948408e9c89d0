"""xformers' automatic policy (`get_optimal_checkpoint_policy`) on a CPU: which ops of each block a budget saves.

It profiles through `torch.cuda`; here the metering allocator answers instead. Its own contexts fail on this torch, so its choice is
carried out by torch's selective checkpointing, with writes to what is saved allowed, as xformers does.
"""

import functools
from unittest import mock

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def optimal_choices(blocks, run_step, budget):
    """For each block, whether each of its ops is saved, in order, without those that xformers always skips.

    Needs the meter (`import tidetape`). budget: 0 (nothing is saved) to 1.
    """
    from xformers.checkpoint import get_optimal_checkpoint_policy

    from tidetape import _C

    calls = _captured_calls(blocks, run_step)
    with (
        mock.patch("torch.cuda.synchronize", lambda: None),
        mock.patch("torch.cuda.reset_peak_memory_stats", _C.meter_reset_peak),
        mock.patch("torch.cuda.max_memory_allocated", _C.meter_peak_bytes),
    ):
        return [
            get_optimal_checkpoint_policy(functools.partial(block.forward, **kwargs), *args, memory_budget=budget).optim_output
            for block, (args, kwargs) in zip(blocks, calls, strict=True)
        ]


def checkpoint_blocks_by_choices(blocks, choices):
    """Selective checkpointing of each block by what optimal_choices() returned."""
    for block, saved in zip(blocks, choices, strict=True):
        contexts = functools.partial(_contexts, saved)
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)


def _contexts(saved):
    from xformers.checkpoint import OPS_TO_ALWAYS_SKIP

    next_op = {False: 0, True: 0}

    def policy(context, op, *args, **kwargs):
        if op in OPS_TO_ALWAYS_SKIP:
            return CheckpointPolicy.PREFER_RECOMPUTE
        position = next_op[context.is_recompute]
        next_op[context.is_recompute] += 1
        return CheckpointPolicy.MUST_SAVE if saved[position] == 1 else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy, allow_cache_entry_mutation=True)


def _captured_calls(blocks, run_step):
    """The arguments of each block's last forward in one step."""
    calls = [None] * len(blocks)

    def note(number, forward, *args, **kwargs):
        calls[number] = (_detached(args), _detached(kwargs))
        return forward(*args, **kwargs)

    forwards = [block.forward for block in blocks]
    for number, block in enumerate(blocks):
        block.forward = functools.partial(note, number, block.forward)
    try:
        run_step()
    finally:
        for block, forward in zip(blocks, forwards, strict=True):
            block.forward = forward
    return calls


def _detached(arguments):
    return torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda tensor: tensor.detach().requires_grad_(tensor.requires_grad), arguments
    )
