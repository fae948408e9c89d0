"""One unit's all-gather over the data plane, from the shards of one mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

# Of parameters, in the shapes of the targets and without padding.
Shards = Callable[[Sequence[FSDPParam], Sequence[torch.Tensor]], list[torch.Tensor]]


class MainShards:
    """What the optimizer steps. The same tensors from step to step, so their views are kept."""

    def __init__(self):
        self._flat: dict[int, torch.Tensor] = {}
        self._views: dict[int, torch.Tensor] = {}

    def __call__(self, params: Sequence[FSDPParam], targets: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        for position, (param, target) in enumerate(zip(params, targets, strict=True)):
            if self._flat.get(position) is not param._sharded_param_data:
                self._flat[position] = param._sharded_param_data
                self._views[position] = _unpadded(param._sharded_param_data, target)
        return list(self._views.values())


def shards_after_forward(params: Sequence[FSDPParam], targets: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What resharding to a smaller mesh has left."""
    return [_unpadded(param._sharded_post_forward_param_data, target) for param, target in zip(params, targets, strict=True)]


def _unpadded(flat: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return flat[: target.numel()].view(target.shape)


class UnitGather:
    """Not thread-safe: FSDP2 calls from the thread that runs forward or backward."""

    def __init__(self, plane, index: int, params: Sequence[FSDPParam], shards: Shards):
        """`index`: of the unit in the plane's layout. `shards`: the own ones."""
        self._plane = plane
        self._index = index
        self._params = params
        self._shards = shards
        # Of parameters of which this rank has a part: where it goes.
        held = [(param, target) for param, target in zip(params, plane.own_shards(index), strict=True) if target.numel() > 0]
        self._held = [param for param, _ in held]
        self._targets = [target for _, target in held]
        self._gathered = plane.gathered_tensors(index)
        # The own shard is on its way to the others, and nobody has waited for theirs.
        self._sent = False

    def slot_is_free(self) -> bool:
        """Whether nobody's parameters lie in the slot. The same on all ranks, whose units are gathered and resharded in the same
        order."""
        return self._plane.holder(self._index) < 0 or self._sent

    def send(self, step: int, reduction_next: bool) -> None:
        """Writes the own shard to its place and starts it on its way. `reduction_next`: gradients of the unit are reduced when it
        has been resharded, and rows may be staged in its slot until then."""
        if self._sent:
            # FSDP2 gave up a prefetch. All ranks did; the shards that came are old by now.
            self._plane.finish(self._index, step)
            self._plane.release(self._index)
        self._plane.admit(self._index, reduction_next, step)
        self._sent = True
        if self._targets:
            torch._foreach_copy_(self._targets, self._shards(self._held, self._targets))
        self._plane.send(self._index, step)

    def finish(self, step: int) -> None:
        """Waits for the others' shards and puts the slot under FSDP2's gathered tensors."""
        self._plane.finish(self._index, step)
        for param, gathered in zip(self._params, self._gathered, strict=True):
            if not param.all_gather_outputs:
                param.all_gather_outputs = [gathered]
        self._plane.lend(self._index, [param.all_gather_outputs[0] for param in self._params])
        self._sent = False
