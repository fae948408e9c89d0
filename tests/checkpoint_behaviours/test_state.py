"""What replaying costs and leaves behind: memory, modes, errors, and the world around it."""

import weakref

import pytest
import torch

import tidetape
from tests.small_blocks import backward, hidden, stack


@pytest.fixture
def attached(attach):
    """attached(body): a model with nothing saved."""

    def make(body, count=2):
        model = stack(body, count)
        return model, attach(model, blocks="blocks.*", memory_limit="min", planner="none")

    return make


def test_a_replay_runs_no_forward_again(attached):
    """Modules, hooks and functions of Python run once, in forward, in the modes of forward."""
    calls = []

    def body(block, x):
        calls.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
        return block.linear(x).exp().clamp(max=3)

    model, _ = attached(body)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(hidden())
    loss.backward()
    assert calls == [(True, True)] * 2


def test_a_replay_stops_at_the_last_value_that_is_read(attached):
    """The block's last op is not run again: nobody reads what it makes."""
    model, session = attached(lambda block, x: block.linear(x).exp() + x, count=1)
    for step in range(2):
        with session.step():
            backward(model, hidden(step))
    assert session.stats()["recorded_ops"] == 3
    # The loss's own square reads the block's output, and saves it itself.
    assert session.stats()["replayed_ops"] == 2


def test_nothing_is_replayed_where_nothing_is_read(attached):
    model, session = attached(lambda block, x: (x + 1) - block.scale, count=1)
    for step in range(2):
        with session.step():
            backward(model, hidden(step))
    assert session.stats()["replayed_ops"] == 0


def test_the_second_read_of_a_value_replays_nothing_more(attached):
    class ReadsThrice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            (first,), (second,), (third,) = ctx.saved_tensors, ctx.saved_tensors, ctx.saved_tensors
            assert torch.equal(first, second)
            assert torch.equal(first, third)
            return gradient * third.cos()

    def replayed_ops(function):
        model, session = attached(lambda block, x: function(block.linear(x).tanh()), count=1)
        with session.step():
            backward(model, hidden())
        session.detach()
        return session.stats()["replayed_ops"]

    assert replayed_ops(ReadsThrice.apply) == replayed_ops(torch.sin)


def _peak(limit, body):
    model = stack(body, 4)
    x = torch.randn(256, 6, generator=torch.Generator().manual_seed(0))
    with tidetape.attach(model, blocks="blocks.*", memory_limit=limit, planner="none") as session:
        for _ in range(2):
            with session.step():
                backward(model, x)
        return session.stats()["step_peak_bytes"]


def test_memory_is_saved(attach):
    def body(block, x):
        for _ in range(6):
            x = block.linear(x).tanh().exp().clamp(max=2)
        return x

    assert _peak("min", body) < 0.6 * _peak("max", body)


def test_values_are_freed_while_backward_runs(attach):
    """When the gradient comes to the first block, nothing that the second kept is alive any more."""

    def body(block, x):
        for _ in range(6):
            x = block.linear(x).tanh().exp().clamp(max=2)
        return x

    model = stack(body)
    attach(model, blocks="blocks.*", memory_limit="max", planner="none")
    live = tidetape._C.meter_live_bytes
    x = torch.randn(1024, 6, requires_grad=True)
    before = live()
    h = model.blocks[0](x)
    of_first_block = live() - before
    result = model.blocks[1](h)
    both = live() - before
    between = []
    h.register_hook(lambda gradient: between.append(live() - before))
    result.sum().backward()
    assert both > 1.8 * of_first_block
    assert between[0] < 1.3 * of_first_block


def test_what_only_a_replay_reads_goes_with_its_last_reader(attach):
    """A chain of ops whose results backward does not read, before one that it reads."""
    rows = 4096

    def body(block, x):
        for _ in range(20):
            x = x * 2 * 0.5
        return x.exp()

    model = stack(body, 1)
    attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    result = model.blocks[0](torch.randn(rows, 6, requires_grad=True))
    gradient = torch.ones_like(result)
    before = tidetape._C.meter_live_bytes()
    tidetape._C.meter_reset_peak()
    result.backward(gradient)
    assert tidetape._C.meter_peak_bytes() - before < 5 * gradient.nbytes


def test_a_graph_let_go_frees_what_its_blocks_kept(attach):
    model = stack(lambda block, x: block.linear(x).tanh().exp())
    attach(model, blocks="blocks.*", memory_limit="max", planner="none")
    loss = model(hidden())
    node = weakref.ref(loss)
    del loss
    assert node() is None
    backward(model, hidden())


def test_an_error_in_forward_leaves_the_next_step_clean(attached):
    def body(block, x):
        h = block.linear(x).exp()
        if x.sum() == 0:
            raise ValueError("no tokens")
        return h

    model, _ = attached(body)
    with pytest.raises(ValueError, match="no tokens"):
        model(torch.zeros(4, 6))
    plain = stack(body)
    assert torch.equal(backward(model, hidden()), backward(plain, hidden()))
    for left, right in zip(model.parameters(), plain.parameters(), strict=True):
        assert (left.grad is None and right.grad is None) or torch.equal(left.grad, right.grad)


def test_an_error_of_a_users_hook_comes_through(attached):
    def refuse(tensor):
        raise LookupError("cannot pack")

    def body(block, x):
        with torch.autograd.graph.saved_tensors_hooks(refuse, lambda kept: kept):
            return block.linear(x).exp()

    model, _ = attached(body)
    with pytest.raises(LookupError, match="cannot pack"):
        model(hidden())


def test_hooks_that_are_disabled_leave_training_alone(attached):
    model, _ = attached(lambda block, x: block.linear(x).exp())
    plain = stack(lambda block, x: block.linear(x).exp())
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        loss = model(hidden())
    loss.backward()
    assert torch.equal(loss, backward(plain, hidden()))
    assert torch.equal(model.blocks[0].linear.weight.grad, plain.blocks[0].linear.weight.grad)


def test_modes_of_the_caller_are_left_as_they_were(attached):
    model, _ = attached(lambda block, x: block.linear(x).exp())
    state = torch.get_rng_state()
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(hidden())
        assert torch.is_autocast_enabled("cpu")
    loss.backward()
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert torch.equal(torch.get_rng_state(), state)


def test_anomaly_detection_names_the_op(attached):
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * float("nan")

    model, _ = attached(lambda block, x: Fails.apply(block.linear(x)).exp())
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="FailsBackward"):
        backward(model, hidden())


def test_saved_fields_of_a_node_are_there(attached):
    """Whoever looks into the graph sees what backward would read."""
    model, _ = attached(lambda block, x: block.linear(x).exp())
    h = model.blocks[0](hidden())
    assert torch.equal(h.grad_fn._saved_result, h)
    assert torch.equal(h.grad_fn._saved_result, h)
    h.sum().backward()


def test_saved_fields_of_a_node_are_gone_with_its_backward(attached):
    model, _ = attached(lambda block, x: block.linear(x).exp())
    h = model.blocks[0](hidden())
    h.sum().backward()
    with pytest.raises(RuntimeError, match="already been freed"):
        _ = h.grad_fn._saved_result


def test_saved_fields_that_are_leaves_are_no_copies(attached):
    """As under anybody's hooks they are other objects, of the same data and with the same gradient."""
    model, _ = attached(lambda block, x: x * block.scale)
    x = hidden()
    result = model.blocks[0](x)
    saved = result.grad_fn._saved_self
    assert saved.data_ptr() == x.data_ptr()
    saved.sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))


def test_a_saved_field_counts_the_versions_of_its_tensor(attached):
    model, _ = attached(lambda block, x: block.linear(x).exp())
    h = model.blocks[0](hidden())
    saved = h.grad_fn._saved_result
    assert saved._version == h._version
    with torch.no_grad():
        h += 1
    assert saved._version == h._version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        h.sum().backward()


def test_a_saved_tensor_that_is_detached_in_place(attached):
    """Plain training refuses it, and not under anybody's hooks: a gradient goes where it would have gone without."""

    def body(block, x):
        h = block.linear(x)
        result = h.sin()
        h.detach_()
        return result

    model, _ = attached(body, 1)
    plain = stack(lambda block, x: block.linear(x).sin(), 1)
    with pytest.raises(RuntimeError, match="has been detached"):
        backward(stack(body, 1), hidden())
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        backward(stack(body, 1), hidden())
    backward(model, hidden())
    backward(plain, hidden())
    assert torch.equal(model.blocks[0].linear.weight.grad, plain.blocks[0].linear.weight.grad)


def test_what_a_plan_saves_is_not_replayed(attached):
    """Products are saved, all else is replayed: the products' own replays fall away."""

    def body(block, x):
        return (x.cos() @ block.linear.weight).sin() * 2

    model, session = attached(body, 1)
    for step in range(3):
        with session.step():
            backward(model, hidden(step))
    assert session.stats()["replayed_ops"] == 2  # cos for the product, the product for sin
    products = {site.site: "save" for site in session.sites()["blocks.0"] if site.label.startswith("aten::mm")}
    assert len(products) == 1
    session.impose({"blocks.0": products})
    with session.step():
        backward(model, hidden())
    assert session.stats()["replayed_ops"] == 1
    assert session.stats()["saved_bytes"] == 4 * 6 * 4


def test_state_of_another_model_can_be_loaded(attached):
    model, _ = attached(lambda block, x: block.linear(x).exp())
    plain = stack(lambda block, x: block.linear(x).exp())
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.add_(0.5)
    model.load_state_dict(plain.state_dict())
    assert torch.equal(backward(model, hidden()), backward(plain, hidden()))
    assert torch.equal(model.blocks[0].linear.weight.grad, plain.blocks[0].linear.weight.grad)
    plain.load_state_dict(model.state_dict())


def test_names_and_state_stay_as_they_are(attached):
    model, _ = attached(lambda block, x: block.linear(x).exp())
    plain = stack(None)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in model.named_modules()] == [name for name, _ in plain.named_modules()]
    assert [type(module) for module in model.modules()] == [type(module) for module in plain.modules()]
