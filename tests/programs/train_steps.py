"""Trains a few linear blocks for so many steps, and holds the job open until its standard input ends.

python tests/programs/train_steps.py HOST:PORT STEPS
"""

import sys

import torch
from torch import nn

import tidetape


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    session = tidetape.attach(model, memory_limit="min", planner=sys.argv[1])
    for _ in range(int(sys.argv[2])):
        with session.step():
            model(torch.randn(8, 32, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    sys.stdin.read()
    session.detach()


if __name__ == "__main__":
    main()
