"""The forward of a managed block: the block's own, between the beginning and the end of a recording."""

from __future__ import annotations

import functools
import weakref

import torch
from torch import nn

from .blocks import forward_attribute


class BlockForward:
    """Stands in for `module.forward` as an instance attribute, so that names, state dict keys and hooks stay as they are; for
    what `module.compile()` made of its call, where that was done.

    Holds the module weakly: a model that goes out of scope is freed at once, attached or not. A copy of the module
    (`copy.deepcopy`, for an averaged model, say) gets its own plain forward back.
    """

    def __init__(self, module: nn.Module, number: int, session):
        self.module = weakref.ref(module)
        # Set where somebody has put a forward of their own on the instance; else the class's is called.
        self.attribute = forward_attribute(module)
        self.replaced = module.__dict__.get(self.attribute)
        self.number = number
        self.session = session
        self.native = session.native
        functools.update_wrapper(self, type(module).forward)

    def inner(self, module: nn.Module, args: tuple, kwargs: dict):
        if self.replaced is not None:
            return self.replaced(*args, **kwargs)
        return type(module).forward(module, *args, **kwargs)

    def __call__(self, *args, **kwargs):
        module = self.module()
        # A compiler that traces through a block must see the block's own forward.
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return self.inner(module, args, kwargs)
        native = self.native
        self.session.before_block()
        if native.wants_names(self.number):
            native.set_names(self.number, plain_tensors(module.named_parameters()), plain_tensors(module.named_buffers()))
        if not native.begin_block(self.number, args, kwargs):
            return self.inner(module, args, kwargs)
        try:
            return self.inner(module, args, kwargs)
        finally:
            native.end_block()

    def __deepcopy__(self, memo):
        copied = memo.get(id(self.module()))
        return self.replaced if copied is None else functools.partial(type(copied).forward, copied)

    def __reduce__(self):
        return (getattr, (self.module(), self.attribute))

    def install(self) -> None:
        self.module().__dict__[self.attribute] = self

    def remove(self) -> None:
        """Puts the forward back that was there before, unless somebody has put another one on top."""
        module = self.module()
        if module is None or module.__dict__.get(self.attribute) is not self:
            return
        del module.__dict__[self.attribute]
        if self.replaced is not None:
            module.__dict__[self.attribute] = self.replaced


def plain_tensors(named) -> list[tuple[str, torch.Tensor]]:
    """The tensors by name as they are now: FSDP swaps sharded and whole parameters around the forward."""
    return [(name, t.data) for name, t in named if type(t.data) is torch.Tensor and t.layout == torch.strided]
