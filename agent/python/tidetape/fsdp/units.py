"""What FSDP2 shards together, read from its own structures: names, meshes, and what cannot go the zero-copy way."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_common import DDPMeshInfo, FSDPMeshInfo
from torch.distributed.fsdp._fully_shard._fsdp_state import _get_module_fsdp_state

from .slot_plan import Residence

_MOVED = (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.uint8)
_REDUCED = (torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Mesh:
    """The ranks that one rank shards and copies a unit with; global ranks, in the order of their positions."""

    shards: tuple[int, ...]
    replicas: tuple[int, ...]
    everybody: frozenset[int]


@dataclass
class Unit:
    """What one FSDPParamGroup manages."""

    name: str
    group: object
    names: list[str]
    mesh: Mesh | None
    # The smaller one that it is gathered from in backward, where reshard_after_forward is a number.
    mesh_after_forward: Mesh | None
    # As far as slots go.
    residence: Residence
    # Why the unit cannot go the zero-copy way; empty where it can.
    reason: str = ""

    @property
    def params(self) -> list:
        return self.group.fsdp_params

    @property
    def gathered_bytes(self) -> int:
        return sum(param._orig_size.numel() * gathered_dtype(param).itemsize for param in self.params)


def gathered_dtype(param) -> torch.dtype:
    return param.param_dtype or param.orig_dtype


def find_units(model: nn.Module) -> list[Unit]:
    """The units of a model in the order in which it defines them. FSDP2 must have been applied; no unit may be unsharded."""
    module_names = {module: name for name, module in model.named_modules()}
    states = dict.fromkeys(state for module in model.modules() if (state := _get_module_fsdp_state(module)) is not None)
    groups = [(state, group) for state in states for group in state._fsdp_param_groups]
    units: list[Unit] = []
    for state, group in groups:
        group.lazy_init()
        name = ", ".join(module_names.get(module, "?") or "root" for module in group.modules)
        if len(state._fsdp_param_groups) > 1:
            name += f" [group {state._fsdp_param_groups.index(group)}]"
        names = []
        for param in group.fsdp_params:
            module = module_names.get(param._module_info.module, "?")
            names.append(f"{module}.{param._module_info.param_name}".lstrip("."))
        mesh = _mesh(group.mesh_info) if isinstance(group.mesh_info, FSDPMeshInfo) else None
        after_forward = _mesh(group.post_forward_mesh_info) if group._use_post_forward_mesh else None

        def positions(states):
            return tuple(position for position, (state, _) in enumerate(groups) if state in states)

        residence = Residence(
            module_names.get(group.modules[0], "?"),
            positions((state, *state._states_to_forward_prefetch)),
            positions((state, *state._states_to_backward_prefetch)) if state._states_to_backward_prefetch else None,
            group._reshard_after_forward and group.reshard_after_backward,
        )
        units.append(Unit(name, group, names, mesh, after_forward, residence, _reason(group)))
    return units


def _mesh(info) -> Mesh:
    shards = tuple(dist.get_process_group_ranks(info.shard_process_group))
    replicas = tuple(dist.get_process_group_ranks(info.replicate_process_group)) if isinstance(info, DDPMeshInfo) else ()
    return Mesh(shards, replicas, frozenset(info.mesh.mesh.flatten().tolist()))


def _reason(group) -> str:
    """From what is the same on all ranks alone."""
    if not isinstance(group.mesh_info, FSDPMeshInfo):
        return "it is replicated, not sharded"
    if group.mesh_info.shard_mesh_size == 1:
        return "one rank holds it whole"
    if group.device.type != "cpu":
        return f"its parameters are on {group.device.type}; only cpu has a transport"
    if isinstance(group.offload_policy, CPUOffloadPolicy):
        return "CPUOffloadPolicy moves its shards"
    if type(group._all_gather_comm) is not DefaultAllGather or type(group._reduce_scatter_comm) is not DefaultReduceScatter:
        return "it has a custom all-gather or reduce-scatter"
    if any(param.is_spmd_types for param in group.fsdp_params):
        return "its parameters have spmd_types"
    for param in group.fsdp_params:
        if gathered_dtype(param) not in _MOVED:
            return f"its parameters are {gathered_dtype(param)}".replace("torch.", "")
    trainable = any(param.sharded_param.requires_grad for param in group.fsdp_params)
    if trainable and group._reduce_dtype not in (None, *_REDUCED):
        return f"it reduces in {group._reduce_dtype}, and only float32 sums are made".replace("torch.", "")
    return ""


def gathered_elements(param) -> int:
    """Of the gathered storage, padding of the shards included."""
    return param.padded_sharded_param_size.numel() * param.mesh_info.shard_mesh_size


def has_extension(param) -> bool:
    return hasattr(param._sharded_local_tensor, "fsdp_pre_all_gather")
