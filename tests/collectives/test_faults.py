"""What goes wrong on one rank ends in an error on all of them, soon, that says where; or in stock collectives on all of them."""

import os
import signal
import sys
import time

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
from ranks import run_ranks

WAIT_SECONDS = 4.0


def _attach(model, mode="tide", **options):
    import tidetape

    options = {"wait_seconds": WAIT_SECONDS, "join_seconds": 60.0} | options
    return tidetape.attach(
        model, blocks="blocks.*", memory_limit="max", planner="none", collectives=tidetape.CollectiveOptions(mode, **options)
    )


def _model(**shape):
    import torch

    from tests.collectives.features import MIXED, shard_blocks
    from tests.collectives.shapes import Model

    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = Model(**shape)
    shard_blocks(model, mp_policy=MIXED, reshard_after_forward=False)
    return model


def _error_of(function):
    """What it raises, in words, and after how many seconds."""
    start = time.monotonic()
    try:
        function()
    except Exception as error:
        return str(error), time.monotonic() - start
    return "", time.monotonic() - start


def _apart(function):
    """Runs it between two barriers of gloo's: the ranks meet again whatever has happened to Tidetape's group."""
    import torch.distributed as dist

    dist.barrier()
    result = function()
    dist.barrier()
    return result


def disagreements(rank):
    """By case, what each rank is told."""
    from tests.collectives import training

    told = {}

    def other_model():
        session = _attach(model := _model(inner=13 + rank))
        told["other model"], _ = _error_of(lambda: model(training.batch(0, rank)))
        session.detach()

    def other_options():
        session = _attach(model := _model(), staging_bytes=(1 + rank) << 20)
        told["other options"], _ = _error_of(lambda: model(training.batch(0, rank)))
        session.detach()

    def no_memory():
        # More than any /dev/shm has, on one rank: the others must not wait for it.
        session = _attach(model := _model(), staging_bytes=1 << 45)
        told["no memory"], told["no memory seconds"] = _error_of(lambda: model(training.batch(0, rank)))
        session.detach()

    def no_memory_but_stock():
        session = _attach(model := _model(), mode="auto", staging_bytes=1 << 45)
        training.plainly(model, rank)
        told["stock instead"] = session.collectives.reasons["blocks.0"]
        session.detach()

    def other_order():
        session = _attach(model := _model())
        rows = training.batch(0, rank)
        first = model.blocks[0](rows)
        second = model.blocks[1](rows)
        loss = first.sum() + second.sum() if rank == 0 else first.sum()
        told["other order"], told["other order seconds"] = _error_of(loss.backward)
        session.detach()

    def other_factor():
        session = _attach(model := _model())
        model.blocks[2].set_gradient_divide_factor(2.0 + rank)
        loss = model(training.batch(0, rank))
        told["other factor"], _ = _error_of(loss.backward)
        session.detach()

    def late():
        session = _attach(model := _model())
        model(training.batch(0, rank)).backward()
        if rank == 1:
            time.sleep(3 * WAIT_SECONDS)
        else:
            told["late"], told["late seconds"] = _error_of(lambda: model(training.batch(1, rank)).backward())
        session.detach()

    for case in (other_model, other_options, no_memory, no_memory_but_stock, other_order, other_factor, late):
        _apart(case)
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return run_ranks(disagreements, 2, tmp_path_factory.mktemp("ranks"), timeout_seconds=300)


def test_other_models_are_named(told):
    for rank in told:
        assert "parameter 2, shape ('blocks.0' 'blocks.0.up.weight')" in rank["other model"]
        assert "'[13, 16]' on rank 0, '[14, 16]' on rank 1" in rank["other model"]


def test_other_options_are_named(told):
    for rank in told:
        assert "staging_bytes" in rank["other options"]


def test_full_memory_ends_the_start_on_all_ranks(told):
    for rank in told:
        assert "/dev/shm" in rank["no memory"]
        assert rank["no memory seconds"] < 30


def test_auto_trains_over_stock_where_memory_is_full(told):
    for rank in told:
        assert "/dev/shm" in rank["stock instead"]


def test_units_in_another_order_are_named_at_once(told):
    for number, rank in enumerate(told):
        assert "reduces the gradients of unit" in rank["other order"]
        assert f"rank {number}" in rank["other order"]
        assert rank["other order seconds"] < WAIT_SECONDS


def test_other_factors_are_named(told):
    for rank in told:
        assert "divides the gradients of unit 'blocks.2' by" in rank["other factor"]


def test_a_late_rank_is_named_at_the_deadline(told):
    assert "rank 1" in told[0]["late"]
    assert "training step" in told[0]["late"]
    assert told[0]["late seconds"] < 3 * WAIT_SECONDS


def dies(rank):
    """Rank 1 is killed in the middle of a step; the other says what it is told, and how soon."""
    from tests.collectives import training

    session = _attach(model := _model(), wait_seconds=60.0)
    training.plainly(model, rank)
    loss = model(training.batch(7, rank))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    told = _error_of(loss.backward)
    session.detach()
    return told


def test_a_killed_rank_ends_the_others_soon(tmp_path):
    (message, seconds), nothing = run_ranks(dies, 2, tmp_path)
    assert nothing is None
    assert "rank 1" in message
    assert seconds < 20
