"""FSDP2 and DDP on two gloo ranks: with the tape as without, equal to the bit on every rank."""

import contextlib
import dataclasses
import hashlib
import os
import sys
from unittest import mock

import pytest
import torch
from torch import nn

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
from ranks import run_ranks

RANKS, BLOCKS, STEPS = 2, 3, 3


class Block(nn.Module):
    """Two parts, the second of which may be a unit of its own."""

    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attend = nn.Linear(width, width)
        self.experts = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attend(self.norm(x)).tanh()
        return x + self.experts(x).sigmoid()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def shard(model, how):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    if how == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        if how in ("inner units", "inner units only"):
            fully_shard(block.experts, mp_policy=policy)
        if how != "inner units only":
            fully_shard(block, mp_policy=policy)
    return fully_shard(model, mp_policy=policy)


@contextlib.contextmanager
def counted_gathers():
    """How often FSDP2 gathered parameters, in a list of one number."""
    import torch.distributed as dist

    gather, count = dist.all_gather_into_tensor, [0]

    def counting(*args, **kwargs):
        count[0] += 1
        return gather(*args, **kwargs)

    with mock.patch.object(dist, "all_gather_into_tensor", counting):
        yield count


@dataclasses.dataclass
class Trained:
    """Of one rank: hashes of losses and gradients of all steps, how often parameters were gathered, and what the session says."""

    digest: str
    gathers: int
    unmanaged: list | None = None
    passed_through: dict | None = None
    stats: dict | None = None


# Of an attached model: what is saved, and TIDETAPE_AUDIT.
WAYS = [("min", ""), ("min", "0"), ("max", "")]


def train_in_all_ways(rank, how):
    """What came of it plainly, and in each of WAYS."""
    return train(rank, how), [train(rank, how, *way) for way in WAYS]


def train(rank, how, limit=None, audit=""):
    import tidetape

    os.environ["TIDETAPE_AUDIT"] = audit
    torch.manual_seed(0)
    model = shard(Model(), how)
    session = None
    if limit is not None:
        session = tidetape.attach(model, blocks="blocks.*", memory_limit=limit, planner="none")
    optimizer = torch.optim.AdamW(model.parameters())
    digest = hashlib.sha256()
    with counted_gathers() as gathers:
        for step in range(STEPS):
            torch.manual_seed(10 * step + rank)
            loss = model(torch.randn(4, 16))
            loss.backward()
            digest.update(loss.detach().float().numpy().tobytes())
            for parameter in model.parameters():
                gradient = parameter.grad.to_local() if hasattr(parameter.grad, "to_local") else parameter.grad
                digest.update(gradient.contiguous().view(torch.uint8).numpy().tobytes())
            optimizer.step()
            optimizer.zero_grad()
    trained = Trained(digest.hexdigest(), gathers[0])
    if session:
        trained = dataclasses.replace(
            trained, unmanaged=session.unmanaged, passed_through=session.passed_through(), stats=session.stats()
        )
        session.detach()
    return trained


@pytest.mark.parametrize("how", ["ddp", "blocks", "inner units", "inner units only"])
def test_gradients_equal_plain_on_every_rank(tmp_path, how):
    for plain, taped in run_ranks(train_in_all_ways, RANKS, tmp_path, how):
        for (limit, _), trained in zip(WAYS, taped, strict=True):
            assert trained.digest == plain.digest
            assert trained.gathers == plain.gathers, "a replay must not gather parameters"
            assert not trained.unmanaged
            assert trained.passed_through == {}
            assert (trained.stats["replayed_ops"] > 0) == (limit == "min")
            # Of an inner unit, what its own products made and backward reads: one value a block, the argument of GELU.
            if limit == "min":
                assert trained.stats["demoted_ops"] == (BLOCKS if how.startswith("inner") else 0)
