"""One tensor, parameter or block that is used several times in a forward."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.small_blocks import ROWS, WIDTH, Block, require_as_plain, stack, ways


class Passing(nn.Module):
    """Blocks that hand an intermediate to the next one, which reads it and writes it where `write` says so."""

    def __init__(self, write):
        super().__init__()
        self.blocks = nn.ModuleList(Block(self._body) for _ in range(3))
        self.write = write
        self.passed = None

    def _body(self, block, x):
        h = block.linear(x)
        if self.passed is not None:
            h = h * self.passed
            if self.write:
                self.passed.detach_().add_(1)
        inner = h.view(-1)[: ROWS * WIDTH].view(ROWS, WIDTH)
        self.passed = inner.sin() + 1
        return h.exp().clamp(max=3) + self.passed

    def forward(self, x):
        self.passed = None
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


@ways
def test_a_tensor_passed_from_block_to_block(attach, way):
    def build():
        torch.manual_seed(0)
        return Passing(write=False)

    require_as_plain(attach, way, build)


@ways
def test_a_block_called_several_times_in_one_forward(attach, way):
    def program(model, x):
        first, second = model.blocks
        loss = (first(second(first(first(x)))) * second(x)).sum()
        loss.backward()
        return loss

    require_as_plain(attach, way, lambda: stack(lambda block, x: block.norm(block.linear(x).exp())), program)


@ways
def test_several_forwards_before_one_backward(attach, way):
    def program(model, x):
        loss = model(x) * model(x.exp()) + model(x * 2)
        loss.backward()
        return loss

    require_as_plain(attach, way, lambda: stack(lambda block, x: block.norm(block.linear(x).tanh())), program)


@ways
def test_one_parameter_in_several_blocks(attach, way):
    def build():
        model = stack(lambda block, x: (block.linear(x) @ block.linear.weight).tanh(), count=3)
        for block in model.blocks[1:]:
            block.linear.weight = model.blocks[0].linear.weight
        return model

    require_as_plain(attach, way, build)


class Tied(nn.Module):
    """The embedding's weights are the head's."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, WIDTH)
        self.blocks = nn.ModuleList(Block(self._body) for _ in range(2))
        self.head = nn.Linear(WIDTH, 10, bias=False)
        self.head.weight = self.embed.weight

    def _body(self, block, x):
        return block.linear(x).exp() @ self.embed.weight.t() @ self.embed.weight

    def forward(self, x):
        h = self.embed((x.detach().abs() * 4).long()[:, 0] % 10) + x
        for block in self.blocks:
            h = F.normalize(block(h))
        return self.head(h).logsumexp(-1).mean()


@ways
def test_tied_weights(attach, way):
    def build():
        torch.manual_seed(0)
        return Tied()

    require_as_plain(attach, way, build)
