"""Ops of torch.library and of C++ extensions, with right and wrong schemas: replayed where they can be, kept otherwise."""

import functools
import itertools
import subprocess

import pytest
import torch
import torch.nn.functional as F
from torch.utils.cpp_extension import include_paths, library_paths

from tests.small_blocks import ROWS, WAYS, WIDTH, backward, comparison, hidden, require_as_plain, stack


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(body): blocks with this forward train as they do plainly."""
    return comparison(attach, request.param)


def _library(*ops, name=None):
    """A library of these ops, each a schema and its function, and the ops themselves. They are not checked against their
    schemas, as those of compiled extensions are not. Without `name` it has one of its own: nothing is known of its ops yet."""
    name = name or f"tidetape_opaque_{next(numbers)}"
    library = torch.library.Library(name, "DEF")
    for schema, function in ops:
        library.define(schema)
        library.impl(schema.partition("(")[0], function, "CPU")
    return library, getattr(torch.ops, name)


numbers = itertools.count()


@pytest.fixture
def ops():
    library, ops = _library(
        ("half(Tensor x) -> Tensor", lambda x: x / 2),
        ("half_(Tensor(a!) x) -> Tensor(a!)", lambda x: x.div_(2)),
        ("parts(Tensor x, int count) -> (Tensor, Tensor[])", lambda x, count: (x.sin(), [x * n for n in range(count)])),
        ("hidden_write(Tensor x, Tensor to) -> Tensor", lambda x, to: to.copy_(x * 3).cos()),
        ("drifts(Tensor x) -> Tensor", lambda x: x * drift[0]),
        ("runs_once(Tensor x) -> Tensor", _runs_once),
        ("draws_late(Tensor x) -> Tensor", lambda x: x * (torch.rand_like(x) if drift[0] == 1.0 else drift[0])),
        ("draws(Tensor x) -> Tensor", lambda x: x * torch.rand_like(x)),
    )
    yield ops
    library._destroy()


def _runs_once(x):
    if not may_run:
        raise LookupError("what this op needs is gone")
    return x * may_run.pop()


may_run = []
"""What the op "runs_once" takes, and needs."""

drift = [1.0]
"""What the op "drifts" multiplies with: state that no schema tells of."""


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


def test_a_saved_value_is_read_as_a_hidden_write_left_it(same, ops):
    """No version tells of the write. The logarithm is replayed from what was there before it."""

    def body(block, x):
        scale = block.linear(x).sigmoid()
        before = (scale + 1).log().exp() * scale.square()
        result = ops.hidden_write(x.detach(), scale.data)
        return before * result

    same(body)


def test_what_was_read_of_a_buffer_before_a_hidden_write_is_replayed_from_what_it_was(same, ops):
    def body(block, x):
        before = (block.cache + 0.5).exp()
        result = ops.hidden_write(block.linear(x).detach(), block.cache)
        return (x * before).sin() * result + x * block.cache.tanh()

    same(body)


def test_an_op_whose_schema_hides_a_write_to_a_buffer(same, ops):
    def body(block, x):
        h = block.linear(x)
        result = ops.hidden_write(block.cache + h.detach(), block.cache)
        return (h * result).sin() * block.cache.tanh()

    same(body)


def test_an_op_that_is_defined_anew(attach, same):
    """As where the cell of a notebook runs again: the same name, with other arguments, of which one is written now."""
    name = f"tidetape_opaque_{next(numbers)}"
    library, ops = _library(("scaled(Tensor x) -> Tensor", lambda x: x / 2), name=name)
    model = stack(lambda block, x: (x * ops.scaled(block.linear(x).detach())).sin())
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    backward(model, hidden())
    session.detach()
    library._destroy()
    schema = "scaled(Tensor x, Tensor(a!) to, int times) -> Tensor"
    library, ops = _library((schema, lambda x, to, times: to.copy_(x * times).cos()), name=name)

    def body(block, x):
        scale = x.detach().tanh()
        before = scale.exp()
        result = ops.scaled(block.linear(x).detach(), scale, 3)
        return (x * scale).sin() * before * result

    same(body)
    library._destroy()


def test_an_op_that_is_gone_when_a_replay_needs_it(attach):
    library, ops = _library(("scaled(Tensor x) -> Tensor", lambda x: x / 2))
    model = stack(lambda block, x: (x * ops.scaled(block.linear(x).detach())).sin())
    attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    loss = model(hidden())
    library._destroy()
    _library(("other(Tensor x, int times) -> Tensor", lambda x, times: x * times))
    with pytest.raises(RuntimeError, match="scaled"):
        loss.backward()


def test_an_op_that_draws_and_does_not_say_so(same, ops):
    def body(block, x):
        scale = ops.draws(block.linear(x).detach())
        return (x * scale).sin() * F.dropout(x, 0.3) + ops.draws(x.detach())

    same(body)


def _drifting(ops, block, x):
    """An op whose result depends on what was set just for it."""
    h = block.linear(x)
    drift[0] = 1.5
    scale = ops.drifts(h.detach())
    drift[0] = 1.0
    return (x * scale).sin() * h


@pytest.mark.parametrize("way", ["nothing", "plan"])
def test_an_op_that_cannot_be_reproduced_is_kept_from_the_first_step_on_and_named(attach, ops, way):
    sessions = []

    def attach_and_note(*args, **kwargs):
        sessions.append(attach(*args, **kwargs))
        return sessions[-1]

    require_as_plain(attach_and_note, way, lambda: stack(functools.partial(_drifting, ops)))
    named = sessions[0].demotions()
    for block in ("blocks.0", "blocks.1"):
        (label,) = [label for label in named if label.startswith(block)]
        assert "drifts" in label
        assert named[label] == ROWS * WIDTH * 4


@pytest.mark.parametrize("way", ["nothing", "plan"])
def test_an_op_that_draws_in_its_audit_only_leaves_the_generator_alone(attach, ops, way):
    def body(block, x):
        h = block.linear(x)
        drift[0] = 1.5
        scale = ops.draws_late(h.detach())
        drift[0] = 1.0
        return (x * scale).sin() * F.dropout(h, 0.3)

    require_as_plain(attach, way, lambda: stack(body))


@pytest.mark.parametrize("way", ["nothing", "plan"])
def test_an_op_whose_replay_fails_is_kept_and_named(attach, ops, way):
    """It fails in the audit already, which ends no training."""
    sessions = []

    def attach_and_note(*args, **kwargs):
        sessions.append(attach(*args, **kwargs))
        return sessions[-1]

    def body(block, x):
        h = block.linear(x)
        may_run.append(1.5)
        scale = ops.runs_once(h.detach())
        return (x * scale).sin() * h

    require_as_plain(attach_and_note, way, lambda: stack(body))
    named = sessions[0].demotions()
    assert {label.partition(":")[0] for label in named if "runs_once" in label} == {"blocks.0", "blocks.1"}


def test_an_op_that_comes_later_is_audited_as_well(attach, ops):
    """A block whose first steps have nothing to demote."""
    turns = []

    def body(block, x):
        return _drifting(ops, block, x) if len(turns) > 2 else (block.linear(x).exp() * x).sin()

    model = stack(body, count=1)
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    for _ in range(100):
        turns.append(None)
        with session.step():
            model(hidden()).backward()
        if session.demotions():
            break
    assert len(turns) > 3
    assert [label for label in session.demotions() if "drifts" in label]


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
