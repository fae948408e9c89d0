"""The ideal replay: plain training, and before each block's backward the forward kernels that it consumes once more.

Nothing else runs again: no modules, no autograd, no Python modes; views are there already, and an op is one call from Python.
"""

import functools

import torch
from torch.utils._pytree import tree_leaves

from tests.benchmarks.captured_ops import capture


def rerun_consumed_kernels(blocks, run_step):
    """Captures one step of the model by `run_step()`; from then on each block's backward begins with its consumed kernels."""
    for block, ops in zip(blocks, capture(blocks, run_step), strict=True):
        # On the values of the captured step: the results are let go at once.
        calls = [(call.op, call.args, call.kwargs) for call in ops.consumed_calls()]
        block.forward = functools.partial(_forward, block.forward, calls)


def _forward(forward, calls, *args, **kwargs):
    output = forward(*args, **kwargs)
    first = output if isinstance(output, torch.Tensor) else next(leaf for leaf in tree_leaves(output) if _has_gradient(leaf))
    first.register_hook(functools.partial(_rerun, calls))
    return output


def _has_gradient(leaf):
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _rerun(calls, gradient):
    with torch.inference_mode():
        for op, args, kwargs in calls:
            op(*args, **kwargs)
