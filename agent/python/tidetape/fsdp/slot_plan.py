"""How many slots units that are resharded after forward and after backward must take in turn, so that none needs a slot that
another still holds.

Follows FSDP2's order: in forward a unit, the units around it and those that it prefetches are whole; in backward likewise, where
it prefetches the unit that ended forward before it unless told otherwise. Units are taken to run in the order in which the model
defines them. Where they do not, a slot may be taken when it is wanted, and that gather goes the stock way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Residence:
    """A unit as far as slots go: `name` of its module, what it prefetches (positions), None for FSDP2's own choice, and whether it
    takes slots in turn."""

    name: str
    forward_prefetch: tuple[int, ...] = ()
    backward_prefetch: tuple[int, ...] | None = None
    takes_turns: bool = True


def least_slots(units: Sequence[Residence]) -> int:
    """For units in the order in which the model defines them, each before those inside it. At least 1; as many as units that take
    turns where nothing less will do."""
    turn = {}
    for position, unit in enumerate(units):
        if unit.takes_turns:
            turn[position] = len(turn)
    together = [tuple(turn[position] for position in whole if position in turn) for whole in _whole_together(units)]
    slots = 1
    while slots < len(turn) and any(len({number % slots for number in whole}) < len(whole) for whole in together):
        slots += 1
    return slots


def _whole_together(units: Sequence[Residence]) -> list[set[int]]:
    """Positions of the units that are whole at the same time, for each moment of a step."""
    around = [[other for other in range(len(units)) if _is_inside(unit.name, units[other].name)] for unit in units]
    # Forward ends with the innermost units first.
    ends = sorted(range(len(units)), key=lambda position: (_last_inside(units, position), -len(around[position])))
    before = {position: ends[index - 1] for index, position in enumerate(ends) if index > 0}
    moments = []
    for position, unit in enumerate(units):
        itself = {position, *around[position]}
        moments.append(itself | set(unit.forward_prefetch))
        prefetched = unit.backward_prefetch
        if prefetched is None:
            prefetched = (before[position],) if position in before else ()
        moments.append(itself | set(prefetched))
    return moments


def _is_inside(name: str, other: str) -> bool:
    return name != other and (other == "" or name.startswith(other + "."))


def _last_inside(units: Sequence[Residence], position: int) -> int:
    """The position of the last unit in it, itself where there is none."""
    return max(other for other, unit in enumerate(units) if other == position or _is_inside(unit.name, units[position].name))
