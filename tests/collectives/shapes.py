"""Small models for the tests of FSDP2's collectives: every one has `blocks`, and takes a batch of rows of WIDTH numbers."""

import torch
from torch import nn

WIDTH = 16


class Block(nn.Module):
    """Two linear layers and a norm. `inner`: rows of the hidden layer; an odd number shards unevenly."""

    def __init__(self, inner=2 * WIDTH):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, inner)
        self.down = nn.Linear(inner, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Model(nn.Module):
    """Blocks, and a head that belongs to the root's own unit."""

    def __init__(self, blocks=3, inner=2 * WIDTH):
        super().__init__()
        self.blocks = nn.ModuleList(Block(inner) for _ in range(blocks))
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x).float().square().mean()


class TinyShards(Model):
    """Parameters of one to three rows: some ranks have none of them."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))
        self.shift = nn.Parameter(torch.zeros(3, WIDTH))

    def forward(self, x):
        return super().forward(x * self.scale + self.shift.sum(0))


class Tied(Model):
    """The head's weight is used twice, under two names."""

    def __init__(self):
        super().__init__()
        self.again = nn.Linear(WIDTH, 5)
        self.again.weight = self.head.weight

    def forward(self, x):
        return super().forward(x) + self.again(x).float().square().mean()


class BranchingBlock(Block):
    """`extra` runs only where `used` is set, and `nowhere` nowhere."""

    def __init__(self):
        super().__init__()
        self.extra = nn.Linear(WIDTH, WIDTH)
        self.nowhere = nn.Linear(WIDTH, WIDTH)
        self.used = True

    def forward(self, x):
        x = super().forward(x)
        return x + self.extra(x).sin() if self.used else x


class BranchingModel(Model):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(BranchingBlock() for _ in range(3))


class Experts(nn.Module):
    """All experts in one weight, as large mixtures hold them."""

    def __init__(self, experts=4):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(experts, WIDTH, WIDTH) / 8)

    def forward(self, x):
        return torch.einsum("nd,edf->nef", x, self.weight).sin().sum(1)


class ExpertBlock(Block):
    def __init__(self):
        super().__init__()
        self.experts = Experts()

    def forward(self, x):
        return self.experts(super().forward(x))


class ExpertModel(Model):
    """Blocks with a unit inside: while the inner one runs, both are unsharded."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(ExpertBlock() for _ in range(3))


class Wide(nn.Module):
    """Weights whose second dimension is long enough to be sharded directly."""

    def __init__(self, inner=2048):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(inner, inner // 64, bias=False) for _ in range(2))
        self.inner = inner

    def forward(self, x):
        x = x.repeat(1, self.inner // WIDTH)
        return sum(block(x / 8).float().square().mean() for block in self.blocks)


class Convolutions(nn.Module):
    """A small network of convolutions with group norms."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(3 if n == 0 else 7, 7, 3, padding=1, bias=False), nn.GroupNorm(7, 7), nn.GELU())
            for n in range(3)
        )
        self.head = nn.Linear(7, 5)

    def forward(self, x):
        x = x[:, :12].reshape(-1, 3, 2, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3))).float().square().mean()
