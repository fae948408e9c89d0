"""With a torch that cannot be intercepted, attach says so in one line and training goes on as it is."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch
{before}
import tidetape
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()

model = nn.Module()
model.layers = nn.ModuleList([Block(), Block()])
session = tidetape.attach(model, memory_limit="min", planner="none")
with session.step():
    model.layers[1](model.layers[0](torch.ones(2, 4))).sum().backward()
assert model.layers[0].linear.weight.grad is not None
assert "forward" not in model.layers[0].__dict__
print(session.plan.generation, session.stats(), session.unmanaged["layers.0"])
session.detach()
"""


@pytest.mark.parametrize(
    ("before", "environment", "reason"),
    [
        ('torch.__version__ = "2.12.0"', {}, "torch 2.12.0 is not supported"),
        ("", {"TIDETAPE_DISABLE": "1"}, "TIDETAPE_DISABLE is set"),
    ],
    ids=["other torch", "disabled"],
)
def test_training_goes_on(before, environment, reason):
    program = [sys.executable, "-c", PROGRAM.format(before=before)]
    done = subprocess.run(program, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"0 {{}} {reason}")
    assert len([line for line in done.stderr.splitlines() if "tidetape" in line]) == 1
