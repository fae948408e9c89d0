"""Gradients over Tidetape are the ranks' own gradients, added in float32 in the documented order: to the bit, on 1 to 4 ranks (and
8, marked long), and on two hosts. The reference trains a plain copy on each rank and adds by itself."""

import sys

import pytest

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
from ranks import run_ranks


def total_in_order(everybody, rank, per_node):
    """The sum as collectives/reduce_scatter_schedule.h has it: within each node in order of ranks, then node by node from the one
    after the own round to the own."""
    nodes = []
    for first in range(0, len(everybody), per_node):
        total = everybody[first].clone()
        for other in everybody[first + 1 : first + per_node]:
            total += other
        nodes.append(total)
    own = rank // per_node
    order = [nodes[(own + 1 + step) % len(nodes)] for step in range(len(nodes))]
    total = order[0].clone()
    for other in order[1:]:
        total += other
    return total


def shard_of_mean(gradient, rank, per_node):
    """The rank's part of the ranks' float32 gradients, added in order and divided."""
    import torch
    import torch.distributed as dist

    ranks = dist.get_world_size()
    everybody = [torch.empty(gradient.shape) for _ in range(ranks)]
    dist.all_gather(everybody, gradient)
    mean = total_in_order(everybody, rank, per_node) * torch.tensor(1 / ranks, dtype=torch.float32)
    chunks = torch.chunk(mean, ranks)
    return chunks[rank] if rank < len(chunks) else mean[:0]


def same_bits(one, other):
    import torch

    return one.shape == other.shape and torch.equal(one.view(torch.int32), other.view(torch.int32))


class Agreements:
    """Counts reductions whose rows wait in the unit's slot, and those whose rows wait beside it, of all units."""

    def __init__(self, collectives):
        self.in_slot = self.beside = 0
        for unit in collectives._units:
            unit.reduction._plane = _Heard(unit.reduction._plane, self)


class _Heard:
    def __init__(self, plane, agreements):
        self._plane = plane
        self._agreements = agreements

    def __getattr__(self, name):
        return getattr(self._plane, name)

    def agree(self, notice, step):
        agreed = self._plane.agree(notice, step)
        if agreed.slot_vacated:
            self._agreements.in_slot += 1
        else:
            self._agreements.beside += 1
        return agreed


def wrong_gradients(rank, dtype_name, per_node, inner=13):
    """Names of parameters whose gradient shard differs from the reference in any bit, for fresh and for accumulated shards; how
    many units went the zero-copy way; how many reductions of the second step had their rows in slots, and how many beside them."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    import tidetape
    from tests.collectives import training
    from tests.collectives.features import shard_blocks
    from tests.collectives.shapes import Model

    torch.set_num_threads(1)
    dtype = getattr(torch, dtype_name)
    torch.manual_seed(3)
    plain = Model(inner=inner)
    torch.manual_seed(3)
    model = Model(inner=inner)
    shard_blocks(model, mp_policy=MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32))
    options = tidetape.CollectiveOptions("tide", staging_bytes=4096)
    session = tidetape.attach(model, blocks="blocks.*", memory_limit="max", planner="none", collectives=options)
    plain.to(dtype)
    wrong = []
    expected = {}
    for step in range(2):
        rows = training.batch(step, rank)
        loss = model(rows)
        agreements = Agreements(session.collectives) if step == 1 else None
        loss.backward()
        plain.zero_grad()
        plain(rows.to(dtype)).backward()
        for (name, parameter), whole in zip(model.named_parameters(), plain.parameters(), strict=True):
            own = shard_of_mean(whole.grad.float(), rank, per_node)
            expected[name] = own + expected[name] if step else own
            if not same_bits(parameter.grad.to_local(), expected[name]):
                wrong.append(f"step {step}: {name}")
    units = session.collectives.units
    session.detach()
    return wrong, len(units), (agreements.in_slot, agreements.beside)


def wrong_mixed_gradients(rank):
    """Likewise after two micro-batches, the first without sync: rank 0 uses a branch in both, the others in the second alone. There
    its gradients are fresh bfloat16 ones beside accumulated float32 ones, which stock FSDP2 refuses."""
    import torch
    import torch.distributed as dist

    import tidetape
    from tests.collectives import training
    from tests.collectives.features import MIXED, shard_blocks
    from tests.collectives.shapes import BranchingModel

    torch.set_num_threads(1)
    torch.manual_seed(3)
    plain = BranchingModel()
    torch.manual_seed(3)
    model = BranchingModel()
    shard_blocks(model, mp_policy=MIXED)
    session = tidetape.attach(model, blocks="blocks.*", memory_limit="max", planner="none", collectives="tide")
    plain.to(torch.bfloat16)
    sums = {}
    for part in range(2):
        rows = training.batch(part, rank)
        for block in (*model.blocks, *plain.blocks):
            block.used = part == 1 or rank == 0
        model.set_requires_gradient_sync(part == 1)
        model(rows).backward()
        plain.zero_grad()
        plain(rows.to(torch.bfloat16)).backward()
        for name, whole in plain.named_parameters():
            if whole.grad is not None:
                sums[name] = whole.grad.float() + sums[name] if name in sums else whole.grad.float()
    wrong = []
    for name, parameter in model.named_parameters():
        if name not in sums:
            # Used on no rank.
            wrong += [name] if parameter.grad is not None else []
        elif not same_bits(parameter.grad.to_local(), shard_of_mean(sums[name], rank, dist.get_world_size())):
            wrong.append(name)
    reasons = session.collectives.reasons
    session.detach()
    return wrong, reasons


def test_fresh_gradients_beside_accumulated_ones(tmp_path):
    for rank, (wrong, reasons) in enumerate(run_ranks(wrong_mixed_gradients, 2, tmp_path)):
        assert wrong == [], f"rank {rank}"
        assert reasons == {}


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_equal_the_sum_in_order(tmp_path, ranks, dtype):
    for rank, (wrong, units, _) in enumerate(run_ranks(wrong_gradients, ranks, tmp_path, dtype, ranks, timeout_seconds=300)):
        assert wrong == [], f"rank {rank}"
        # One rank has nothing to gather.
        assert units == (0 if ranks == 1 else 4)


@pytest.mark.parametrize("ranks", [2, 4])
def test_gradients_are_exact_where_rows_wait_in_the_slot(tmp_path, ranks):
    """Units large enough to stage in their slots, of which each rank of the host has a part; the root's is too small."""
    for rank, found in enumerate(run_ranks(wrong_gradients, ranks, tmp_path, "bfloat16", ranks, 1031, timeout_seconds=300)):
        wrong, units, (in_slot, beside) = found
        assert wrong == [], f"rank {rank}"
        assert units == 4
        assert (in_slot, beside) == (3, 1)
