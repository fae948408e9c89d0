"""What the ranks of a group say to each other at the start, through a store that one of them holds."""

import os
import time

import pytest
from ranks import run_ranks
from tests.planner_server import free_address

from tidetape.fsdp.roll_call import RollCall

LATE_SECONDS = 1.0


def verdict_of_a_rank_that_ends(rank):
    """Rank 0, which holds the store, ends right after the verdict; the other one comes late to it."""
    roll = RollCall("group", rank, 2, 30)
    if rank == 1:
        roll.set("verdict/1", b"")
        time.sleep(LATE_SECONDS)
    heard = roll.say("verdict", "no room" if rank == 0 else "")
    roll.part()
    if rank == 0:
        os._exit(0)
    return heard


def test_a_rank_that_holds_the_store_ends_after_all_have_heard_why(tmp_path):
    _, heard = run_ranks(verdict_of_a_rank_that_ends, 2, tmp_path, meeting=f"tcp://{free_address()}")
    assert heard == ["no room", ""]


def alone(rank):
    roll = RollCall("group", rank, 2, 30)
    if rank == 1:
        return None
    start = time.monotonic()
    roll.part()
    return time.monotonic() - start


def test_nobody_waits_long_for_a_rank_that_is_gone(tmp_path):
    waited, _ = run_ranks(alone, 2, tmp_path)
    assert waited < 20


def error_of_a_rank_that_comes_too_late(rank):
    roll = RollCall("group", rank, 2, 30)
    if rank == 0:
        os._exit(0)
    time.sleep(LATE_SECONDS)
    with pytest.raises(RuntimeError) as error:
        roll.say("verdict", "")
    return str(error.value)


def test_a_rank_that_comes_too_late_says_who_has_the_store(tmp_path):
    _, error = run_ranks(error_of_a_rank_that_comes_too_late, 2, tmp_path, meeting=f"tcp://{free_address()}")
    assert "rank 0, which holds it, may have ended" in error
