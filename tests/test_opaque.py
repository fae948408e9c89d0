"""Work that the dispatcher does not see, or sees wrongly: taped where it can be replayed, kept where it cannot."""

import ctypes
import functools
import subprocess
import threading

import pytest
import torch
import torch.nn.functional as F
from torch.utils.cpp_extension import include_paths, library_paths

from tests.processes import run_program
from tests.small_blocks import backward, require_as_plain, stack, ways


@pytest.fixture(params=["nothing", "everything", "plan"])
def same(request, attach):
    """same(body): blocks with this forward train as they do plainly."""

    def compare(body, program=backward, managed=True):
        return require_as_plain(attach, request.param, lambda: stack(body), program, managed)

    return compare


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


def test_a_foreign_kernel_writes_what_a_recorded_op_made(same):
    def body(block, x):
        scale = x.detach() * 2
        _copy(scale[1:], block.linear(x).detach().tanh()[1:])
        return (x * scale).sin() * scale.exp()

    same(body)


def test_work_of_another_thread(same):
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

    same(body)


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
    for way in ("nothing", "everything", "plan"):
        require_as_plain(attach, way, lambda: stack(body))
        sessions[-1].detach()
"""


@pytest.mark.parametrize(
    ("result", "returned"),
    [("torch.empty_like(x)", "result"), ("x", "ctx.mark_dirty(x) or x"), ("x.sin()", "result.cos()")],
    ids=["into an empty output", "in place", "over a recorded op's output"],
)
def test_raw_triton_launches(result, returned):
    done = run_program(TRITON.format(result=result, returned=returned), TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr


# --- ops of torch.library ------------------------------------------------------------------------------------------------------


@functools.cache
def _library():
    """A library whose ops are not checked against their schemas, as those of compiled extensions are not."""
    library = torch.library.Library("tidetape_opaque", "FRAGMENT")

    def op(schema, function):
        library.define(schema)
        library.impl(schema.partition("(")[0], function, "CPU")

    op("half(Tensor x) -> Tensor", lambda x: x / 2)
    op("half_(Tensor(a!) x) -> Tensor(a!)", lambda x: x.div_(2))
    op("parts(Tensor x, int count) -> (Tensor, Tensor[])", lambda x, count: (x.sin(), [x * n for n in range(count)]))
    op("hidden_write(Tensor x, Tensor to) -> Tensor", lambda x, to: to.copy_(x * 3).cos())
    op("drifts(Tensor x) -> Tensor", lambda x: x * drift[0])
    op("draws(Tensor x) -> Tensor", lambda x: x * torch.rand_like(x))
    return library


drift = [1.0]
"""What the op "drifts" multiplies with: state that no schema tells of."""


@pytest.fixture
def ops():
    _library()
    return torch.ops.tidetape_opaque


@torch.library.custom_op("tidetape_opaque::gate", mutates_args=())
def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sigmoid() * y


@torch.library.custom_op("tidetape_opaque::accumulate", mutates_args={"total"})
def accumulate(x: torch.Tensor, total: torch.Tensor) -> None:
    total.add_(x.mean(0, keepdim=True))


gate.register_autograd(
    lambda ctx, gradient: (gradient * ctx.saved_tensors[1] * ctx.saved_tensors[0].cos(), gradient * ctx.saved_tensors[0].sigmoid()),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def test_custom_ops(same):
    trained = same(lambda block, x: gate(block.linear(x).tanh(), x.exp().clamp(max=3)).sin())
    assert trained.stats["demoted_bytes"] == 0


def test_custom_ops_that_say_what_they_write(same):
    def body(block, x):
        h = block.linear(x)
        accumulate(h.detach(), block.cache)
        total = torch.zeros_like(x)
        accumulate(h.detach().tanh(), total)
        return h.tanh() * block.cache + x * total.exp()

    same(body)


def test_ops_of_a_library(same, ops):
    def body(block, x):
        h = block.linear(x)
        scale = ops.half(h.detach())
        ops.half_(scale)
        first, (_, second) = ops.parts(scale, 2)
        return (x * scale).tanh() * first.exp() * second.cos()

    trained = same(body)
    assert trained.stats["demoted_bytes"] == 0


def test_an_op_whose_schema_hides_a_write(same, ops):
    """What it wrote is read by backward, and what it returned is not."""

    def body(block, x):
        h = block.linear(x)
        scale = h.detach().tanh()
        result = ops.hidden_write(x.detach(), scale)
        return (h * scale).sin() + x * scale.exp() + result

    same(body)


def test_an_op_whose_schema_hides_a_write_to_a_buffer(same, ops):
    def body(block, x):
        h = block.linear(x)
        result = ops.hidden_write(block.cache + h.detach(), block.cache)
        return (h * result).sin() * block.cache.tanh()

    same(body)


def test_an_op_that_draws_and_does_not_say_so(same, ops):
    def body(block, x):
        scale = ops.draws(block.linear(x).detach())
        return (x * scale).sin() * F.dropout(x, 0.3) + ops.draws(x.detach())

    same(body)


def _drifting(block, x):
    """An op whose result depends on what was set just for it."""
    h = block.linear(x)
    drift[0] = 1.5
    scale = torch.ops.tidetape_opaque.drifts(h.detach())
    drift[0] = 1.0
    return (x * scale).sin() * h


@pytest.mark.parametrize("way", ["nothing", "plan"])
def test_an_op_that_cannot_be_reproduced_is_kept_from_the_first_step_on_and_named(attach, ops, way):
    sessions = []

    def attach_and_note(*args, **kwargs):
        sessions.append(attach(*args, **kwargs))
        return sessions[-1]

    require_as_plain(attach_and_note, way, lambda: stack(_drifting))
    named = sessions[0].demotions()
    for block in ("blocks.0", "blocks.1"):
        (label,) = [label for label in named if label.startswith(block)]
        assert "drifts" in label
        assert named[label] == 4 * 6 * 4


COMPILED_EXTENSION = """
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

at::Tensor Twice(const at::Tensor& x) { return at::mul(x, 2.0); }

at::Tensor Filled(const at::Tensor& x, at::Tensor& beside) {
  const at::Tensor result = at::empty_like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    result.mutable_data_ptr<float>()[i] = x.const_data_ptr<float>()[i] / 2;
    beside.mutable_data_ptr<float>()[i] += 1;
  }
  return result;
}

TORCH_LIBRARY(tidetape_compiled, m) {
  m.def("twice(Tensor x) -> Tensor", Twice);
  m.def("filled(Tensor x, Tensor(a!) beside) -> Tensor");
}

TORCH_LIBRARY_IMPL(tidetape_compiled, CPU, m) { m.impl("filled", Filled); }
"""


@pytest.fixture(scope="module")
def compiled_ops(tmp_path_factory):
    """Ops of a C++ extension: one that is made of other ops, and one that has a kernel of its own."""
    folder = tmp_path_factory.mktemp("extension")
    source, library = folder / "ops.cpp", folder / "ops.so"
    source.write_text(COMPILED_EXTENSION)
    command = ["c++", "-std=c++20", "-shared", "-fPIC", source, "-o", library, "-lc10", "-ltorch_cpu"]
    command += [f"-I{path}" for path in include_paths()] + [f"-L{path}" for path in library_paths()]
    subprocess.run(command, check=True)
    torch.ops.load_library(library)
    return torch.ops.tidetape_compiled


def test_ops_of_a_compiled_extension(same, compiled_ops):
    def body(block, x):
        h = block.linear(x)
        scale = compiled_ops.twice(h.detach()).tanh()
        half = compiled_ops.filled(h.detach(), scale)
        return (x * scale).sin() * half + h * half.exp()

    trained = same(body)
    assert trained.stats["demoted_bytes"] == 0


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
