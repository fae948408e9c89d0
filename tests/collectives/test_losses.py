"""Losses of some steps with AdamW are those of stock FSDP2: some steps on 2 ranks; marked long, 50 steps on 1, 2, 3, 4 and 8."""

import functools
import sys

import pytest

from tests.collectives.families import FAMILIES
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
from ranks import run_ranks

# They come again in turn.
BATCHES = 4


def losses(rank, names, steps):
    """By family, the losses of stock FSDP2 and of Tidetape, and the units that stayed FSDP2's."""
    import torch
    from torch.distributed.fsdp import fully_shard

    import tidetape
    from tests.collectives.features import MIXED
    from tests.collectives.training import quiet

    torch.set_num_threads(1)
    found = {}
    for name in names:
        family = FAMILIES[name]
        for mode in ("stock", "tide"):
            torch.manual_seed(5)
            model = family.make()
            for block in family.blocks(model):
                fully_shard(block, mp_policy=MIXED)
            fully_shard(model, mp_policy=MIXED)
            session = tidetape.attach(model, blocks=family.blocks(model), memory_limit="max", planner="none", collectives=mode)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            numbers = []
            with quiet():
                for step in range(steps):
                    loss = family.loss(model, torch.Generator().manual_seed(100 * (step % BATCHES) + rank))
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    numbers.append(loss.item())
            found[name, mode] = numbers
            if session.collectives is not None:
                found[name, "reasons"] = session.collectives.reasons
            session.detach()
    return found


def check(results, names, steps, tolerance):
    for rank, found in enumerate(results):
        for name in names:
            stock, tide = found[name, "stock"], found[name, "tide"]
            assert not found[name, "reasons"]
            assert len(tide) == steps
            assert tide == pytest.approx(stock, rel=tolerance), f"{name}, rank {rank}"
            assert sum(stock[-BATCHES:]) < sum(stock[:BATCHES]), f"{name} does not learn: the losses say nothing"


def test_losses_of_eight_steps(tmp_path):
    names = list(FAMILIES)
    # Two numbers have one sum in any order, so both runs round alike.
    check(run_ranks(losses, 2, tmp_path, names, 8, timeout_seconds=400), names, 8, tolerance=1e-6)


@pytest.fixture(scope="module")
def long_losses(tmp_path_factory):
    """By number of ranks; one start of the ranks serves all families."""

    @functools.cache
    def of(ranks):
        return run_ranks(losses, ranks, tmp_path_factory.mktemp("ranks"), list(FAMILIES), 50, timeout_seconds=3000)

    return of


@pytest.mark.long
@pytest.mark.parametrize("name", list(FAMILIES))
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_losses_of_fifty_steps(long_losses, ranks, name):
    check(long_losses(ranks), [name], 50, tolerance=0.02)
