"""Whoever reads what a block saved, how often and in which order: gradients are those of plain training."""

import pytest
import torch
import torch.nn.functional as F
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

from tests.random_programs.parts import ReadsTwice
from tests.small_blocks import WAYS, backward, hidden, require_as_plain, stack


def _body(block, x):
    return F.dropout(block.norm(block.linear(x)).exp().clamp(max=3), 0.2) * x.sin()


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(program): a program(model, x) that leaves gradients and returns a loss does with the tape as it does without."""

    def compare(program=backward, body=_body, managed=True):
        return require_as_plain(attach, request.param, lambda: stack(body), program, managed)

    return compare


def test_one_tensor_read_by_several_nodes(same):
    def body(block, x):
        h = block.linear(x).tanh()
        return h.exp() * h.sin() + h * h * (h @ block.linear.weight) + h.square()

    same(body=body)


def test_a_function_reads_what_it_saved_twice(same):
    same(body=lambda block, x: ReadsTwice.apply(block.linear(x), x.exp().clamp(max=3)))


class Scribbles(torch.autograd.Function):
    """Writes gradients into what it saved, without counting a version, as fused kernels do."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        result = 2 * x * gradient
        x.data.copy_(result)
        return result


def test_a_reader_that_writes_what_it_read(same):
    """It reads last, as it must in plain training."""

    def body(block, x):
        h = block.linear(x).tanh()
        return Scribbles.apply(1 * h) + x

    same(body=body)


def test_a_graph_read_twice(same):
    def program(model, x):
        loss = model(x)
        loss.backward(retain_graph=True)
        (2 * loss).backward()
        return loss

    same(program)


def test_inputs_first_and_weights_later(same):
    def program(model, x):
        loss = model(x)
        (of_input,) = torch.autograd.grad(loss, x, retain_graph=True)
        of_weights = torch.autograd.grad(loss, list(model.blocks[0].linear.parameters()), retain_graph=True)
        loss.backward()
        return loss + of_input.sum() + sum(gradient.sum() for gradient in of_weights)

    same(program)


def test_a_part_of_the_outputs(same):
    def program(model, x):
        h = model.blocks[0](x)
        left, right = model.blocks[1](h)[:2].sum(), h[2:].exp().sum()
        (of_right,) = torch.autograd.grad(right, x, retain_graph=True)
        left.backward()
        return left + of_right.sum()

    same(program)


def test_blocks_in_another_order_than_their_forwards(same):
    def program(model, x):
        first, second = (block(x) for block in model.blocks)
        first.sum().backward()
        loss = second.square().sum()
        loss.backward()
        return loss

    same(program)


def test_hooks_on_gradients(same):
    def program(model, x):
        handles = [
            block.register_full_backward_hook(lambda module, of_inputs, of_outputs: (2 * of_inputs[0],)) for block in model.blocks
        ]
        handles += [
            parameter.register_post_accumulate_grad_hook(lambda parameter: torch.nn.utils.clip_grad_value_(parameter, 0.5))
            for parameter in model.parameters()
        ]
        handles.append(x.register_hook(lambda gradient: gradient.sin()))
        loss = backward(model, x)
        for handle in handles:
            handle.remove()
        return loss

    same(program)


@pytest.mark.parametrize(
    "hooks", [save_on_cpu, lambda: saved_tensors_hooks(lambda t: t.clone(), lambda t: t)], ids=["cpu", "clone"]
)
def test_saved_tensor_hooks_around_a_block(same, hooks):
    """They see what autograd packs, as they do plainly, so that nothing is left to keep or to replay."""

    def program(model, x):
        with hooks():
            loss = model(x)
        loss.backward()
        return loss

    same(program, managed=False)


@pytest.mark.parametrize(
    "hooks", [save_on_cpu, lambda: saved_tensors_hooks(lambda t: t.clone(), lambda t: t)], ids=["cpu", "clone"]
)
def test_saved_tensor_hooks_inside_a_block(same, hooks):
    def body(block, x):
        h = block.linear(x).tanh()
        with hooks():
            inner = (h * x).exp()
        return inner.sin() * h

    same(body=body)


def test_an_early_exit(same):
    def body(block, x):
        h = block.linear(x)
        if h.sum() > 0:
            return h.tanh() * x
        return F.dropout(h.exp().clamp(max=3), 0.5)

    same(body=body)


def test_a_graph_that_never_runs_backward(same):
    def program(model, x):
        model(x * 2)
        kept = model(x)
        loss = backward(model, x)
        del kept
        return loss

    same(program)


def test_a_graph_that_never_runs_backward_is_no_part_of_the_step(attach):
    """What a step kept is what its last forward kept."""
    model = stack(_body)
    session = attach(model, blocks="blocks.*", memory_limit="max", planner="none")
    kept = []
    for abandoned in (0, 1, 2):
        with session.step():
            for _ in range(abandoned):
                model(hidden())
            backward(model, hidden())
        kept.append(session.stats()["saved_bytes"])
    assert kept[0] == kept[1] == kept[2] > 0


def test_an_exception_in_forward(same):
    def program(model, x):
        def body(block, x):
            _body(block, x)
            raise LookupError("no such expert")

        model.blocks[1].body = body
        with pytest.raises(LookupError):
            model(x)
        model.blocks[1].body = _body
        return backward(model, x)

    same(program)


def test_an_exception_in_backward(same):
    def program(model, x):
        h = model.blocks[0](x)

        def fail(gradient):
            raise LookupError("no such gradient")

        handle = h.register_hook(fail)
        loss = model.blocks[1](h).sum()
        with pytest.raises(LookupError):
            loss.backward(retain_graph=True)
        handle.remove()
        model.zero_grad()
        loss.backward()
        return loss

    same(program)


def test_evaluation_passes_between(same):
    def program(model, x):
        loss = model(x)
        model.eval()
        with torch.no_grad():
            model(x * 3)
        with torch.inference_mode():
            model(hidden(9))
        model(x * 2)
        model.train()
        loss.backward()
        return loss

    same(program)


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_a_pass_without_gradients_is_not_recorded(attach, without):
    model = stack(_body)
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    with session.step(), without():
        model(hidden())
    assert session.stats()["recorded_ops"] == 0
    with session.step():
        backward(model, hidden())
    assert session.stats()["recorded_ops"] > 0


def test_gradients_accumulate_over_micro_batches(same):
    def program(model, x):
        losses = [model(x * scale) / 3 for scale in (1.0, 0.5, 2.0)]
        for loss in reversed(losses):
            loss.backward()
        return sum(losses)

    same(program)


def test_a_weight_changed_before_its_backward_is_refused(same):
    def program(model, x):
        loss = model(x)
        with torch.no_grad():
            model.blocks[1].linear.weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        with torch.no_grad():
            model.blocks[1].linear.weight.sub_(1)
        model.zero_grad()
        x.grad = None
        return torch.zeros(())

    same(program)


def test_a_parameter_that_only_a_replay_reads_is_refused_when_it_was_changed(attach):
    """Plain training saves no bias, and would go on; a replay from the new one would be wrong."""
    model = stack(lambda block, x: block.linear(x).exp())
    attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    loss = model(hidden())
    with torch.no_grad():
        model.blocks[0].linear.bias.add_(1)
    with pytest.raises(RuntimeError, match=r"tidetape replays aten::addmm of block 'blocks\.0' from it"):
        loss.backward()
    backward(model, hidden())


def test_a_parameter_that_is_not_there_when_a_replay_needs_it_is_refused(attach):
    """As where something that Tidetape does not know of takes its memory and brings it back too late."""
    model = stack(lambda block, x: block.linear(x).exp())
    attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    x = hidden()
    loss = model(x)
    bias = model.blocks[1].linear.bias
    content, storage = bias.detach().clone(), bias.untyped_storage()
    size = storage.nbytes()
    storage.resize_(0)
    with pytest.raises(RuntimeError, match=r"block 'blocks\.1': backward needs to replay aten::addmm, .* is not there"):
        loss.backward()
    storage.resize_(size)
    bias.data.copy_(content)
    backward(model, hidden())


def test_a_graph_that_was_freed_is_refused(same):
    def program(model, x):
        loss = backward(model, x)
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        return loss

    same(program)


def test_double_backward(same):
    """The gradient's own gradient, as in a gradient penalty."""

    def body(block, x):
        return block.linear(x).tanh() * x.sin()

    def program(model, x):
        loss = model(x)
        (of_input,) = torch.autograd.grad(loss, x, create_graph=True)
        loss = loss + of_input.square().sum()
        loss.backward()
        return loss

    same(program, body)


def test_a_penalty_inside_a_block(same):
    """A block that takes a gradient in its own forward."""

    def body(block, x):
        energy = block.linear(x).tanh().square().sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return force * x

    same(body=body)
