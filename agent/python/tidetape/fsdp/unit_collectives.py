"""One unit's collectives over the data plane."""

from __future__ import annotations

from dataclasses import dataclass

from .unit_gather import UnitGather
from .unit_reduction import UnitReduction
from .units import Unit


@dataclass(frozen=True)
class UnitCollectives:
    """Made by Collectives once all ranks have joined. `gather_after_forward`: from the smaller mesh that a number as
    reshard_after_forward makes; None without one. `wants_zeros`: the user's own set_reduce_scatter_unused_params."""

    unit: Unit
    gather: UnitGather
    gather_after_forward: UnitGather | None
    reduction: UnitReduction
    wants_zeros: bool

    @property
    def name(self) -> str:
        return self.unit.name
