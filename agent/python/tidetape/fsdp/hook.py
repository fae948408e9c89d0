"""Replaces FSDP2's collective path in torch 2.14.1. The only file that changes anything of torch.

FSDP2 takes three functions from the globals of _fsdp_param_group: foreach_all_gather (cast, copy in, gather),
foreach_all_gather_copy_out (copy out) and foreach_reduce (copy in, reduce, views). For units that Tidetape knows, ours stand in;
for all others, and where a call asks for what only FSDP2 does, they pass on. Each call decides by itself, from what is the same on
all ranks: FSDP2's gathered tensors can have the arena's memory in one call and their own in the next, because only what is under
their storages changes, and FSDP2's own resizing takes either away.

FSDPParam.unsharded_zero_grad_data, which would make zeros for a parameter without a gradient, gives a marker instead.
"""

from __future__ import annotations

import functools
import weakref

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as param_group_module
from torch.distributed.fsdp._fully_shard._fsdp_collectives import AllGatherResult, DefaultAllGather, DefaultReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam, ShardedState

from ..versions import SUPPORTED_TORCH
from .unit_reduction import ABSENT

_stock_all_gather = param_group_module.foreach_all_gather
_stock_copy_out = param_group_module.foreach_all_gather_copy_out
_stock_reduce = param_group_module.foreach_reduce
_stock_zeros = FSDPParam.unsharded_zero_grad_data

# Attached models, whose collectives may start with any all-gather.
_attached: list[weakref.ref] = []


def install(collectives) -> None:
    """Puts our functions in place, and has `collectives` asked about units that nobody knows. Raises RuntimeError with another
    torch."""
    if torch.__version__.split("+")[0] != SUPPORTED_TORCH:
        raise RuntimeError(f"torch {torch.__version__}: FSDP2's collectives can be replaced in {SUPPORTED_TORCH} only")
    _attached.append(weakref.ref(collectives))
    param_group_module.foreach_all_gather = _all_gather
    param_group_module.foreach_all_gather_copy_out = _copy_out
    param_group_module.foreach_reduce = _reduce
    FSDPParam.unsharded_zero_grad_data = property(_zeros)


def remove(collectives) -> None:
    """No unit starts with `collectives` any more. Our functions stay: gathers that are under way end with them."""
    _attached[:] = [other for other in _attached if other() not in (None, collectives)]


def remember(param: FSDPParam, collectives, unit) -> None:
    """`unit` does the collectives of `param`'s group."""
    param._tidetape = (weakref.ref(collectives), unit)


def forget(param: FSDPParam) -> None:
    del param._tidetape


class _Gathering(AllGatherResult):
    """An all-gather of ours that is under way; FSDP2 hands it from the one function to the other. `finish()` waits for it."""


def _owner(param: FSDPParam):
    """The collectives and the unit of a parameter; (None, None) where it is FSDP2's own."""
    collectives, unit = getattr(param, "_tidetape", (None, None))
    collectives = collectives and collectives()
    return (collectives, unit) if collectives is not None else (None, None)


@torch.no_grad()
def _all_gather(fsdp_params, group, async_op, copy_in_stream, stream, device, comm):
    if not hasattr(fsdp_params[0], "_tidetape"):
        for collectives in _attached:
            if (found := collectives()) is not None:
                found.start_with(fsdp_params)
    collectives, unit = _owner(fsdp_params[0])
    if unit is None:
        return _stock_all_gather(fsdp_params, group, async_op, copy_in_stream, stream, device, comm)
    after_forward = fsdp_params[0].sharded_state == ShardedState.SHARDED_POST_FORWARD
    gather = unit.gather_after_forward if after_forward else unit.gather
    if reason := _reason_against_gather(gather, comm):
        collectives.say_reason(unit.name, reason)
        return _stock_all_gather(fsdp_params, group, async_op, copy_in_stream, stream, device, comm)
    gather.send(collectives.training_step, reduction_next=_is_reduced_next(unit.unit.group))
    gathering = _Gathering(torch.empty(0, device=device), None, None, [], [], [])
    gathering.finish = functools.partial(gather.finish, collectives.training_step)
    return gathering


def _is_reduced_next(group) -> bool:
    """Whether the unit is gathered for its backward, which reduces its gradients."""
    to_backward = group._training_state == TrainingState.PRE_BACKWARD or not group._reshard_after_forward
    return to_backward and group.reduce_grads and group.reshard_after_backward


def _reason_against_gather(gather, comm) -> str:
    """Why this gather is FSDP2's own; the same on all ranks."""
    if gather is None:
        return "it is resharded to another mesh than at the start"
    if type(comm) is not DefaultAllGather:
        return "it has a custom all-gather"
    if not gather.slot_is_free():
        return "its slot held another unit when it was needed"
    return ""


@torch.no_grad()
def _copy_out(result, fsdp_params, group):
    if isinstance(result, _Gathering):
        result.finish()
    else:
        _stock_copy_out(result, fsdp_params, group)


@torch.no_grad()
def _reduce(
    fsdp_params,
    unsharded_grads,
    reduce_scatter_group,
    reduce_scatter_stream,
    reduce_scatter_comm,
    orig_dtype,
    reduce_dtype,
    device,
    gradient_divide_factor,
    all_reduce_group,
    all_reduce_stream,
    all_reduce_grads,
    partial_reduce_output,
    all_reduce_hook,
    force_sum_reduction_for_comms=False,
):
    collectives, unit = _owner(fsdp_params[0])
    nothing = (torch.empty(0, device=device), None, reduce_scatter_stream, None, None, None, partial_reduce_output)
    if unit is not None:
        reason = ""
        if all_reduce_hook is not None:
            reason = "it has an all-reduce hook"
        elif type(reduce_scatter_comm) is not DefaultReduceScatter:
            reason = "it has a custom reduce-scatter"
        elif all_reduce_group is not None and (not all_reduce_grads or partial_reduce_output is not None):
            reason = "its copies are summed in other steps than its shards (set_requires_all_reduce)"
        elif not unit.reduction.same_parameters_train():
            reason = "parameters were frozen or unfrozen after the start"
        if not reason:
            ranks = reduce_scatter_group.size() * (1 if all_reduce_group is None else all_reduce_group.size())
            unit.reduction.reduce(
                fsdp_params,
                unsharded_grads,
                orig_dtype,
                float(gradient_divide_factor or ranks),
                unit.wants_zeros,
                collectives.training_step,
            )
            return nothing
        collectives.say_reason(unit.name, reason)
        fsdp_params, unsharded_grads = _without_markers(fsdp_params, unsharded_grads, unit.wants_zeros)
        if not fsdp_params:
            return nothing
    return _stock_reduce(
        fsdp_params,
        unsharded_grads,
        reduce_scatter_group,
        reduce_scatter_stream,
        reduce_scatter_comm,
        orig_dtype,
        reduce_dtype,
        device,
        gradient_divide_factor,
        all_reduce_group,
        all_reduce_stream,
        all_reduce_grads,
        partial_reduce_output,
        all_reduce_hook,
        force_sum_reduction_for_comms,
    )


def _without_markers(params, gradients, zeros: bool):
    """What FSDP2 would have handed over itself."""
    kept, real = [], []
    for param, gradient in zip(params, gradients, strict=True):
        if gradient is not ABSENT:
            kept.append(param)
            real.append(gradient)
        elif zeros:
            kept.append(param)
            real.append(_stock_zeros.fget(param))
    gradients.clear()
    return kept, real


def _zeros(param: FSDPParam):
    return _stock_zeros.fget(param) if _owner(param)[1] is None else ABSENT
