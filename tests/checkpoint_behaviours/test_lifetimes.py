"""How long graphs and what they hold live."""

import collections
import contextlib
import gc
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.small_blocks import hidden, stack
from tests.test_regions import Box, Unbox


@pytest.fixture
def attached(attach):
    """attached(body): a model of one block with nothing saved."""

    def make(body):
        model = stack(body, 1)
        attach(model, blocks="blocks.*", memory_limit="min", planner="none")
        return model

    return make


class _Mark:
    """What a node's metadata hold, to see the node go."""


def _marks(root):
    marks, queue, seen = [], collections.deque([root]), {root}
    while queue:
        node = queue.popleft()
        node.metadata["mark"] = mark = _Mark()
        marks.append(weakref.ref(mark))
        del mark
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                queue.append(following)
    return marks


@contextlib.contextmanager
def _without_collector():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("limit", ["min", "max"])
@pytest.mark.parametrize("run", ["abandoned", "backward", "retained"])
def test_a_graph_goes_with_its_last_reference(attach, limit, run):
    """Every node of it, at once, without the garbage collector."""

    def body(block, x):
        inner = checkpoint(lambda y: block.linear(y).sin().exp(), x, use_reentrant=False)
        return SavesItsOutput.apply(inner.tanh()) * x

    model = stack(body)
    attach(model, blocks="blocks.*", memory_limit=limit, planner="none")
    model(hidden())  # the first checkpoint of a process imports what its frames then hang on
    with _without_collector():
        loss = model(hidden())
        marks = _marks(loss.grad_fn)
        if run != "abandoned":
            loss.backward(retain_graph=run == "retained")
        assert len(marks) > 10
        del loss
        assert [mark for mark in marks if mark() is not None] == []


class SavesItsOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        result = x.sin()
        ctx.save_for_backward(x, result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        x, _ = ctx.saved_tensors
        return gradient * x.cos()


def test_a_graph_of_other_tensors_goes_with_its_last_reference(attached):
    """Outputs that their own nodes have saved, and that no tape can describe."""
    model = attached(lambda block, x: Unbox.apply(Box.apply(block.linear(x)).exp().tanh()))
    with _without_collector():
        loss = model(hidden())
        marks = _marks(loss.grad_fn)
        assert len(marks) > 5
        del loss
        assert [mark for mark in marks if mark() is not None] == []


def test_a_written_view_that_is_saved_goes(attached):
    class Marks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    references = []

    def body(block, x):
        view = x.clone().view_as(x)
        result = Marks.apply(view)
        references.append(weakref.ref(view))
        return result.sin()

    with _without_collector():
        model = attached(body)
        model.blocks[0](hidden())
        assert references[0]() is None


def test_a_module_hook_keeps_no_graph_alive(attached):
    """With a graph built in backward, a hook may hold what leads to itself; the collector finds it."""
    model = attached(lambda block, x: block.linear(x).tanh() * x.sin())
    handle = model.blocks[0].register_full_backward_hook(lambda *_: None)
    x = hidden()
    loss = model.blocks[0](x).exp().sum()
    marks = _marks(loss.grad_fn)
    gradients = torch.autograd.grad(loss, [x, model.blocks[0].linear.weight], create_graph=True)
    del loss, gradients
    handle.remove()
    gc.collect()
    assert [mark for mark in marks if mark() is not None] == []
