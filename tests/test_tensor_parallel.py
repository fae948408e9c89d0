"""Tensor parallel blocks and collectives inside blocks, on two gloo ranks: as without the tape, and no collective runs twice."""

import contextlib
import hashlib
import sys

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

from tests.conftest import ROOT
from tests.random_programs.train import impose
from tests.zoo import Stack

sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
from ranks import run_ranks

STEPS, WIDTH = 4, 8
WAYS = (None, "nothing", "everything", "plan")


class FeedForward(nn.Module):
    """Split by columns, then by rows: one all-reduce at its end."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x)))).tanh()


class Functional(torch.autograd.Function):
    """Sums over the ranks out of place, as compiled and distributed tensors do."""

    @staticmethod
    def forward(ctx, x):
        return collectives.wait_tensor(collectives.all_reduce(x, "sum", dist.group.WORLD))

    backward = forward


class InPlace(torch.autograd.Function):
    """Sums over the ranks by torch.distributed's own call, which writes what it is given."""

    @staticmethod
    def forward(ctx, x):
        total = x.clone()
        dist.all_reduce(total)
        return total

    backward = forward


class Reducing(FeedForward):
    """Sums over the ranks in the middle of its forward."""

    reduce = Functional

    def forward(self, x):
        h = super().forward(x)
        return self.reduce.apply(h.tanh()).sin() * h


class ReducingInPlace(Reducing):
    reduce = InPlace


class Exchanging(FeedForward):
    """Sends tokens to other ranks and back, as experts do."""

    def forward(self, x):
        split = [x.shape[0] // 2] * 2
        sent = collectives.all_to_all_single_autograd(super().forward(x), split, split, dist.group.WORLD)
        back = collectives.all_to_all_single_autograd(sent.exp().clamp(max=3), split, split, dist.group.WORLD)
        return back.sin() * x


class Distributed(FeedForward):
    """Splits its activations itself."""

    def forward(self, x):
        mesh = self.mesh
        weight = DTensor.from_local(self.up.weight, mesh, [Replicate()])
        rows = distribute_tensor(self.norm(x).detach(), mesh, [Shard(0)])
        h = (rows @ weight.t()).tanh().redistribute(mesh, [Replicate()]).to_local()
        return x + self.down(h * h.exp())


WHOLE_INPUTS = ("parallel", "distributed")
"""Of these every rank is given the same."""

BLOCKS = {
    "parallel": FeedForward,
    "sequence parallel": FeedForward,
    "reduced": Reducing,
    "reduced in place": ReducingInPlace,
    "exchanged": Exchanging,
    "distributed": Distributed,
}


def build(kind, mesh):
    torch.manual_seed(0)
    model = Stack(BLOCKS[kind], 2)
    for block in model.blocks:
        block.mesh = mesh
        if kind == "parallel":
            parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
        elif kind == "sequence parallel":
            up, down = ColwiseParallel(input_layouts=Shard(1)), RowwiseParallel(output_layouts=Shard(1))
            parallelize_module(block, mesh, {"norm": SequenceParallel(), "up": up, "down": down})
    return model


def train(rank, kind, way, mesh):
    """Hashes of what each step left, how many collectives it ran, and what the session says."""
    import tidetape

    model = build(kind, mesh)
    session = None
    if way is not None:
        limit = "max" if way == "everything" else "min"
        session = tidetape.attach(model, blocks="blocks.*", memory_limit=limit, planner="none")
    digests, ran = [], []
    for step in range(STEPS):
        torch.manual_seed(10 * step + (0 if kind in WHOLE_INPUTS else rank))
        if way == "plan" and step >= 1:
            impose(session, seed=step)
        before = dist.group.WORLD._get_sequence_number_for_group()
        x = torch.randn(2, 4, WIDTH, requires_grad=True)
        with session.step() if session else contextlib.nullcontext():
            loss = model(x)
            loss.backward()
        digests.append([_digest(tensor) for tensor in [loss, x.grad] + [p.grad for p in model.parameters()]])
        ran.append(dist.group.WORLD._get_sequence_number_for_group() - before)
        model.zero_grad()
    said = (session.passed_through(), session.stats()["replayed_ops"]) if session else None
    if session:
        session.detach()
    return digests, ran, said


def train_in_all_ways(rank, kind):
    mesh = init_device_mesh("cpu", (2,))
    return [train(rank, kind, way, mesh) for way in WAYS]


def _digest(tensor):
    if tensor is None:
        return None
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return hashlib.sha256(local.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes()).hexdigest()


@pytest.mark.parametrize("kind", BLOCKS)
def test_ranks_train_as_they_do_plainly(tmp_path, kind):
    for plain, *taped in run_ranks(train_in_all_ways, 2, tmp_path, kind):
        digests, ran, _ = plain
        assert min(ran) > 0
        for way, (taped_digests, taped_ran, (passed_through, replayed_ops)) in zip(WAYS[1:], taped, strict=True):
            assert taped_digests == digests, way
            assert taped_ran == ran, way
            assert not passed_through, way
            assert (replayed_ops > 0) == (way != "everything"), way
