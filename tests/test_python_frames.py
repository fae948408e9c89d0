"""No Python runs for an op, in recording or in replay: only for a block."""

import sys

import pytest
import torch
from torch import nn

from tests.zoo import Stack


class Chain(nn.Module):
    """As many ops as it is told, each of which saves a tensor, from one Python frame."""

    def __init__(self, ops):
        super().__init__()
        self.ops = ops
        self.scale = nn.Parameter(torch.full((8,), 0.9))

    def forward(self, x):
        scale = self.scale  # modules look attributes up in Python
        for _ in range(self.ops):
            x = (x * scale).sin()
        return x


def _frames(model, session):
    """Python frames entered during one step."""
    x = torch.ones(4, 8)
    frames = 0

    def count(frame, event, argument):
        nonlocal frames
        frames += event == "call"

    def step():
        model(x).backward()

    with session.step():  # what is set up once is set up
        step()
    with session.step():
        sys.setprofile(count)
        try:
            step()
        finally:
            sys.setprofile(None)
    return frames


@pytest.mark.parametrize("limit", ["min", "max"])
def test_frames_do_not_grow_with_ops(attach, limit):
    frames, replayed = [], []
    for ops in (2, 100):
        model = Stack(lambda ops=ops: Chain(ops))
        session = attach(model, blocks="blocks.*", memory_limit=limit, planner="none")
        frames.append(_frames(model, session))
        replayed.append(session.stats()["replayed_ops"])
        session.detach()
    assert frames[0] == frames[1]
    if limit == "min":
        # The frames were counted while ops were replayed: per block, all but the last sin.
        assert replayed == [3 * (2 * 2 - 1), 3 * (2 * 100 - 1)]
