"""Ways of training that are wrong on purpose, each as a tape might be: random programs must find them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from .train import Build, Step, Train, Way, train_with

Forward = Callable


def _around_blocks(wrap: Callable[[Forward], Forward]) -> Train:
    def train(build: Build, way: Way) -> list[Step]:
        def attach(model: nn.Module) -> contextlib.AbstractContextManager:
            for block in model.blocks:
                block.forward = wrap(block.forward)
            return contextlib.nullcontext()

        return train_with(attach, build, way.steps)

    return train


def _with_hooks(pack: Callable, unpack: Callable = lambda kept: kept) -> Train:
    def wrap(forward: Forward) -> Forward:
        def hooked(*values):
            with saved_tensors_hooks(pack, unpack):
                return forward(*values)

        return hooked

    return _around_blocks(wrap)


def _replayed(**options) -> Train:
    return _around_blocks(lambda forward: functools.partial(checkpoint, forward, use_reentrant=False, **options))


@contextlib.contextmanager
def _another_random_state():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        yield


def _last_bit_wrong(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * (1 + torch.finfo(tensor.dtype).eps) if tensor.is_floating_point() else tensor


def _draw(tensor: torch.Tensor) -> torch.Tensor:
    torch.rand(())
    return tensor


FAULTS: dict[str, tuple[Train, str]] = {
    "replays from another random state": (
        _replayed(preserve_rng_state=False, context_fn=lambda: (contextlib.nullcontext(), _another_random_state())),
        "gradient",
    ),
    "updates buffers twice": (_replayed(), "buffer"),
    "misses that a saved value was changed": (_with_hooks(lambda tensor: tensor.detach()), "refused:"),
    "misses a hidden write": (_with_hooks(lambda tensor: tensor.detach().clone()), "gradient"),
    "returns a value with a wrong last bit": (_with_hooks(lambda tensor: tensor, _last_bit_wrong), "gradient"),
    "moves the generator in backward": (_with_hooks(lambda tensor: tensor, _draw), "random"),
}
"""By name: a way of training, and the kind of difference that it makes."""
