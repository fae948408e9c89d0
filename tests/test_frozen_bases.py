"""Models of which only a part is trained: adapters on frozen weights, packed or not, behind frozen embeddings."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.small_blocks import WIDTH, Block, require_as_plain, stack, ways
from tests.zoo import Stack


class Adapter(nn.Module):
    """A frozen linear with a trained difference of low rank."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(WIDTH, 2) / 2)
        self.up = nn.Parameter(torch.randn(2, WIDTH) / 2)

    def forward(self, x):
        return self.base(x) + F.dropout(x, 0.1) @ self.down @ self.up


class FourBit(nn.Module):
    """A frozen linear whose weight is packed: two numbers of four bits a byte, and a scale for each row."""

    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.abs().amax(1, keepdim=True) / 7
        numbers = ((weight / scale).round() + 8).to(torch.uint8)
        self.register_buffer("packed", numbers[:, ::2] | numbers[:, 1::2] << 4)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", linear.bias.detach())

    def forward(self, x):
        numbers = torch.stack([self.packed & 15, self.packed >> 4], -1).flatten(1)
        return F.linear(x, (numbers.float() - 8) * self.scale, self.bias)


class Embedded(Stack):
    """Blocks behind a frozen embedding: what enters the first one has no gradient."""

    def __init__(self, make_block):
        super().__init__(make_block, count=3)
        self.embed = nn.Embedding(10, WIDTH).requires_grad_(False)

    def forward(self, x):
        return super().forward(self.embed((x.detach().abs() * 4).long()[:, 0] % 10))


def _adapted(base, make=Stack):
    def make_block():
        block = Block(lambda block, x: block.norm(block.linear(x).tanh() @ block.linear.up.t() @ block.linear.up) * x.sin())
        block.linear = Adapter(base(block.linear))
        block.norm.requires_grad_(False)
        return block

    def build():
        torch.manual_seed(0)
        return make(make_block)

    return build


@pytest.mark.parametrize("base", [lambda linear: linear, FourBit], ids=["full precision", "four bits"])
@pytest.mark.parametrize("make", [Stack, Embedded], ids=["trained input", "frozen embedding"])
@ways
def test_adapters_on_frozen_bases(attach, way, base, make):
    trained = require_as_plain(attach, way, _adapted(base, make))
    if way == "nothing":
        assert trained.stats["replayed_ops"] > 0
        assert trained.stats["saved_bytes"] == 0


@pytest.mark.parametrize("frozen", [0, 1], ids=["first", "last"])
@ways
def test_one_block_is_frozen_as_a_whole(attach, way, frozen):
    def build():
        model = stack(lambda block, x: F.dropout(block.linear(x).tanh(), 0.2) * x.sin())
        model.blocks[frozen].requires_grad_(False)
        return model

    def program(model, x):
        loss = model(x.detach())
        loss.backward()
        return loss

    require_as_plain(attach, way, build, program)


def test_only_what_a_gradient_reads_is_replayed(attach):
    """Of an adapter on a frozen base that is the product in its middle: the base's own product has no reader. The block is replayed
    although nothing that enters it has a gradient, as behind a frozen embedding."""

    def body(block, x):
        return block.linear.base(x) + x @ block.linear.down @ block.linear.up

    def make_block():
        block = Block(body)
        block.linear = Adapter(block.linear)
        return block

    torch.manual_seed(0)
    model = Stack(make_block, count=1)
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    with session.step():
        model(torch.randn(4, WIDTH)).backward()
    stats = session.stats()
    # addmm, mm, mm, add
    assert stats["recorded_ops"] == 4
    assert stats["replayed_ops"] == 1
    assert session.passed_through() == {}
