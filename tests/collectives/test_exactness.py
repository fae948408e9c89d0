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


def wrong_gradients(rank, dtype_name, per_node):
    """Names of parameters whose gradient shard differs from the reference in any bit, for fresh and for accumulated shards; and how
    many units went the zero-copy way."""
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy

    import tidetape
    from tests.collectives import training
    from tests.collectives.features import shard_blocks
    from tests.collectives.shapes import Model

    torch.set_num_threads(1)
    dtype = getattr(torch, dtype_name)
    torch.manual_seed(3)
    plain = Model(inner=13)
    torch.manual_seed(3)
    model = Model(inner=13)
    shard_blocks(model, mp_policy=MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32))
    session = tidetape.attach(model, blocks="blocks.*", memory_limit="max", planner="none", collectives="tide")
    plain.to(dtype)
    ranks = dist.get_world_size()
    wrong = []
    expected = {}
    for step in range(2):
        rows = training.batch(step, rank)
        model(rows).backward()
        plain.zero_grad()
        plain(rows.to(dtype)).backward()
        for (name, parameter), whole in zip(model.named_parameters(), plain.parameters(), strict=True):
            everybody = [torch.empty(whole.shape) for _ in range(ranks)]
            dist.all_gather(everybody, whole.grad.float())
            mean = total_in_order(everybody, rank, per_node) * torch.tensor(1 / ranks, dtype=torch.float32)
            chunks = torch.chunk(mean, ranks)
            own = chunks[rank] if rank < len(chunks) else mean[:0]
            expected[name] = own + expected[name] if step else own
            shard = parameter.grad.to_local()
            if shard.shape != own.shape or not torch.equal(shard.view(torch.int32), expected[name].view(torch.int32)):
                wrong.append(f"step {step}: {name}")
    units = session.collectives.units
    session.detach()
    return wrong, len(units)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, pytest.param(8, marks=pytest.mark.long)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_equal_the_sum_in_order(tmp_path, ranks, dtype):
    for rank, (wrong, units) in enumerate(run_ranks(wrong_gradients, ranks, tmp_path, dtype, ranks, timeout_seconds=300)):
        assert wrong == [], f"rank {rank}"
        # One rank has nothing to gather.
        assert units == (0 if ranks == 1 else 4)
