"""Turns units into the layout that all ranks share, and the groups of ranks that the own one works with."""

from __future__ import annotations

import itertools

import torch.distributed as dist

from .. import _native
from .units import Mesh, Unit, gathered_dtype, gathered_elements, has_extension


class LayoutDraft:
    """Units are added in order; their positions in the layout follow from it."""

    def __init__(self, ranks: dict[int, int], host_of: dict[int, str]):
        """`ranks`: from global ranks to those of the transport. `host_of`: by global rank."""
        self.groups: list = []
        self._ranks = ranks
        self._host_of = host_of
        self._meshes: dict[Mesh, str] = {}
        self._shapes: list = []
        self._units: list = []

    def add(self, name: str, mesh: Mesh, parameters: list, keeps_slot: bool) -> None:
        native = _native.collectives()
        per_node = _per_node([self._host_of[rank] for rank in mesh.shards])
        if mesh not in self._meshes:
            # Names are compared across ranks, so they do not name ranks.
            self._meshes[mesh] = f"mesh {len(self._meshes)}"
            shape = native.MeshShape(self._meshes[mesh], len(mesh.shards), max(1, len(mesh.replicas)), per_node)
            self._shapes.append(shape)
        rank = dist.get_rank()
        replicas = [self._ranks[other] for other in mesh.replicas]
        replica = mesh.replicas.index(rank) if replicas else 0
        shards = [self._ranks[other] for other in mesh.shards]
        self.groups.append(native.Group(shards, per_node, mesh.shards.index(rank), replicas, replica))
        self._units.append(native.Unit(name, self._meshes[mesh], parameters, keeps_slot))

    def layout(self, rotating_slots: int, host_ranks: int, staging_bytes: int):
        """Raises ValueError that names unit, parameter and field."""
        return _native.collectives().Layout(self._shapes, self._units, rotating_slots, host_ranks, staging_bytes)


def parameters_of(unit: Unit) -> list:
    return [
        _native.collectives().Parameter(
            name,
            list(param._orig_size),
            gathered_dtype(param),
            param.fsdp_placement.dim,
            not param.sharded_param.requires_grad,
            has_extension(param),
        )
        for name, param in zip(unit.names, unit.params, strict=True)
    ]


def parameters_after_forward(unit: Unit) -> list:
    """The gathered storages themselves, cut into equal parts: FSDP2 keeps one of them a rank. Gradients do not go this way."""
    return [
        _native.collectives().Parameter(name, [gathered_elements(param)], gathered_dtype(param), 0, True, False)
        for name, param in zip(unit.names, unit.params, strict=True)
    ]


def host_ranks_of(hosts: list[str]) -> int:
    """How many ranks each host has; 0 where hosts differ in it."""
    counts = {hosts.count(host) for host in hosts}
    return counts.pop() if len(counts) == 1 else 0


def _per_node(hosts: list[str]) -> int:
    """Length of the runs of equal hosts, if all have one and no host comes back; else 1: each rank a node of its own."""
    runs = [len(list(run)) for _, run in itertools.groupby(hosts)]
    return runs[0] if len(set(runs)) == 1 and len(runs) == len(set(hosts)) else 1
