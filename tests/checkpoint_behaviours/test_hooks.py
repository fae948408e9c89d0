"""Saved-tensor hooks of users around and inside blocks: called as often, with the same tensors, and heard when they refuse."""

import contextlib
import pathlib

import pytest
import torch
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from tests.small_blocks import WAYS, backward, hidden, require_as_plain, stack


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(body, program): blocks with this forward train in this program as they do plainly."""

    def compare(body, program=backward, managed=True):
        return require_as_plain(attach, request.param, lambda: stack(body), program, managed)

    return compare


@pytest.fixture
def attached(attach):
    """attached(body): a model with nothing saved."""

    def make(body, count=2):
        model = stack(body, count)
        attach(model, blocks="blocks.*", memory_limit="min", planner="none")
        return model

    return make


DOUBLED = {
    "undone": lambda: saved_tensors_hooks(lambda t: 2 * t, lambda t: t / 2),
    "read as packed": lambda: saved_tensors_hooks(lambda t: 2 * t, lambda t: t),
    "read doubled": lambda: saved_tensors_hooks(lambda t: t, lambda t: 2 * t),
}


@pytest.mark.parametrize("hooks", DOUBLED.values(), ids=DOUBLED)
def test_hooks_that_change_what_is_read(same, hooks):
    """Gradients are then those of the changed values, as they are plainly."""

    def body(block, x):
        h = block.linear(x).tanh()
        with hooks():
            h = (h * x).sin()
        return h * block.scale

    same(body)


def test_the_inner_one_of_two_hooks_is_used(same):
    def body(block, x):
        with saved_tensors_hooks(lambda t: 3 * t, lambda t: t):
            h = block.linear(x).tanh()
            with saved_tensors_hooks(lambda t: 5 * t, lambda t: t):
                h = h * x
            h = h.sin()
        return h.exp().clamp(max=3)

    same(body)


def test_hooks_are_called_as_often_as_plainly(attached):
    def calls(model):
        packed, unpacked = [], []

        def pack(tensor):
            packed.append(tuple(tensor.shape))
            return tensor

        def unpack(tensor):
            unpacked.append(tuple(tensor.shape))
            return tensor

        def body(block, x):
            h = block.linear(x)
            with saved_tensors_hooks(pack, unpack):
                h = h.tanh() * x
            return h.exp().clamp(max=3)

        for block in model.blocks:
            block.body = body
        loss = model(hidden())
        assert not unpacked
        loss.backward()
        return packed, unpacked

    plain, taped = calls(stack(None)), calls(attached(None))
    assert taped == plain
    assert len(plain[0]) > 0


def test_hooks_do_not_see_numbers(same):
    def refuse(_):
        raise AssertionError("a number was packed")

    def body(block, x):
        h = block.linear(x).tanh()
        with saved_tensors_hooks(refuse, refuse):
            h = h * 3
        return h.sin()

    same(body)


def test_hooks_in_a_gradient_of_a_gradient(same):
    def body(block, x):
        with saved_tensors_hooks(lambda t: 2 * t, lambda t: t):
            return (block.linear(x) ** 3).tanh() * x

    def program(model, x):
        loss = model(x)
        (of_input,) = torch.autograd.grad(loss, x, create_graph=True)
        loss = loss + of_input.square().sum()
        loss.backward()
        return loss

    same(body, program)


def test_hooks_around_the_backward_that_builds_a_graph(same):
    """They see what the first backward saves for the second, which no block has recorded."""

    def program(model, x):
        loss = model(x)
        with saved_tensors_hooks(lambda t: 2 * t, lambda t: t):
            (of_input,) = torch.autograd.grad(loss, x, create_graph=True)
        loss = loss + of_input.square().sum()
        loss.backward()
        return loss

    same(lambda block, x: block.linear(x).tanh() * x, program)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=["double", "bf16"])
def test_what_is_saved_on_the_cpu_keeps_its_dtype(same, dtype):
    def body(block, x):
        h = block.linear(x).to(dtype)
        with save_on_cpu():
            h = h.tanh() * h
            assert h.grad_fn._saved_other.dtype == dtype
        return h.to(x.dtype).sin()

    same(body)


def test_what_is_saved_on_the_cpu_keeps_its_layout(same):
    def body(block, x):
        h = block.linear(x)
        with save_on_cpu():
            mask = (h.detach() > 0).float().t().to_sparse()
            product = torch.sparse.mm(mask, x.exp())[: len(x)]
        return product.tanh() + h

    same(body)


def test_saving_on_the_cpu_and_checkpointing(same):
    """A checkpoint between values that are saved elsewhere, and such values inside a checkpoint."""

    def body(block, x):
        with save_on_cpu():
            h = block.linear(x).square()
            h = checkpoint(lambda y: y.tanh().square(), h, use_reentrant=False)
            h = h.sin()

        def inner(y):
            with save_on_cpu():
                y = y.square().tanh()
            return y.square()

        return checkpoint(inner, h, use_reentrant=False) * x

    same(body)


def test_hooks_that_write_to_disk(same, tmp_path):
    files = []

    def pack(tensor):
        files.append(tmp_path / str(len(files)))
        torch.save(tensor, files[-1])
        return files[-1]

    def unpack(file: pathlib.Path):
        return torch.load(file)

    def body(block, x):
        h = block.linear(x).tanh()
        with saved_tensors_hooks(pack, unpack):
            h = h * x.sin()
        return h.exp().clamp(max=3)

    same(body)
    assert files


def test_a_hook_that_writes_what_it_packs_is_refused(attached):
    def double(tensor):
        return tensor.mul_(2)

    def body(block, x):
        h = block.linear(x)
        with saved_tensors_hooks(double, lambda t: t):
            return h.exp()

    with pytest.raises(RuntimeError, match="pack hook is modifying its input"):
        attached(body)(hidden())


@pytest.mark.parametrize("retain", [False, True])
def test_an_error_of_an_unpacking_hook_comes_through(attached, retain):
    """The next backward of a retained graph, and the next step, are as if nothing had been."""
    refusing = True

    def unpack(tensor):
        if refusing:
            raise LookupError("cannot unpack")
        return tensor

    def body(block, x):
        h = block.linear(x).tanh()
        with saved_tensors_hooks(lambda t: t, unpack):
            h = h * x.sin()
        return h.exp().clamp(max=3)

    model, plain = attached(body), stack(body)
    loss = model(hidden())
    with pytest.raises(LookupError, match="cannot unpack"):
        loss.backward(retain_graph=retain)
    refusing = False
    model.zero_grad()
    if retain:
        loss.backward()
    else:
        backward(model, hidden())
    backward(plain, hidden())
    for left, right in zip(model.parameters(), plain.parameters(), strict=True):
        assert (left.grad is None and right.grad is None) or torch.equal(left.grad, right.grad)


def test_hooks_disabled_inside_a_block(same):
    def body(block, x):
        h = block.linear(x).tanh()
        with disable_saved_tensors_hooks("outer"), disable_saved_tensors_hooks("inner"):
            h = h * x.sin()
            with pytest.raises(RuntimeError, match="inner"), saved_tensors_hooks(lambda t: t, lambda t: t):
                pass
        assert torch._C._autograd._saved_tensors_hooks_is_enabled()
        return h.exp().clamp(max=3)

    same(body)


def test_the_tapes_own_hooks_are_no_hooks_of_the_user(same):
    """Where plain training may disable hooks, so may an attached one; where it may not, neither."""

    def body(block, x):
        with contextlib.ExitStack() as around:
            around.enter_context(saved_tensors_hooks(lambda t: t, lambda t: t))
            with pytest.raises(RuntimeError, match="no hooks here"):
                around.enter_context(disable_saved_tensors_hooks("no hooks here"))
        with disable_saved_tensors_hooks("no hooks here"):
            h = block.linear(x).exp()
        return h.clamp(max=3)

    same(body)


class SavesALeaf(torch.autograd.Function):
    """Saves what is neither its input nor its output, and would have a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.exp().clone().detach().requires_grad_())
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        (exponent,) = ctx.saved_tensors
        assert exponent.requires_grad
        return gradient * exponent.detach()


@pytest.mark.parametrize("hooked", [False, True])
def test_a_function_saves_a_leaf_of_its_own(same, hooked):
    def body(block, x):
        h = block.linear(x).tanh()
        with saved_tensors_hooks(lambda t: t, lambda t: t) if hooked else contextlib.nullcontext():
            h = SavesALeaf.apply(h)
        return h * x

    same(body)


class CountsWrites(torch.autograd.Function):
    """Writes into what it saved, and counts a version by it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            result = gradient * x.cos()
            x.add_(1)
        return result


def test_a_reader_writes_what_hooks_gave_it(same):
    """With hooks that copy, nobody else sees the write."""

    def body(block, x):
        h = block.linear(x).tanh()
        with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            inner = CountsWrites.apply(h)
        return inner * h

    same(body)


def test_a_reader_writes_what_others_read_later(same):
    """The node before has saved the same tensor: plain training refuses it, when it is its turn."""

    def body(block, x):
        return CountsWrites.apply(block.linear(x).exp().clamp(max=3).tanh())

    def program(model, x):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            model(x).backward()
        model.zero_grad()
        x.grad = None
        return torch.zeros(())

    same(body, program)


def test_hooks_on_a_field_of_a_node(attached):
    """Such a field has hooks already, as it has under anybody's saved-tensor hooks; nothing is lost by asking."""
    model, plain = attached(lambda block, x: block.linear(x).exp(), 1), stack(lambda block, x: block.linear(x).exp(), 1)
    h = model.blocks[0](hidden())
    with pytest.raises(RuntimeError, match="hooks have already been set"):
        h.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
    h.sum().backward()
    plain.blocks[0](hidden()).sum().backward()
    assert torch.equal(model.blocks[0].linear.weight.grad, plain.blocks[0].linear.weight.grad)
