"""Gradients, whatever goes into a block and whatever comes out of it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

from tests.small_blocks import WAYS, WIDTH, backward, hidden, require_as_plain, stack
from tests.zoo import Stack


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(build, program): the model trains as it does plainly."""

    def compare(build, program=backward, managed=True):
        return require_as_plain(attach, request.param, build, program, managed)

    return compare


def _body(block, x):
    return F.dropout(block.linear(x).exp().clamp(max=3), 0.2) * x.sin()


def _of(make_block, count=2):
    torch.manual_seed(0)
    return Stack(make_block, count)


def test_a_sequential_of_modules(same):
    same(lambda: _of(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(0.2), nn.Linear(WIDTH, WIDTH))))


def test_an_input_that_needs_no_gradient(same):
    same(lambda: stack(_body), lambda model, x: backward(model, x.detach().exp().clamp(max=3)))


def test_only_a_part_of_the_weights_needs_gradients(same):
    def build():
        model = stack(_body)
        model.blocks[0].requires_grad_(False)
        model.blocks[1].linear.bias.requires_grad_(False)
        return model

    same(build)


def test_nothing_needs_a_gradient(attach):
    model = stack(_body).requires_grad_(False)
    attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    loss = model(hidden().detach())
    assert not loss.requires_grad
    with pytest.raises(RuntimeError, match="does not require grad"):
        loss.backward()


class Arguments(nn.Module):
    """Takes and gives what is no tensor, keywords and containers."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, factor, pair=None, *, name="", options=None):
        left, right = pair
        h = self.linear(x * factor + left).tanh() * right
        return {"h": h.exp(), "parts": [h[:2], (h.sin(), name)], "factor": factor, "nothing": None, "options": options}


class WithArguments(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Arguments() for _ in range(2))

    def forward(self, x):
        total = 0
        for number, block in enumerate(self.blocks):
            given = block(x, number + 0.5, pair=(x.sin(), x.cos()), name="block", options={"depth": number})
            assert given["factor"] == number + 0.5
            assert given["nothing"] is None
            assert given["options"] == {"depth": number}
            assert given["parts"][1][1] == "block"
            total = total + given["h"].sum() + given["parts"][0].square().sum() + given["parts"][1][0].mean()
            x = given["h"]
        return total


def test_arguments_and_outputs_that_are_no_tensors(same):
    def build():
        torch.manual_seed(0)
        return WithArguments()

    same(build)


class Detached(nn.Module):
    """One output without a history; it is the same tensor that another part of the graph has saved."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.seen = None

    def forward(self, x):
        h = self.linear(x)
        self.seen = h.detach()
        return h.exp() * self.seen


def test_an_output_that_is_detached(same):
    same(lambda: _of(Detached))


def test_a_weight_used_inside_a_block_and_outside(same):
    def program(model, x):
        weight = model.blocks[0].linear.weight
        loss = (model(x @ weight) + (weight @ weight).sin().sum()).tanh()
        loss.backward()
        return loss

    same(lambda: stack(_body), program)


def test_the_identity_of_outputs(attach):
    """A block that gives its input back gives back the same object."""
    model = stack(lambda block, x: x)
    attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    x = hidden()
    assert model.blocks[0](x) is x


@pytest.mark.parametrize("reentrant", [False, True], ids=["hooks", "reentrant"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_checkpoints_inside_a_block(same, depth, reentrant):
    """A user's own checkpointing, nested, inside a block that has a tape."""

    def nested(function, x, depth):
        if depth == 0:
            return function(x)
        return checkpoint(lambda y: nested(function, y.sin(), depth - 1), x, use_reentrant=reentrant)

    def body(block, x):
        return nested(lambda y: F.dropout(block.linear(y).tanh(), 0.2) * y, x * 1, depth) + x

    same(lambda: stack(body))


def test_two_checkpoints_side_by_side_inside_a_block(same):
    def body(block, x):
        left = checkpoint(lambda y: block.linear(y).exp().clamp(max=3), x, use_reentrant=False)
        right = checkpoint(lambda y: F.dropout(y.sin(), 0.3) * block.scale, left, use_reentrant=False)
        return left * right

    same(lambda: stack(body))


def test_selective_checkpointing_inside_a_block(same):
    def contexts():
        return create_selective_checkpoint_contexts([torch.ops.aten.mm.default, torch.ops.aten.addmm.default])

    def body(block, x):
        return checkpoint(lambda y: block.linear(y).sigmoid() * y, x, use_reentrant=False, context_fn=contexts)

    same(lambda: stack(body))


def test_a_sequence_of_checkpoints_around_parts_of_a_block(same):
    def body(block, x):
        return checkpoint_sequential([block.linear, nn.Tanh(), block.linear, nn.Sigmoid()], 2, x, use_reentrant=False)

    same(lambda: stack(body))


def test_a_checkpoint_around_blocks(same):
    """It packs in the blocks' place, so they run without a tape, a second time in its own replay."""

    class Around(Stack):
        def forward(self, x):
            inner = super().forward
            return checkpoint(lambda y: inner(y), x * 1, use_reentrant=False)

    def build():
        torch.manual_seed(0)
        return Around(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(0.3)), 2)

    same(build, managed=False)


def test_a_backward_inside_a_backward(same):
    """A custom function whose backward runs another graph backward."""

    class Reentrant(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                y = x.detach().requires_grad_()
                y.sin().sum().backward()
            return gradient * y.grad

    same(lambda: stack(lambda block, x: Reentrant.apply(block.linear(x).tanh()) * x))


def test_autocast_in_forward_and_not_in_backward(same):
    def program(model, x):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x)
        loss.backward()
        return loss

    same(lambda: stack(_body), program)


def test_the_gradient_of_a_graph_kept_for_another_pass(same):
    def program(model, x):
        loss = model(x)
        first = torch.autograd.grad(loss, x, retain_graph=True)[0]
        second = torch.autograd.grad(loss, x, retain_graph=True)[0]
        assert torch.equal(first, second)
        loss.backward()
        return loss

    same(lambda: stack(_body), program)
