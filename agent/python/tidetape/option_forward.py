"""The forward of a block that runs in one of several ways, its options, instead of with a tape."""

from __future__ import annotations

import functools
import hashlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from . import _native
from .block_forward import BlockForward

if TYPE_CHECKING:
    from .block_options import BlockOptions

Option = Callable | None
"""`option(forward, *args, **kwargs)` runs a block's own forward in its way and returns what that returns; None just runs it."""


class OptionForward(BlockForward):
    """Runs the block by the option that the plan names, and tells the session what that took.

    An option that fails when a block first runs by it leaves all blocks of that kind as they are without Tidetape.
    """

    def __init__(self, module: nn.Module, number: int, session, name: str, given: BlockOptions):
        super().__init__(module, number, session)
        self.name = name
        self.labels = list(given.options)
        self.options = list(given.options.values())
        self.kind = given.kind
        self.announced = False
        self.left_alone = ""
        """Why the block runs as it is without Tidetape; empty while it does not."""

    def __call__(self, *args, **kwargs):
        module = self.module()
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return self.inner(module, args, kwargs)
        self.session.before_block()
        if self.left_alone:
            self.native.pass_through(self.left_alone)
            return self.inner(module, args, kwargs)
        inputs = _native._C.tensors_in((args, kwargs))
        if not any(t.requires_grad for t in inputs) and not any(p.requires_grad for p in module.parameters()):
            return self.inner(module, args, kwargs)
        if not self.announced:
            self.announced = True
            structure = self._structure_of(module)
            # Of equal blocks those whose inputs are of one size are measured together. Ranks may have other sizes.
            kind = _hash([f"{structure}", *(f"{tuple(t.shape)} {t.dtype}" for t in inputs)])
            self.native.set_options(self.number, kind, structure, self.labels)
        execution = self.native.begin_option(self.number)
        if execution is None:
            return self.inner(module, args, kwargs)
        run = self._first_run if execution.first and self.options[execution.option] is not None else self._run
        result = run(execution, module, args, kwargs)
        if not self.left_alone:
            outputs = _native._C.tensors_in((result,))
            execution.end_forward(inputs, outputs)
            _watch_backward(execution, inputs, outputs)
        return result

    def _run(self, execution, module: nn.Module, args: tuple, kwargs: dict):
        option = self.options[execution.option]
        if option is None:
            return self.inner(module, args, kwargs)
        return option(functools.partial(self._own, module), *args, **kwargs)

    def _own(self, module: nn.Module, *args, **kwargs):
        return self.inner(module, args, kwargs)

    def _first_run(self, execution, module: nn.Module, args: tuple, kwargs: dict):
        """What fails here is the option, if the block's own forward does not fail, too."""
        state = torch.get_rng_state()
        try:
            return self._run(execution, module, args, kwargs)
        except Exception as error:
            torch.set_rng_state(state)
            result = self.inner(module, args, kwargs)
            self.session.leave_alone(self, f"its option {self.labels[execution.option]!r} failed: {_first_line(error)}")
            return result

    def _structure_of(self, module: nn.Module) -> int:
        """The same for blocks of equal class, parameters and options, on all ranks."""
        described = [self.kind, f"{type(module).__module__}.{type(module).__qualname__}", *self.labels]
        described += [f"{name} {tuple(p.shape)} {p.dtype}" for name, p in module.named_parameters()]
        return _hash(described)


def _watch_backward(execution, inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> None:
    """The backward begins with the first gradient of an output. It ends with the gradients of all inputs, where nobody else reads
    them; else with the next block's beginning or the end of the pass. The graph holds the execution: where it goes, that goes.

    The hooks are on nodes of the graph: a compiler looks at those on tensors."""
    makers = {t.grad_fn for t in inputs if t.grad_fn is not None}
    waiting = len(makers)
    weak = weakref.ref(execution)

    def begin(_gradients):
        execution.begin_backward()
        torch.autograd.Variable._execution_engine.queue_callback(execution.end_backward)

    def one_input(_gradients):
        nonlocal waiting
        waiting -= 1
        if waiting == 0 and (running := weak()) is not None:
            running.end_backward()

    for node in {t.grad_fn for t in outputs if t.grad_fn is not None} - makers:
        node.register_prehook(begin)
    for node in makers:
        node.register_prehook(one_input)


def _hash(lines: list[str]) -> int:
    return int.from_bytes(hashlib.blake2b("\n".join(lines).encode(), digest_size=8).digest(), "little")


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    if len(lines) > 1 and lines[0].endswith(":"):
        lines[0] += " " + lines[1].strip()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
