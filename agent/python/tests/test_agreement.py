import os

import pytest
import torch.distributed as dist
from ranks import run_ranks

from tidetape.agreement import Agreement


def test_one_process_switches_at_once():
    agreement = Agreement()
    assert agreement.step(0, held=0, active=0) is None
    assert agreement.step(1, held=3, active=0) == 3
    assert agreement.step(2, held=3, active=3) is None
    agreement.close()
    agreement.close()


def train(rank, arrivals, steps):
    """Runs `steps` boundaries; arrivals[rank] maps a step to the plan that arrives before it. Returns [(step, switched to)]."""
    agreement = Agreement(timeout_seconds=20)
    held = active = 0
    switches = []
    for step in range(steps):
        held = max(held, arrivals[rank].get(step, 0))
        agreed = agreement.step(step, held, active)
        if agreed is not None:
            active = agreed
            switches.append((step, agreed))
    agreement.close()
    assert agreement.failures == 0
    return switches


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_switch_together_one_step_after_the_last_has_the_plan(tmp_path, world_size):
    arrivals = [{2: 1, 9: 4}, {5: 1, 8: 4}, {3: 1, 6: 4}][:world_size]
    # Plan 1 is everywhere before step 5, plan 4 before step 9.
    assert run_ranks(train, world_size, tmp_path, arrivals, 14) == [[(6, 1), (10, 4)]] * world_size


def test_a_plan_that_one_rank_skipped_is_never_switched_to(tmp_path):
    results = run_ranks(train, 2, tmp_path, [{1: 3}, {1: 5}], 8)
    assert results == [[], []]
    # The same with the newer plan arriving late on rank 0.
    (tmp_path / "again").mkdir()
    results = run_ranks(train, 2, tmp_path / "again", [{1: 3, 6: 5}, {1: 5}], 10)
    assert results == [[(7, 5)], [(7, 5)]]


def test_rounds_thin_out_on_all_ranks_alike(tmp_path):
    # Past step 32 only every fourth step starts a round: 40 does, 41 reads its result.
    results = run_ranks(train, 2, tmp_path, [{37: 1}, {38: 1}], 45)
    assert results == [[(41, 1)], [(41, 1)]]


def die(rank):
    agreement = Agreement(timeout_seconds=3)
    for step in range(4):
        agreement.step(step, held=1, active=1)
    dist.barrier()
    if rank == 1:
        os._exit(0)
    switches = [agreement.step(step, held=2, active=1) for step in range(4, 10)]
    failures = agreement.failures
    agreement.close()
    return switches, failures


def test_a_dead_rank_ends_the_agreement_and_leaves_the_plan_in_force(tmp_path):
    assert run_ranks(die, 2, tmp_path) == [([None] * 6, 1), None]


def stall(rank):
    """Rank 1 never starts a round: rank 0's wait is bounded."""
    agreement = Agreement(timeout_seconds=1)
    if rank == 0:
        agreement.step(0, held=2, active=1)
        assert agreement.step(1, held=2, active=1) is None
        assert agreement.step(2, held=2, active=1) is None
    dist.barrier()
    return agreement.failures


def test_a_rank_that_stalls_is_waited_for_within_bounds(tmp_path):
    assert run_ranks(stall, 2, tmp_path) == [1, 0]


def close_late(rank):
    agreement = Agreement()
    agreement.step(0, held=1, active=0)
    dist.destroy_process_group()
    agreement.close()
    return True


def test_closing_after_the_job_tore_down_its_groups(tmp_path):
    assert run_ranks(close_late, 2, tmp_path) == [True, True]
