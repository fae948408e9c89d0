"""What random programs are made of besides torch's own ops."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = [
    "ROWS",
    "WIDTH",
    "F",
    "KeepsOnContext",
    "MarksDirty",
    "Parts",
    "ReadsTwice",
    "SavesInput",
    "SavesOutput",
    "Stack",
    "TwoOutputs",
    "checkpoint",
    "hooked",
    "nn",
    "torch",
]

ROWS, WIDTH = 4, 6


class Parts(nn.Module):
    """A block's parameters, buffers and generator; a program gives it a forward."""

    def __init__(self, number):
        super().__init__()
        generator = torch.Generator().manual_seed(number)
        self.weight = nn.Parameter(0.4 * torch.randn(WIDTH, WIDTH, generator=generator))
        self.bias = nn.Parameter(torch.randn(WIDTH, generator=generator))
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.empty = nn.Parameter(torch.zeros(0, WIDTH))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("variance", torch.ones(WIDTH))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("cache", torch.randn(ROWS, WIDTH, generator=generator))
        self.generator = torch.Generator().manual_seed(100 + number)


class Stack(nn.Module):
    """The model around the blocks; a program names them and gives it a forward."""

    makers = ()
    shared = ()
    frozen = ()

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(make(number) for number, make in enumerate(self.makers))
        for to, source in self.shared:
            self.blocks[to].weight = self.blocks[source].weight
        for number in self.frozen:
            self.blocks[number].requires_grad_(False)


class SavesInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x.sin() * factor

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.cos() * ctx.factor, None


class SavesOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.tanh()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * (1 - y * y)


class KeepsOnContext(torch.autograd.Function):
    """Hangs an intermediate and its input on the context, past the saved-tensor hooks."""

    @staticmethod
    def forward(ctx, x):
        ctx.x = x.detach()
        ctx.inner = x.detach().exp().clamp(max=3)
        return ctx.inner * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (ctx.inner + ctx.x)


class ReadsTwice(torch.autograd.Function):
    """Reads what it saved twice, an intermediate of its own among it."""

    @staticmethod
    def forward(ctx, x, y):
        inner = torch.sigmoid(x) + 1
        ctx.save_for_backward(x, y, inner)
        return inner * y

    @staticmethod
    def backward(ctx, gradient):
        x, y, inner = ctx.saved_tensors
        of_x = gradient * y * (inner - 1) * (2 - inner)
        x, y, inner = ctx.saved_tensors
        return of_x + 0 * x, gradient * inner


class MarksDirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(0.5).cos_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return -0.5 * gradient * (1 - y * y).clamp(min=0).sqrt()


class TwoOutputs(torch.autograd.Function):
    """One output with a gradient, one without."""

    @staticmethod
    def forward(ctx, x):
        values, indices = x.sort(-1)
        ctx.save_for_backward(indices)
        ctx.mark_non_differentiable(indices)
        return values * 2, indices

    @staticmethod
    def backward(ctx, of_values, _):
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(of_values).scatter(-1, indices, 2 * of_values)


def hooked(x):
    """A value with a hook on its gradient."""
    y = 1 * x
    if y.requires_grad:
        y.register_hook(lambda gradient: 0.5 * gradient)
    return y
