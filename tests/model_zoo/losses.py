"""The loss of a model's output."""

from __future__ import annotations

import dataclasses

import torch


def loss_of(output) -> torch.Tensor:
    """The model's own loss, or the mean squares of all floating tensors of the output that have a gradient, added up."""
    own = getattr(output, "loss", None)
    if isinstance(own, torch.Tensor) and own.requires_grad:
        return own.float().mean()
    tensors = [t for t in _tensors(output, set()) if t.requires_grad and t.numel()]
    if not tensors:
        raise ValueError("no output has a gradient")
    return sum((t if t.is_floating_point() else torch.view_as_real(t)).float().square().mean() for t in tensors)


def _tensors(value, seen: set):
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        if value.is_floating_point() or value.is_complex():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item, seen)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name), seen)
