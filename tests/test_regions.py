"""Regions that change what the ops of a block are: autocast, compilation, subclasses, checkpointing, offloading, profiling."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import offload_wrapper
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from tests.small_blocks import WAYS, WIDTH, backward, hidden, require_as_plain, stack


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(body, program): blocks with this forward train in this program as they do plainly. `build` makes another model."""

    def compare(body=None, program=backward, managed=True, build=None):
        return require_as_plain(attach, request.param, build or (lambda: stack(body)), program, managed)

    return compare


def _body(block, x):
    return F.dropout(block.linear(x).tanh(), 0.2) * x.sin()


# --- autocast ------------------------------------------------------------------------------------------------------------------


def _autocast(model, x):
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(x)
    loss.backward()
    return loss


def test_autocast_around_the_model(same):
    same(lambda block, x: F.softmax(block.linear(block.norm(block.linear(x).tanh())), -1) @ block.linear.weight, _autocast)


def test_a_weight_that_autocast_has_cached_in_another_block(same):
    """The first block casts the weight; the second one, and the first one's second call, find it in the cache."""

    def build():
        model = stack(lambda block, x: block.linear(block.linear(x).tanh()) * x, count=3)
        for block in model.blocks[1:]:
            block.linear = model.blocks[0].linear
        return model

    def program(model, x):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(model.blocks[0](x)).float()
        loss.backward()
        return loss

    same(program=program, build=build)


def test_a_weight_that_autocast_has_cached_outside_of_the_blocks(same):
    def program(model, x):
        with torch.autocast("cpu", torch.bfloat16):
            outside = F.linear(x, model.blocks[1].linear.weight)
            loss = model(x) + outside.square().mean()
        loss.backward()
        return loss

    same(_body, program)


@pytest.mark.parametrize("cache", [True, False])
def test_autocast_inside_a_block(same, cache):
    def body(block, x):
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=cache):
            h = block.linear(block.linear(x).tanh())
            with torch.autocast("cpu", enabled=False):
                h = block.linear(h.float())
        return h.float() * x.sin()

    same(body)


def test_evaluation_under_autocast_between_forward_and_backward(same):
    def program(model, x):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x)
            with torch.no_grad():
                model(hidden(9))
            again = model(x.exp())
        loss = loss + again
        loss.backward()
        return loss

    same(_body, program)


def _inverts(block, x):
    """The kernel of linalg.pinv multiplies matrices. Autocast casts those, and not what pinv itself is given."""
    h = block.linear(x).float().tanh()
    return (h @ torch.linalg.pinv(h.detach())).sigmoid() @ x


def test_an_op_whose_kernel_runs_others_under_autocast(same):
    same(_inverts, _autocast)


def test_an_op_whose_kernel_runs_others_and_a_backward_under_autocast(same):
    def program(model, x):
        loss = model(x)
        with torch.autocast("cpu", torch.bfloat16):
            loss.backward()
        return loss

    same(_inverts, program)


# --- gradient mode -------------------------------------------------------------------------------------------------------------


def test_a_kernel_that_asks_for_the_gradient_mode(same):
    """oneDNN's LSTM makes a workspace for its backward where gradients are on, and none where they are off."""

    def body(block, x):
        h, _ = block.recurrent(block.linear(x).tanh())
        with torch.no_grad():
            g, _ = block.recurrent(x.exp().clamp(max=2))
        return (h * g.sin()).exp()

    def build():
        model = stack(body)
        for block in model.blocks:
            block.recurrent = torch.nn.LSTM(WIDTH, WIDTH)
        return model

    same(build=build)


# --- compilation ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_part_of_a_block_is_compiled(same, backend):
    """Inductor's kernels fill their outputs past the dispatcher."""
    torch._dynamo.reset()
    part = torch.compile(lambda h, x: (h.tanh() * x.sin()).exp().clamp(max=3), backend=backend)
    same(lambda block, x: (part(block.linear(x), x) * block.linear(x).tanh()).sin())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_part_of_a_block_is_compiled_and_breaks(same, backend):
    """A graph break inside the part: its pieces run as they are, with the eager op between them."""
    torch._dynamo.reset()

    @torch.compile(backend=backend)
    def part(h, x):
        h = h.tanh() * x
        torch._dynamo.graph_break()
        return h.exp().clamp(max=3)

    same(lambda block, x: part(block.linear(x), x.sin()) * x)


def test_a_whole_block_is_compiled(same):
    """It runs as it is, beside a block that is managed."""

    def build():
        torch._dynamo.reset()
        model = stack(_body)
        model.blocks[0].compile(backend="aot_eager")
        return model

    same(build=build)


# --- tensor subclasses ---------------------------------------------------------------------------------------------------------


class Boxed(torch.Tensor):
    """A tensor inside a tensor: every op runs on what is inside."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        inside, named = tree_map_only(cls, lambda boxed: boxed.inner, (args, kwargs or {}))
        result = tree_map_only(torch.Tensor, cls, op(*inside, **named))
        return return_and_correct_aliasing(op, args, kwargs or {}, result)


class Box(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Boxed(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.inner


class Unbox(torch.autograd.Function):
    @staticmethod
    def forward(ctx, boxed):
        return boxed.inner.clone()

    @staticmethod
    def backward(ctx, gradient):
        return Boxed(gradient)


def test_a_subclass_inside_a_block(same):
    def body(block, x):
        boxed = Box.apply(block.linear(x))
        return Unbox.apply((boxed.tanh() * boxed.exp()).clamp(max=3)) * x.sin()

    same(body)


def test_a_subclass_between_blocks(same):
    def program(model, x):
        boxed = model.blocks[1](model.blocks[0](Box.apply(x)))
        loss = Unbox.apply(boxed).square().mean()
        loss.backward()
        return loss

    same(lambda block, x: (x.tanh() * x.exp()).clamp(max=3).sin(), program)


# --- offloading ----------------------------------------------------------------------------------------------------------------


def test_an_offloaded_part_of_a_block(same):
    def build():
        model = stack(_body)
        for block in model.blocks:
            block.linear = offload_wrapper(nn.Sequential(block.linear, nn.GELU()))
        return model

    same(build=build)


def test_offloaded_blocks(same):
    def build():
        model = stack(_body)
        for place, block in enumerate(model.blocks):
            model.blocks[place] = offload_wrapper(block)
        return model

    trained = same(build=build, managed=False)
    assert trained.passed_through.keys() == {"saved-tensor hooks of the user in force"}


# --- blocks and checkpointing inside and around --------------------------------------------------------------------------------


def test_a_block_inside_a_block_is_refused(attach):
    with pytest.raises(ValueError, match=r"blocks\.1\.linear lies inside block blocks\.1"):
        attach(stack(_body), blocks=["blocks.1", "blocks.1.linear"], planner="none")


def test_a_part_of_an_attached_model_is_refused(attach):
    model = stack(_body)
    attach(model, blocks="blocks.*", planner="none")
    with pytest.raises(ValueError, match="another model is attached"):
        attach(model.blocks[0], blocks=[model.blocks[0].linear], planner="none")


def test_a_block_that_calls_another(same):
    """The inner block runs as a part of the outer one, and on its own behind it."""

    def build():
        model = stack(_body, count=3)
        outer = model.blocks[0]
        inner = (model.blocks[2],)
        outer.body = lambda block, x: inner[0](block.linear(x)).exp().clamp(max=3) * x.sin()
        return model

    trained = same(build=build, managed=False)
    assert trained.passed_through.keys() == {"inside another block"}


def _saves_products(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op == torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE


CHECKPOINTING = pytest.mark.parametrize(
    "options",
    [
        {"use_reentrant": True},
        {"use_reentrant": False},
        {"use_reentrant": False, "context_fn": lambda: create_selective_checkpoint_contexts(_saves_products)},
    ],
    ids=["reentrant", "not reentrant", "selective"],
)


@CHECKPOINTING
def test_checkpointing_inside_a_block(same, options):
    calls = [0]

    def part(block, h, x):
        calls[0] += 1
        return F.dropout(block.linear(h).exp().clamp(max=3), 0.2) * x.sin()

    def body(block, x):
        h = block.linear(x).tanh()
        return checkpoint(functools.partial(part, block), h, x, **options) * h

    def program(model, x):
        calls[0] = 0
        loss = backward(model, x)
        assert calls[0] == 2 * len(model.blocks), "it is for checkpointing to run the part again"
        return loss

    same(body, program)


@CHECKPOINTING
def test_checkpointing_around_a_block(same, options):
    def program(model, x):
        loss = model.blocks[1](checkpoint(model.blocks[0], x, **options)).square().mean()
        loss.backward()
        return loss

    same(_body, program, managed=False)


# --- profiling -----------------------------------------------------------------------------------------------------------------


def test_profiler_ops_inside_a_block(same):
    def body(block, x):
        with torch.profiler.record_function("first half"):
            h = block.linear(x).tanh()
        handle = torch.ops.profiler._record_function_enter_new("second half", None)
        h = (h * x).exp().clamp(max=3)
        torch.ops.profiler._record_function_exit._RecordFunction(handle)
        return h.sin()

    same(body)


def test_ops_that_make_nothing_are_not_recorded(attach):
    def recorded(body):
        model = stack(body, count=1)
        session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
        with session.step():
            backward(model, hidden())
        session.detach()
        return session.stats()["recorded_ops"]

    def plain(block, x):
        return block.linear(x).exp().clamp(max=3)

    def annotated(block, x):
        handle = torch.ops.profiler._record_function_enter_new("half", None)
        h = block.linear(x)
        assert h.sum(0).shape[0] == h.shape[1]
        torch.ops.profiler._record_function_exit._RecordFunction(handle)
        torch._assert_async(h.detach()[0, 0] < 1e9)
        return h.exp().clamp(max=3)

    # The sum and the comparison make values, if ones that nobody reads later.
    assert recorded(annotated) == recorded(plain) + 2


def test_a_profiled_step(same):
    def program(model, x):
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True, record_shapes=True) as profile:
            loss = backward(model, x)
        assert any(event.key == "aten::addmm" for event in profile.key_averages())
        return loss

    same(_body, program)


def test_anomaly_detection(same):
    def program(model, x):
        with torch.autograd.set_detect_anomaly(True):
            return backward(model, x)

    same(_body, program)
