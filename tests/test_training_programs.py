"""What training programs do besides forward, backward and step: with the tape as without."""

import pytest
import torch
from torch import nn

from tests.processes import run_program
from tests.training import History, keep, require_same, train
from tests.zoo import Stack, residual_input, residual_stack

limits = pytest.mark.parametrize("limit", ["min", "max"])


@pytest.fixture(params=["min", "max"])
def pair(request, attach):
    """(a model with the tape, its session, the same model without)."""
    taped = residual_stack()
    session = attach(taped, memory_limit=request.param, planner="none")
    return taped, session, residual_stack()


def _backward(model, x=None):
    loss = model(residual_input() if x is None else x)
    loss.backward()
    return loss


def _history(model, loss):
    history = History()
    keep(history, model, loss)
    return history


def _on_both(pair, program):
    """Runs `program(model)` (returns a loss) on both models from the same seed and compares what it leaves."""
    taped, session, plain = pair
    torch.manual_seed(3)
    expected = _history(plain, program(plain))
    torch.manual_seed(3)
    with session.step():
        loss = program(taped)
    require_same(_history(taped, loss), expected)


def test_running_statistics_are_updated_once(pair):
    taped, _, plain = pair
    for _ in range(3):
        _on_both(pair, _backward)
    assert taped.blocks[0].normalise.num_batches_tracked == 3
    assert torch.equal(taped.blocks[0].normalise.running_mean, plain.blocks[0].normalise.running_mean)


def test_gradients_accumulate(pair):
    def program(model):
        for scale in (1.0, 2.0, 0.5):
            loss = _backward(model, residual_input() * scale)
        return loss

    _on_both(pair, program)


def test_two_forwards_before_one_backward(pair):
    def program(model):
        loss = model(residual_input()) + model(residual_input() * 2)
        loss.backward()
        return loss

    _on_both(pair, program)


def test_backwards_in_the_order_of_their_forwards(pair):
    def program(model):
        losses = [model(residual_input() * scale) for scale in (1, 2, 3)]
        for loss in losses:
            loss.backward()
        return losses[-1]

    _on_both(pair, program)


def test_evaluation_between_forward_and_backward(pair):
    def program(model):
        loss = model(residual_input())
        model.eval()
        with torch.no_grad():
            model(residual_input() * 5)
        model.train()
        loss.backward()
        return loss

    _on_both(pair, program)


def test_no_grad_forward_in_training_mode(pair):
    def program(model):
        with torch.no_grad():
            model(residual_input() * 2)
        return _backward(model)

    _on_both(pair, program)


def test_inference_mode_between_steps(pair):
    def program(model):
        with torch.inference_mode():
            model(residual_input() * 2)
        return _backward(model)

    _on_both(pair, program)


def test_exception_in_a_block_leaves_training_as_it_was(pair):
    def program(model):
        def fail(module, arguments):
            raise RuntimeError("out of luck")

        hook = model.blocks[1].gather.register_forward_pre_hook(fail)
        with pytest.raises(RuntimeError, match="out of luck"):
            model(residual_input())
        hook.remove()
        return _backward(model)

    _on_both(pair, program)
    _on_both(pair, program)


def test_exception_in_backward_leaves_training_as_it_was(pair):
    def program(model):
        def fail(gradient):
            raise RuntimeError("out of luck")

        x = residual_input().requires_grad_()
        hidden = model.blocks[1](model.blocks[0](x))
        hook = hidden.register_hook(fail)
        with pytest.raises(RuntimeError, match="out of luck"):
            model.blocks[2](hidden).sum().backward()
        hook.remove()
        model.zero_grad()
        return _backward(model)

    _on_both(pair, program)


def test_abandoned_graphs(pair):
    def program(model):
        model(residual_input())
        kept = model(residual_input() * 2)
        del kept
        return _backward(model)

    _on_both(pair, program)


def test_retained_graph_is_read_twice(pair):
    def program(model):
        loss = model(residual_input())
        loss.backward(retain_graph=True)
        loss.backward()
        return loss

    _on_both(pair, program)


def test_gradients_of_inputs_before_those_of_weights(pair):
    def program(model):
        x = residual_input().requires_grad_()
        loss = model(x)
        (of_input,) = torch.autograd.grad(loss, x, retain_graph=True)
        loss.backward()
        return of_input.sum() + x.grad.sum()

    _on_both(pair, program)


def test_gradients_of_some_weights_only(pair):
    def program(model):
        for parameter in model.blocks[1].parameters():
            parameter.requires_grad_(False)
        loss = _backward(model)
        for parameter in model.parameters():
            parameter.requires_grad_(True)
        return loss

    _on_both(pair, program)


def test_backward_reads_nothing_after_it_was_freed(pair):
    for model in (pair[0], pair[2]):
        loss = _backward(model)
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_a_parameter_changed_before_its_backward_is_refused(pair):
    for model in (pair[0], pair[2]):
        loss = model(residual_input())
        with torch.no_grad():
            model.blocks[1].gather.weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@limits
def test_an_intermediate_changed_before_its_backward_is_refused(attach, limit):
    class Exposing(nn.Module):
        def forward(self, x):
            self.hidden = x.exp()
            return self.hidden * 2

    taped = Stack(Exposing)
    attach(taped, blocks="blocks.*", memory_limit=limit, planner="none")
    for model in (taped, Stack(Exposing)):
        loss = model(torch.ones(3, requires_grad=True))
        with torch.no_grad():
            model.blocks[1].hidden.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_autocast(pair):
    def program(model):
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(residual_input())
        loss.backward()
        return loss

    _on_both(pair, program)


def test_detach_leaves_the_model_as_it_was(pair):
    taped, session, plain = pair
    names, keys = [name for name, _ in taped.named_modules()], list(taped.state_dict())
    assert names == [name for name, _ in plain.named_modules()]
    assert keys == list(plain.state_dict())
    session.detach()
    assert [vars(module).keys() for module in taped.modules()] == [vars(module).keys() for module in plain.modules()]
    torch.manual_seed(3)
    expected = _history(plain, _backward(plain))
    torch.manual_seed(3)
    require_same(_history(taped, _backward(taped)), expected)


def test_training_goes_on_after_detach_between_forward_and_backward(pair):
    taped, session, plain = pair
    torch.manual_seed(3)
    expected = _history(plain, _backward(plain))
    torch.manual_seed(3)
    loss = taped(residual_input())
    session.detach()
    loss.backward()
    require_same(_history(taped, loss), expected)


@limits
def test_blocks_without_any_saved_tensor(attach, limit):
    class Double(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(4))

        def forward(self, x):
            return x + self.bias

    def build():
        return Stack(Double)

    inputs = {"x": torch.ones(2, 4)}
    taped = build()
    session = attach(taped, blocks="blocks.*", memory_limit=limit)
    require_same(train(taped, lambda step: inputs, 3, session), train(build(), lambda step: inputs, 3))


def test_no_cycle_keeps_a_step_alive():
    """Whatever a step allocates is gone with its loss, garbage collector or not. In a process of its own: what other tests have
    compiled becomes garbage when it wants to."""
    program = """
        import gc

        import tidetape
        from tests.zoo import residual_input, residual_stack

        model = residual_stack()
        session = tidetape.attach(model, memory_limit="min", planner="none")
        for step in range(2):
            gc.collect()
            gc.disable()
            with session.step():
                model(residual_input()).backward()
            assert step == 0 or gc.collect() == 0
    """
    done = run_program(program)
    assert done.returncode == 0, done.stderr
