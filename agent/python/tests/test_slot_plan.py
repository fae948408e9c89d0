"""Slots that units take in turn: enough for all that are whole at once, and not more."""

import itertools

import pytest

from tidetape.fsdp.slot_plan import Residence, least_slots


def stack(count, **how):
    return [Residence("", takes_turns=False), *(Residence(f"blocks.{n}", **how) for n in range(count))]


@pytest.mark.parametrize(("count", "slots"), [(0, 1), (1, 1), (2, 2), (3, 2), (40, 2)])
def test_a_stack_takes_two_slots_in_turn(count, slots):
    assert least_slots(stack(count)) == slots


def test_no_backward_prefetch_needs_one_slot():
    assert least_slots(stack(5, backward_prefetch=())) == 1


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_prefetching_ahead_needs_a_slot_more_each(ahead):
    units = [Residence("", takes_turns=False)]
    units += [Residence(f"blocks.{n}", forward_prefetch=tuple(range(n + 2, min(n + 2 + ahead, 11)))) for n in range(10)]
    assert least_slots(units) == ahead + 1


def test_units_that_keep_their_slots_take_no_turn():
    assert least_slots(stack(4, takes_turns=False)) == 1


def test_units_in_units():
    """While an inner one of block n runs backward, it, its block and block n - 1 may be whole."""
    units = [Residence("", takes_turns=False)]
    for n in range(4):
        units += [Residence(f"blocks.{n}"), Residence(f"blocks.{n}.experts")]
    slots = least_slots(units)
    turns = {unit.name: turn % slots for turn, unit in enumerate(unit for unit in units if unit.takes_turns)}
    for n in range(1, 4):
        whole = {turns[f"blocks.{n}"], turns[f"blocks.{n}.experts"], turns[f"blocks.{n - 1}"]}
        assert len(whole) == 3
    assert slots == 4


def test_names_are_prefixes_by_parts():
    """blocks.1 is not around blocks.10."""
    units = [Residence(f"blocks.{n}") for n in range(12)]
    for one, other in itertools.pairwise(units):
        assert one.name != other.name
    assert least_slots(units) == 2
