"""Gradients, whatever goes into a block and whatever comes out of it."""

import dataclasses
import itertools

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


@dataclasses.dataclass(frozen=True)
class Pair:
    left: torch.Tensor
    right: torch.Tensor


class GivesPairs(nn.Module):
    """Takes and gives a dataclass, its two tensors one and the same where `same`."""

    def __init__(self, same):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.same = same

    def forward(self, pair):
        h = self.linear(pair.left).tanh() * pair.right
        return Pair(h, h if self.same else h.exp().clamp(max=3))


@pytest.mark.parametrize("one", [False, True], ids=["two tensors", "one tensor twice"])
def test_dataclasses_and_one_output_twice(same, one):
    class Model(Stack):
        def forward(self, x):
            pair = Pair(x, x.sin())
            for block in self.blocks:
                pair = block(pair)
            assert (pair.left is pair.right) == one
            return (pair.left * pair.right).square().mean()

    def build():
        torch.manual_seed(0)
        return Model(lambda: GivesPairs(one), 2)

    same(build)


def test_an_output_that_is_an_input(same):
    """One that needs no gradient, beside outputs written in place after they were made; each is run backward apart."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, x, constant, factor):
            left = self.linear(x) + x * constant
            right = x * self.linear(x) + constant
            left *= factor
            right *= factor
            return factor, left, None, True, right, "name", x, constant

    def program(model, x):
        constant = x.detach().sin()
        outputs = model.blocks[0](x * 1, constant, 3)
        assert outputs[0] == 3
        assert outputs[2] is None
        assert outputs[7] is constant
        assert not outputs[7].requires_grad
        loss = outputs[1].sum() + outputs[4].square().sum() + outputs[6].sum()
        outputs[1].sum().backward(retain_graph=True)
        outputs[4].square().sum().backward(retain_graph=True)
        outputs[6].sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            outputs[6].sum().backward()
        return loss

    same(lambda: _of(Mixed, 1), program)


def test_arguments_without_any_tensor(attach):
    """A block that is asked for numbers gives numbers."""

    class Numbers(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, a, b, scale):
            return scale, (a + b) * scale, None, "name", self.weight.exp().sum() * scale

    model = _of(Numbers, 2)
    attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    scale, number, nothing, name, loss = model.blocks[0](1.5, 2.5, 2)
    assert (scale, number, nothing, name) == (2, 8.0, None, "name")
    loss.backward()
    assert torch.equal(model.blocks[0].weight.grad, 2 * torch.ones(3).exp())


def test_a_view_of_integers_beside_an_output(same):
    class Indices(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(WIDTH, WIDTH)

        def forward(self, x, places):
            return self.linear(x).sin().cos(), places.view(-1)

    def program(model, x):
        places = torch.arange(WIDTH * 2).view(2, WIDTH) % WIDTH
        for block in model.blocks:
            x, flat = block(x, places)
            assert not flat.requires_grad
            places = flat.view(2, WIDTH)
        loss = x.gather(-1, places.repeat(2, 1)).square().mean()
        loss.backward()
        return loss

    same(lambda: _of(Indices), program)


def test_a_forward_without_gradients(same):
    """A block that switches gradients off; the loss has one around it."""

    def body(block, x):
        with torch.no_grad():
            return block.linear(block.linear(x).exp().clamp(max=3))

    def program(model, x):
        assert not model.blocks[0](x).requires_grad
        loss = (model.blocks[1](x) + x).square().sum()
        loss.backward()
        return loss

    same(lambda: stack(body), program)


@pytest.mark.parametrize("wants", [True, False], ids=["with gradients of inputs", "without"])
def test_a_block_called_many_times_before_one_backward(same, wants):
    """As where a network reads each of many inputs apart, and a loss reads them all."""

    def program(model, x):
        inputs = [(x if wants else x.detach()) * scale for scale in torch.linspace(0.1, 1, 100).tolist()]
        loss = torch.stack([model.blocks[0](each) for each in inputs]).mean()
        loss.backward()
        return loss

    same(lambda: stack(_body, 1), program)


def test_a_forward_that_differs_from_call_to_call(same):
    """Nothing runs a second time that could differ from the first."""

    def build():
        model = stack(None)
        turns = itertools.count()

        def body(block, x):
            h = block.linear(x)
            for _ in range(next(turns) % 3):
                h = h.sin().exp()
            return h.tanh() if next(turns) % 2 else h * torch.tensor([1.0, 2.0, 3.0] * 2)

        for block in model.blocks:
            block.body = body
        return model

    same(build)


def test_what_a_block_leaves_outside_of_itself(same):
    """A list that the forward appends to holds each value once, and its graph runs backward as well."""

    def program(model, x):
        kept = []

        def body(block, x):
            h = block.linear(x).sin()
            kept.append(h)
            return (h @ block.linear.weight).tanh()

        for block in model.blocks:
            block.body = body
        loss = model(x) + sum(h.square().mean() for h in kept)
        loss.backward()
        assert len(kept) == len(model.blocks)
        return loss

    same(lambda: stack(None), program)


def test_another_seed_between_forward_and_backward(same):
    def program(model, x):
        torch.manual_seed(42)
        loss = model(x)
        torch.manual_seed(41)
        loss.backward()
        return loss

    same(lambda: stack(lambda block, x: _body(block, x + torch.randn_like(x))), program)


def test_data_parallel(same):
    """Around the model, on one device."""

    def program(model, x):
        loss = nn.DataParallel(model)(x)
        loss.backward()
        return loss

    same(lambda: stack(_body), program)


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


def test_the_identity_of_what_a_function_saved(attach):
    """A leaf that was saved is the object that backward gets."""
    seen = []

    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, constant):
            ctx.save_for_backward(constant)
            return x * 1

        @staticmethod
        def backward(ctx, gradient):
            seen.extend(ctx.saved_tensors)
            return gradient, None

    constant = torch.ones(())
    model = stack(lambda block, x: Saves.apply(block.linear(x), constant), 1)
    attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    backward(model, hidden())
    assert seen[0] is constant


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
