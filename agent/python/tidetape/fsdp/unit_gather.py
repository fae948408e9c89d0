"""One unit's all-gather over the data plane, from the shards of one mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam


def main_shard(param: FSDPParam) -> torch.Tensor:
    """What the optimizer steps: flat, padded at its end."""
    return param._sharded_param_data


def shard_after_forward(param: FSDPParam) -> torch.Tensor:
    """What resharding to a smaller mesh has left."""
    return param._sharded_post_forward_param_data


class UnitGather:
    """Not thread-safe: FSDP2 calls from the thread that runs forward or backward."""

    def __init__(self, plane, index: int, params: Sequence[FSDPParam], shard_of: Callable[[FSDPParam], torch.Tensor]):
        """`index`: of the unit in the plane's layout. `shard_of`: the own shard of a parameter, flat."""
        self._plane = plane
        self._index = index
        self._params = params
        self._shard_of = shard_of
        self._own_shards = plane.own_shards(index)
        self._gathered = plane.gathered_tensors(index)
        # The own shard is on its way to the others, and nobody has waited for theirs.
        self._sent = False

    def slot_is_free(self) -> bool:
        """Whether nobody's parameters lie in the slot. The same on all ranks, whose units are gathered and resharded in the same
        order."""
        return self._plane.holder(self._index) < 0 or self._sent

    def send(self, step: int) -> None:
        """Writes the own shard to its place and starts it on its way."""
        if self._sent:
            # FSDP2 gave up a prefetch. All ranks did; the shards that came are old by now.
            self._plane.finish(self._index, step)
            self._plane.release(self._index)
        self._plane.admit(self._index, step)
        self._sent = True
        targets, sources = [], []
        for param, target in zip(self._params, self._own_shards, strict=True):
            if target.numel() > 0:
                targets.append(target)
                sources.append(self._shard_of(param)[: target.numel()].view(target.shape))
        if targets:
            torch._foreach_copy_(targets, sources)
        self._plane.send(self._index, step)

    def finish(self, step: int) -> None:
        """Waits for the others' shards and puts the slot under FSDP2's gathered tensors."""
        self._plane.finish(self._index, step)
        for param, gathered in zip(self._params, self._gathered, strict=True):
            if not param.all_gather_outputs:
                param.all_gather_outputs = [gathered]
        self._plane.lend(self._index, [param.all_gather_outputs[0] for param in self._params])
        self._sent = False
