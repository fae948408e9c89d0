"""FSDP2 and DDP on two gloo ranks: with the tape as without, equal to the bit on every rank."""

import hashlib
import sys

import pytest
import torch
from torch import nn

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
from ranks import run_ranks

STEPS = 3


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
        self.blocks = nn.ModuleList(Block() for _ in range(3))

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


def train(rank, how, limit):
    """Hashes of losses and gradients of all steps, and what the session says."""
    import tidetape

    torch.manual_seed(0)
    model = shard(Model(), how)
    session = None
    if limit is not None:
        session = tidetape.attach(model, blocks="blocks.*", memory_limit=limit, planner="none")
    optimizer = torch.optim.AdamW(model.parameters())
    digest = hashlib.sha256()
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
    said = (session.unmanaged, session.passed_through(), session.stats()["replayed_ops"]) if session else None
    if session:
        session.detach()
    return digest.hexdigest(), said


@pytest.mark.parametrize("how", ["ddp", "blocks", "inner units", "inner units only"])
def test_gradients_equal_plain_on_every_rank(tmp_path, how):
    results = {}
    for limit in (None, "min", "max"):
        folder = tmp_path / str(limit)
        folder.mkdir()
        results[limit] = run_ranks(train, 2, folder, how, limit)
    plain = [digest for digest, _ in results[None]]
    for limit in ("min", "max"):
        assert [digest for digest, _ in results[limit]] == plain
        for _, (unmanaged, passed_through, replayed_ops) in results[limit]:
            assert not unmanaged
            assert not passed_through
            assert (replayed_ops > 0) == (limit == "min")
