"""One unit's reduce-scatter over the data plane."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.tensor import DTensor

from .. import _native
from .units import gathered_dtype


class AbsentGradient:
    """Stands for the gradient of a parameter that has none on this rank."""


ABSENT = AbsentGradient()


class UnitReduction:
    """Not thread-safe: FSDP2 calls from the thread that runs backward."""

    def __init__(self, plane, index: int, params: Sequence[FSDPParam]):
        """`index`: of the unit in the plane's layout."""
        self._plane = plane
        self._index = index
        self._params = params
        self._positions = {id(param): position for position, param in enumerate(params)}
        self._frozen = [not param.sharded_param.requires_grad for param in params]

    def same_parameters_train(self) -> bool:
        """Whether the parameters that need gradients are those for which the reduction was laid out."""
        return self._frozen == [not param.sharded_param.requires_grad for param in self._params]

    def reduce(
        self,
        params: Sequence[FSDPParam],
        gradients: list[torch.Tensor | AbsentGradient],
        orig_dtype: torch.dtype | None,
        divide_factor: float,
        zeros_for_unused: bool,
        step: int,
    ) -> None:
        """Sums the gradients over all ranks into the shards' .grad. Clears `gradients` as soon as they have been read.

        zeros_for_unused: parameters without a gradient on any rank get one of zeros; else they are left alone.
        """
        given: list[torch.Tensor | None] = [None] * len(self._params)
        for param, gradient in zip(params, gradients, strict=True):
            if gradient is not ABSENT:
                given[self._positions[id(param)]] = gradient
        gradients.clear()
        present = [gradient is not None for gradient in given]
        widened = any(
            gradient is not None and gradient.dtype == torch.float32 and gathered_dtype(param) == torch.bfloat16
            for param, gradient in zip(self._params, given, strict=True)
        )
        notice = _native.collectives().GradientNotice(self._index, widened, divide_factor, present)
        agreed = self._plane.agree(notice, step)
        if not any(agreed.present) and not zeros_for_unused:
            return
        sources = []
        for param, gradient in zip(self._params, given, strict=True):
            dtype = torch.float32 if agreed.widened else gathered_dtype(param)
            if gradient is not None and gradient.dtype != dtype:
                # A fresh one beside accumulated ones.
                gradient = gradient.to(dtype)
            sources.append(None if gradient is None else gradient.contiguous())
        del given
        shards = self._shards(agreed.present)
        outputs = [(shard, accumulate) for shard, accumulate in shards]
        self._plane.reduce_gradients(agreed, sources, outputs, step)
        sources.clear()
        self._plane.finish_reduction(agreed, outputs, step)
        for param, (shard, accumulate), there in zip(self._params, shards, agreed.present, strict=True):
            if shard is not None and (there or zeros_for_unused):
                if not accumulate:
                    _set_gradient(param, shard, orig_dtype)
                for hook in (getattr(param.sharded_param, "_post_accumulate_grad_hooks", None) or {}).values():
                    hook(param.sharded_param)

    def _shards(self, present: list[bool]) -> list[tuple[torch.Tensor | None, bool]]:
        """For each parameter where its sum goes, and whether it is added to what is there. All new shards lie in one allocation."""
        shards: list[tuple[torch.Tensor | None, bool]] = [(None, False)] * len(self._params)
        new = []
        for position, param in enumerate(self._params):
            if self._frozen[position]:
                continue
            gradient = param.sharded_param.grad
            local = gradient._local_tensor if isinstance(gradient, DTensor) else None
            if present[position] and local is not None and local.dtype == torch.float32 and local.is_contiguous():
                shards[position] = (local, True)
            else:
                new.append(position)
        sizes = [self._params[position].sharded_size.numel() for position in new]
        for position, part in zip(new, torch.empty(sum(sizes), dtype=torch.float32).split(sizes), strict=True):
            shards[position] = (part.view(self._params[position].sharded_size), False)
        return shards


def _set_gradient(param: FSDPParam, shard: torch.Tensor, orig_dtype: torch.dtype | None) -> None:
    """As FSDP2 does it: in the parameter's own dtype, added to what is there."""
    if orig_dtype is not None and shard.dtype != orig_dtype:
        shard = shard.to(orig_dtype)
    gradient = param.sharded_param.grad
    if gradient is not None:
        gradient._local_tensor += shard
    else:
        param.sharded_param.grad = param.to_sharded_dtensor(shard)
