"""A block whose forward is a function of a test, in a small model that trains with the tape as without."""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from unittest import mock

import pytest
import torch
from torch import nn

from tests.random_programs.train import bits, impose
from tests.training import History, keep, require_same
from tests.zoo import Stack

ROWS, WIDTH = 4, 6
STEPS = 4

AUDITED = ["nothing", "everything", "plan"]
"""What is saved: nothing, everything, or what a random plan says. Replays are audited, and what they get wrong is kept."""

WAYS = [*AUDITED, "unaudited"]
"""Beside them nothing saved and nothing audited: replays must be right by themselves."""

ways = pytest.mark.parametrize("way", WAYS)


class Block(nn.Module):
    """`body(block, x)` is its forward, of tensors of ROWS × WIDTH."""

    def __init__(self, body):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.register_buffer("cache", torch.zeros(ROWS, WIDTH))
        self.register_buffer("count", torch.tensor(0))
        self.generator = torch.Generator().manual_seed(5)
        self.body = body

    def forward(self, x):
        return self.body(self, x)


def stack(body, count=2):
    """A model of `count` such blocks, the same weights every time."""
    torch.manual_seed(0)
    return Stack(lambda: Block(body), count).train()


def hidden(step=0):
    """A leaf of ROWS × WIDTH, different at every step."""
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(step)).requires_grad_()


def backward(model, x):
    loss = model(x)
    loss.backward()
    return loss


@dataclasses.dataclass
class Trained:
    """What a test may ask after its comparison."""

    stats: dict
    passed_through: dict


def require_as_plain(attach, way: str, build: Callable[[], nn.Module], program=backward, managed=True) -> Trained:
    """Runs `program(model, x)`, which returns a loss, for some steps with the tape and without, and compares everything. `managed`
    says that the blocks run with a tape."""
    expected = _train(build(), program)
    taped = build()
    audit = {"TIDETAPE_AUDIT": "0"} if way == "unaudited" else {}
    with mock.patch.dict(os.environ, audit):
        session = attach(taped, blocks="blocks.*", memory_limit="max" if way == "everything" else "min", planner="none")
    require_same(_train(taped, program, session, planned=way == "plan"), expected)
    if managed:
        assert session.passed_through() == {}
    return Trained(session.stats(), session.passed_through())


def comparison(attach, way: str):
    """compare(body): require_as_plain of a model whose blocks have this forward, or of what `build` makes."""

    def compare(body, program=backward, managed=True, build=None):
        return require_as_plain(attach, way, build or (lambda: stack(body)), program, managed)

    return compare


def _train(model, program, session=None, planned=False) -> History:
    torch.manual_seed(3)
    history = History()
    for step in range(STEPS):
        if planned and step >= 1:
            impose(session, seed=step)
        x = hidden(step)
        with session.step() if session else contextlib.nullcontext():
            loss = program(model, x)
            keep(history, model, loss)
            history.gradients[-1]["input"] = bits(x.grad)
        model.zero_grad()
    return history
