"""Work that the dispatcher does not see, or sees wrongly: taped where it can be replayed, kept where it cannot."""

import ctypes
import threading

import pytest
import torch
import torch.nn.functional as F

from tests.processes import run_program
from tests.small_blocks import AUDITED, WAYS, comparison, require_as_plain, stack, ways


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(body): blocks with this forward train as they do plainly."""
    return comparison(attach, request.param)


@pytest.fixture(params=AUDITED)
def audited_same(request, attach):
    """The same, where only the audit finds what happens."""
    return comparison(attach, request.param)


# --- custom autograd.Functions -------------------------------------------------------------------------------------------------


class Gate(torch.autograd.Function):
    """Saves an input, an output and an intermediate."""

    @staticmethod
    def forward(ctx, x, y):
        gate = x.sigmoid()
        result = gate * y
        ctx.save_for_backward(x, gate, result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        x, gate, result = ctx.saved_tensors
        return gradient * result * (1 - gate) + x.sign() * 0, gradient * gate


class OnContext(torch.autograd.Function):
    """Hangs tensors on its context, where no hook sees them."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.x, ctx.both = x.detach(), [y.exp(), {"sine": x.sin()}]
        ctx.save_for_backward(y)
        return x.sin() * y.exp()

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        exponent, named = ctx.both
        return gradient * ctx.x.cos() * y.exp(), gradient * named["sine"] * exponent


class InPlace(torch.autograd.Function):
    """Writes its input and returns it, with an output beside it that has no gradient."""

    @staticmethod
    def forward(ctx, x):
        x.sigmoid_()
        ctx.mark_dirty(x)
        places = x.argmax(-1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(x)
        return x, places

    @staticmethod
    def backward(ctx, gradient, _):
        (x,) = ctx.saved_tensors
        return gradient * x * (1 - x)


class SetUpApart(torch.autograd.Function):
    """Saves in setup_context, what forward handed out for it."""

    @staticmethod
    def forward(x):
        inner = x.exp().clamp(max=3)
        return inner.sin(), inner

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx, of_result, of_inner):
        x, inner = ctx.saved_tensors
        return (of_result * inner.cos() + of_inner) * inner * (x.exp() <= 3)


@pytest.mark.parametrize("function", [Gate, OnContext], ids=lambda function: function.__name__)
def test_custom_functions(same, function):
    def body(block, x):
        h = block.linear(x).tanh()
        return function.apply(h, x).tanh() * function.apply(x, h * x)

    same(body)


def test_a_custom_function_that_writes_its_input(same):
    def body(block, x):
        written, places = InPlace.apply(block.linear(x) * 2)
        return written * x.gather(-1, places[:, None])

    same(body)


def test_a_custom_function_with_setup_context(same):
    def body(block, x):
        result, inner = SetUpApart.apply(block.linear(x))
        return result.tanh() * inner

    same(body)


def test_a_custom_function_recomputes_under_grad(same):
    """Functions that save their inputs and run an inner graph in backward, as hand-written checkpointing does."""

    class Recomputes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return F.gelu(x @ weight).exp().clamp(max=2)

        @staticmethod
        def backward(ctx, gradient):
            x, weight = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
            with torch.enable_grad():
                result = F.gelu(x @ weight).exp().clamp(max=2)
            return torch.autograd.grad(result, (x, weight), gradient)

    same(lambda block, x: Recomputes.apply(block.linear(x).tanh(), block.linear.weight) * x)


# --- writes that nobody announces ----------------------------------------------------------------------------------------------


def _copy(to, source):
    """Writes `to` from C, past the dispatcher, as a foreign kernel does."""
    ctypes.memmove(to.data_ptr(), source.data_ptr(), source.nbytes)


class Foreign(torch.autograd.Function):
    """A foreign kernel that fills an empty output: half of the input."""

    @staticmethod
    def forward(ctx, x):
        result = torch.empty_like(x)
        _copy(result, x.detach() / 2)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        (result,) = ctx.saved_tensors
        return gradient / 2 + result * 0


def test_a_foreign_kernel_fills_an_empty_output(same):
    trained = same(lambda block, x: Foreign.apply(block.linear(x)).exp() * x)
    assert trained.stats["demoted_bytes"] > 0


def test_a_foreign_kernel_fills_an_output_that_the_next_op_saves(same):
    def body(block, x):
        scale = torch.empty_like(x)
        _copy(scale, block.linear(x).detach().tanh())
        return (x * scale).sin() * scale.exp()

    same(body)


def test_a_foreign_kernel_writes_what_a_recorded_op_made(audited_same):
    def body(block, x):
        scale = x.detach() * 2
        _copy(scale[1:], block.linear(x).detach().tanh()[1:])
        return (x * scale).sin() * scale.exp()

    audited_same(body)


def test_work_of_another_thread(audited_same):
    """What it makes, and what it writes into a value of the block, is seen by no recording."""

    def body(block, x):
        scale = x.detach() * 2
        made = []

        def work():
            made.append(scale.tanh())
            scale.mul_(0.5)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return (block.linear(x) * scale).sin() * made[0]

    audited_same(body)


TRITON = """
    import contextlib
    import torch, triton, triton.language as tl
    import tidetape
    from tests.small_blocks import require_as_plain, stack

    @triton.jit
    def scale_kernel(source, result, count, BLOCK: tl.constexpr):
        places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = places < count
        tl.store(result + places, tl.load(source + places, mask) * 0.75 + 0.25, mask)

    def launch(source, result):
        scale_kernel[(triton.cdiv(source.numel(), 16),)](source, result, source.numel(), BLOCK=16)

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            result = {result}
            launch(x, result)
            ctx.save_for_backward(result)
            return {returned}

        @staticmethod
        def backward(ctx, gradient):
            (result,) = ctx.saved_tensors
            return gradient * 0.75 + result * 0

    def body(block, x):
        h = block.linear(x).tanh()
        return Scale.apply(h * 2).exp() * h

    sessions = []

    def attach(*args, **kwargs):
        sessions.append(tidetape.attach(*args, **kwargs))
        return sessions[-1]

    one = torch.ones(20)
    launch(one, one)
    assert torch.equal(one, torch.ones(20)), "the interpreter does not run the kernel"
    for way in {ways}:
        require_as_plain(attach, way, lambda: stack(body))
        sessions[-1].detach()
"""


@pytest.mark.parametrize(
    ("result", "returned", "ways"),
    [
        ("torch.empty_like(x)", "result", WAYS),
        # Only an audit sees that something wrote over what an op made.
        ("x", "ctx.mark_dirty(x) or x", AUDITED),
        ("x.sin()", "result.cos()", AUDITED),
    ],
    ids=["into an empty output", "in place", "over a recorded op's output"],
)
def test_raw_triton_launches(result, returned, ways):
    done = run_program(TRITON.format(result=result, returned=returned, ways=ways), TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr


# --- compiled submodules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@ways
def test_compiled_submodules(attach, way, backend):
    def build():
        torch._dynamo.reset()
        model = stack(lambda block, x: block.norm(block.linear(x).tanh()) * x.sin())
        for block in model.blocks:
            block.linear.compile(backend=backend)
            block.norm = torch.compile(block.norm, backend=backend)
        return model

    require_as_plain(attach, way, build)
