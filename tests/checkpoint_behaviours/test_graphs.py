"""Graphs of attached blocks: gradients of gradients, backwards inside backwards, several threads, and modes."""

import threading
import traceback

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import register_multi_grad_hook
from torch.utils._python_dispatch import TorchDispatchMode
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
    """attached(body): a model with nothing saved, and its session."""

    def make(body, count=2):
        model = stack(body, count)
        return model, attach(model, blocks="blocks.*", memory_limit="min", planner="none")

    return make


def _body(block, x):
    return F.dropout(block.linear(x).exp().clamp(max=3), 0.2) * x.sin()


# --- gradients of gradients ----------------------------------------------------------------------------------------------------


def _gradient_of(function):
    """x -> the gradient of the sum of function(x), with a graph."""

    def gradient(x):
        return torch.autograd.grad(function(x).sum(), x, create_graph=True)[0]

    return gradient


def _checkpointed(function):
    return lambda x: checkpoint(function, x, use_reentrant=False)


_NESTINGS = {
    "first": lambda f: _gradient_of(f),
    "second": lambda f: _gradient_of(_gradient_of(f)),
    "third": lambda f: _gradient_of(_gradient_of(_gradient_of(f))),
    "of a checkpoint": lambda f: _gradient_of(_checkpointed(f)),
    "of a checkpoint of a first": lambda f: _gradient_of(_checkpointed(_gradient_of(f))),
    "checkpoint of a second of a checkpoint": lambda f: _checkpointed(_gradient_of(_gradient_of(_checkpointed(f)))),
    "of two checkpoints in a row": lambda f: _gradient_of(lambda x: _checkpointed(torch.cos)(_checkpointed(f)(x))),
}


@pytest.mark.parametrize("nesting", _NESTINGS.values(), ids=_NESTINGS)
def test_derivatives_taken_inside_a_block(same, nesting):
    def body(block, x):
        return nesting(lambda y: block.linear(y.sin()).exp().tanh())(x * 1) + x

    same(body)


def test_gradients_of_something_else_inside_a_block(same):
    """A block that takes gradients which its output does not depend on."""

    def body(block, x):
        left, right = x.sin().exp().sum(), block.linear(x).cos().sum()
        torch.autograd.grad(left, x)
        torch.autograd.grad(right, x)
        return block.linear(x).sin()

    same(body)


@pytest.mark.parametrize("order", [2, 3])
def test_derivatives_of_the_whole_model(same, order):
    def program(model, x):
        loss = total = model(x)
        for _ in range(order - 1):
            (gradient,) = torch.autograd.grad(total, x, create_graph=True)
            total = gradient.square().sum()
            loss = loss + total
        loss.backward()
        return loss

    same(lambda block, x: block.linear(x).tanh() * x.sin(), program)


def test_a_module_hook_and_a_gradient_of_a_gradient(same):
    def program(model, x):
        calls = []
        handles = [block.register_full_backward_hook(lambda *_: calls.append(1)) for block in model.blocks]
        loss = model(x)
        (of_input,) = torch.autograd.grad(loss, x, create_graph=True)
        assert len(calls) == 2
        loss = loss + of_input.square().sum()
        loss.backward()
        for handle in handles:
            handle.remove()
        return loss * len(calls)

    same(lambda block, x: block.linear(x).tanh() * x.sin(), program)


# --- backwards inside and beside backwards -------------------------------------------------------------------------------------


def test_a_hook_that_runs_backward_again(same):
    def body(block, x):
        h = block.linear(x).sin().cos()
        result = h.sin() * h
        handle = h.register_hook(lambda gradient: gradient.tanh())
        result.grad_fn.register_hook(lambda *_: handle.remove() or h.backward(torch.ones_like(h), retain_graph=True))
        return result

    def program(model, x):
        loss = model(x)
        loss.backward(retain_graph=True)
        return loss

    same(body, program)


def test_a_hook_on_a_node_is_called_once(attached):
    calls = []
    model, _ = attached(lambda block, x: block.linear(x).sin().cos().sin(), 1)
    h = model.blocks[0](hidden())
    h.grad_fn.next_functions[0][0].register_hook(lambda *_: calls.append(1))
    h.sum().backward()
    assert calls == [1]


def test_a_hook_on_a_weight_used_inside_and_outside_is_called_once(attached):
    calls = []
    model, _ = attached(_body)
    weight = model.blocks[0].linear.weight
    weight.register_hook(lambda gradient: calls.append(1))
    model(hidden() @ weight).backward()
    assert calls == [1]


@pytest.mark.parametrize("mode", ["all", "any"])
def test_hooks_on_several_tensors(same, mode):
    def program(model, x):
        seen = []

        def note(gradients):
            first = gradients[0] if mode == "all" else gradients
            seen.append(first.sum().item())

        h = model.blocks[0](x)
        result = model.blocks[1](h)
        handle = register_multi_grad_hook((h, x, model.blocks[1].linear.weight), note, mode=mode)
        loss = result.square().sum()
        loss.backward()
        handle.remove()
        assert len(seen) == 1
        return loss + seen[0]

    same(lambda block, x: block.linear(x).tanh() * x.sin(), program)


def test_two_passes_over_parts_of_a_block(attached):
    """Each part of a graph in its own pass: what the first pass replayed is not replayed for the second one."""

    def replayed_ops(two_passes):
        parts = []

        def body(block, x):
            middle = block.linear(x).sin().cos()
            parts[:] = middle, middle.sin().cos()
            return parts[1]

        model, session = attached(body, 1)
        x = hidden()
        for _ in range(2):
            with session.step():
                model.blocks[0](x)
                middle, result = parts
                if two_passes:
                    (of_middle,) = torch.autograd.grad(result, middle, torch.ones_like(result))
                    (of_input,) = torch.autograd.grad(middle, x, of_middle)
                else:
                    (of_input,) = torch.autograd.grad(result, x, torch.ones_like(result))
                del middle, result
                parts.clear()
        session.detach()
        return session.stats()["replayed_ops"], of_input

    (once, expected), (twice, got) = replayed_ops(False), replayed_ops(True)
    assert torch.equal(got, expected)
    assert twice == once


class ChangesMode(torch.autograd.Function):
    """Its backward runs a graph of its own in another mode, and must find the mode as it was."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        before = torch.is_grad_enabled()
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            (of_inner,) = torch.autograd.grad(inner**3, inner, gradient)
            assert torch.is_grad_enabled()
        assert torch.is_grad_enabled() == before
        return gradient * x.cos() + of_inner * 0


@pytest.mark.parametrize("create_graph", [False, True])
def test_the_mode_of_a_backward_inside_a_backward(same, create_graph):
    def program(model, x):
        loss = model(x)
        gradients = torch.autograd.grad(loss, [x, model.blocks[0].linear.weight], create_graph=create_graph)
        for tensor, gradient in zip((x, model.blocks[0].linear.weight), gradients, strict=True):
            tensor.grad = gradient.detach()
        return loss

    same(lambda block, x: ChangesMode.apply(block.linear(x).tanh()) * x, program)


def test_backwards_nested_many_levels_deep(same):
    """Deeper than one thread's stack would hold."""

    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, depth):
            ctx.depth = depth
            ctx.save_for_backward(x)
            return x.tanh()

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            if ctx.depth > 0:
                with torch.enable_grad():
                    Nested.apply(x.detach().requires_grad_(), ctx.depth - 1).sum().backward()
            return gradient * (1 - x.tanh().square()), None

    same(lambda block, x: Nested.apply(block.linear(x), 150) * x)


def test_an_error_of_a_custom_backward_keeps_its_traceback(attached):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise ValueError("no gradient today")

    model, _ = attached(lambda block, x: Fails.apply(block.linear(x).exp()))
    with pytest.raises(ValueError, match="no gradient today") as caught:
        backward(model, hidden())
    assert 'raise ValueError("no gradient today")' in "".join(traceback.format_tb(caught.tb))


def test_a_graph_that_fails_halfway_is_let_go(attached):
    """One branch is refused while a function written in Python waits in the other."""

    class Copies(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    def body(block, x):
        right = Copies.apply(block.linear(x))
        left = x.clone()
        squared = left**2
        left += 1
        return squared + right

    model, _ = attached(body, 1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        model.blocks[0](hidden()).sum().backward()


# --- threads -------------------------------------------------------------------------------------------------------------------

THREADS = 5


def _in_threads(function):
    errors = []

    def run():
        try:
            function()
        except RuntimeError as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_threads_that_run_one_retained_graph_backward(attached):
    def body(block, x):
        return block.linear(x).tanh() * x.sin()

    model, _ = attached(body)
    plain = stack(body)
    loss = model(hidden())
    assert _in_threads(lambda: loss.backward(retain_graph=True)) == []
    expected = plain(hidden())
    for _ in range(THREADS):
        expected.backward(retain_graph=True)
    for left, right in zip(model.parameters(), plain.parameters(), strict=True):
        assert (left.grad is None and right.grad is None) or torch.allclose(left.grad, right.grad, rtol=1e-6)


def test_threads_that_run_one_graph_backward_without_retaining_it(attached):
    """At least one gets through, and the others hear that the graph is gone."""
    model, _ = attached(lambda block, x: block.linear(x).tanh() * x.sin())
    loss = model(hidden())
    errors = _in_threads(loss.backward)
    assert len(errors) < THREADS
    assert all("retain_graph=True" in str(error) for error in errors)
    backward(model, hidden())


def test_backward_in_another_thread(same):
    def program(model, x):
        loss = model(x)
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        return loss

    same(_body, program)


# --- modes ---------------------------------------------------------------------------------------------------------------------


class _Ops(TorchDispatchMode):
    """The ops that Python's dispatch sees, in order, but for the detaching of what is saved."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op != torch.ops.aten.detach.default:
            self.seen.append(op.__name__)
        return op(*args, **(kwargs or {}))


def test_a_mode_sees_what_plain_training_shows_it(attached):
    """Replays run below it."""

    def seen(model):
        backward(model, hidden(1))  # the first forward looks at the parameters
        with _Ops() as forward:
            loss = model(hidden())
        with _Ops() as backward_pass:
            loss.backward()
        return forward.seen, backward_pass.seen

    def body(block, x):
        return block.linear(x).tanh().exp() * x.sin()

    taped, plain = seen(attached(body)[0]), seen(stack(body))
    assert taped == plain
    assert "tanh_backward.default" in plain[1]
