"""Debug mode: schedules are proved at the start, on all ranks where one wants it, and what ranks run is what was proved."""

import sys

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
from ranks import run_ranks


def starts(rank):
    """What the ranks are told: with one that wants proof, and with one whose schedules are others."""
    import os

    import torch
    import torch.distributed as dist

    import tidetape
    from tests.collectives import training
    from tests.collectives.features import MIXED, shard_blocks
    from tests.collectives.shapes import Model

    torch.set_num_threads(1)
    told = []
    for variable, chunk_bytes in (("0", 1 << 20), (str(rank), 1 << 20), ("1", 64 << rank)):
        os.environ["TIDETAPE_VERIFY_SCHEDULES"] = variable
        torch.manual_seed(3)
        model = Model()
        shard_blocks(model, mp_policy=MIXED)
        options = tidetape.CollectiveOptions("tide", chunk_bytes=chunk_bytes, wait_seconds=20.0)
        session = tidetape.attach(model, blocks="blocks.*", memory_limit="max", planner="none", collectives=options)
        try:
            training.plainly(model, rank, steps=1)
            told.append(session.collectives.proved_schedules)
        except RuntimeError as error:
            told.append(str(error))
        session.detach()
        dist.barrier()
    return told


def test_schedules_are_proved_and_compared(tmp_path):
    results = run_ranks(starts, 2, tmp_path)
    for told, proved, other in results:
        assert told == []
        assert [line.split(":")[0] for line in proved] == ["unit root", "unit blocks.0", "unit blocks.1", "unit blocks.2"]
        assert all("all-gather" in line and "reduce-scatter" in line for line in proved)
        assert "runs schedules" in other
        assert "were proved" in other
    assert results[0][1] != results[1][1], "each rank prints the hashes of its own"
