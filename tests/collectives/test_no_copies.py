"""In FSDP2's windows nothing is copied but the own shard, once, by its cast. Seen through PyTorch's profiler."""

import sys
from collections import Counter

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
from ranks import run_ranks

WINDOWS = ("FSDP::all_gather_copy_out", "FSDP::all_gather", "FSDP::post_backward_reduce")
COPIES = (
    "copy",
    "cat",
    "clone",
    "split_with_sizes_copy",
    "aten::to",
    "aten::add",
    "aten::div",
    "aten::mul",
    "contiguous",
    "fill",
    "zero",
)


def copies_of_a_step(rank, mode):
    """By window, how often each op that moves or computes on tensors ran in it, in one step; and how many own shards there are."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    import tidetape
    from tests.collectives import training
    from tests.collectives.features import MIXED, shard_blocks
    from tests.collectives.shapes import Model

    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = Model()
    shard_blocks(model, mp_policy=MIXED)
    session = tidetape.attach(model, blocks="blocks.*", memory_limit="max", planner="none", collectives=mode)
    training.plainly(model, rank, steps=1)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        model(training.batch(1, rank)).backward()
    session.detach()
    counts = {window: Counter() for window in WINDOWS}
    for event in profiled.events():
        window = _window(event)
        if window is not None and any(part in event.name for part in COPIES):
            counts[window][event.name] += 1
    shards = sum(parameter.to_local().numel() > 0 for parameter in model.parameters())
    return {window: dict(found) for window, found in counts.items()}, shards


def _window(event):
    """The innermost window around an event."""
    parent = event.cpu_parent
    while parent is not None:
        for window in WINDOWS:
            if parent.name.startswith(window):
                return window
        parent = parent.cpu_parent
    return None


@pytest.fixture(scope="module")
def profiles(tmp_path_factory):
    return {mode: run_ranks(copies_of_a_step, 2, tmp_path_factory.mktemp(mode), mode) for mode in ("stock", "tide")}


def test_one_cast_of_the_own_shard_is_left(profiles):
    for counts, shards in profiles["tide"]:
        # All units but the root's are gathered twice; the root's own two parameters stay.
        gathered = counts["FSDP::all_gather"]
        assert gathered.pop("aten::copy_") == 2 * (shards - 2) + 2
        assert gathered.keys() <= {"aten::_foreach_copy_"}
        assert counts["FSDP::all_gather_copy_out"] == {}
        assert counts["FSDP::post_backward_reduce"] == {}


def test_stock_copies_are_seen(profiles):
    """That the names above are those of FSDP2's copies."""
    for counts, _ in profiles["stock"]:
        assert "aten::split_with_sizes_copy" in counts["FSDP::all_gather_copy_out"]
        assert "aten::_chunk_cat" in counts["FSDP::post_backward_reduce"]
