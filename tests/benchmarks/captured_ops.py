"""What the blocks of a model dispatch below autograd in one forward, and which of it their backward consumes."""

import contextlib
import dataclasses
import functools

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


@dataclasses.dataclass(frozen=True)
class Call:
    """An op as it ran, with the tensors that it read and made; `reads` and `writes` are addresses of storages."""

    op: torch._ops.OpOverload
    args: tuple
    kwargs: dict
    results: object
    reads: frozenset
    writes: frozenset

    @property
    def is_view(self):
        """It only looks at a storage that was there."""
        return not self.writes


@dataclasses.dataclass
class BlockOps:
    """The forwards of one block in a step. The calls hold every tensor, so that no storage's address is used twice."""

    calls: list = dataclasses.field(default_factory=list)
    # What autograd packs: a storage's address, and the number of calls that had run by then.
    packed: dict = dataclasses.field(default_factory=dict)

    def consumed_calls(self):
        """The calls, in order and without views, that make the values which backward reads."""
        needed_until, calls = dict(self.packed), []
        for position in reversed(range(len(self.calls))):
            call = self.calls[position]
            if any(needed_until.get(storage, 0) > position for storage in call.writes):
                for storage in call.reads:
                    needed_until[storage] = max(needed_until.get(storage, 0), position)
                calls.append(call)
        return calls[::-1]


def capture(blocks, run_step):
    """Runs `run_step()`, a forward and a backward, and returns the BlockOps of each of the blocks in it."""
    captured = [BlockOps() for _ in blocks]
    with contextlib.ExitStack() as stack:
        for block, ops in zip(blocks, captured, strict=True):
            stack.enter_context(_recording(block, ops))
        run_step()
    return captured


@contextlib.contextmanager
def _recording(block, ops):
    def pack(tensor):
        ops.packed[_address(tensor)] = len(ops.calls)
        return tensor

    def recorded(*args, **kwargs):
        with saved_tensors_hooks(pack, lambda tensor: tensor), _Recorder(ops.calls):
            return forward(*args, **kwargs)

    forward = block.forward
    block.forward = functools.update_wrapper(recorded, forward)
    try:
        yield
    finally:
        block.forward = forward


class _Recorder(TorchDispatchMode):
    def __init__(self, calls):
        super().__init__()
        self._calls = calls

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        results = op(*args, **kwargs)
        reads = _addresses((args, kwargs))
        written = [
            value
            for argument, value in zip(op._schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        writes = _addresses(written) | _addresses(results) - reads
        # Aliases, so that the record keeps no graph alive.
        held = tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs, results))
        self._calls.append(Call(op, *held, reads, writes))
        return results


def _addresses(values):
    return frozenset(_address(value) for value in tree_leaves(values) if isinstance(value, torch.Tensor))


def _address(tensor):
    return tensor.untyped_storage()._cdata
