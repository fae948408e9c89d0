"""Pipeline stages: several micro-batches are alive, and their backwards come in another order or in parts."""

import time

import pytest
import torch
import torch.nn.functional as F

from tests.small_blocks import WAYS, WIDTH, require_as_plain, stack


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(body, program): stages with this forward train in this program as they do plainly."""

    def compare(body, program):
        return require_as_plain(attach, request.param, lambda: stack(body), program)

    return compare


def _body(block, x):
    return F.dropout(block.linear(x).tanh(), 0.2) * x.sin()


class Pipeline:
    """Two stages whose micro-batches are alive together; what goes between them is cut as it is between processes."""

    def __init__(self, model, x):
        self.model, self.x = model, x
        self.alive = []
        self.loss = 0

    def forward(self, scale):
        first, second = self.model.blocks
        sent = first(self.x * scale)
        received = sent.detach().requires_grad_()
        loss = second(received).square().mean()
        self.loss = self.loss + loss.detach()
        self.alive.append((sent, received, loss))

    def backward(self):
        sent, received, loss = self.alive.pop(0)
        loss.backward()
        sent.backward(received.grad)


def test_one_forward_one_backward(same):
    def program(model, x):
        pipeline = Pipeline(model, x)
        for scale in (1.0, 0.5):
            pipeline.forward(scale)
        for scale in (2.0, -1.0, 0.25):
            pipeline.forward(scale)
            pipeline.backward()
        while pipeline.alive:
            pipeline.backward()
        return pipeline.loss

    same(lambda block, x: F.dropout(block.norm(block.linear(x)).tanh(), 0.2) * x.sin(), program)


def test_all_forwards_before_all_backwards_in_another_order(same):
    def program(model, x):
        pipeline = Pipeline(model, x)
        for scale in (1.0, 0.5, 2.0, -1.0):
            pipeline.forward(scale)
        pipeline.alive.reverse()
        while pipeline.alive:
            pipeline.backward()
        return pipeline.loss

    same(_body, program)


def test_gradients_of_inputs_and_of_weights_run_apart(same):
    """As zero-bubble schedules do: the weights' gradients of a micro-batch come after the inputs' of the next."""

    def program(model, x):
        weights = list(model.parameters())
        pending, total = [], 0
        for scale in (1.0, 0.5, 2.0):
            loss = model(x * scale)
            of_input = torch.autograd.grad(loss, x, retain_graph=True)[0]
            total = total + loss.detach() + of_input.sum()
            pending.append(loss)
            if len(pending) == 2:
                _accumulate(pending.pop(0), weights)
        _accumulate(pending.pop(0), weights)
        return total

    def _accumulate(loss, weights):
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights, allow_unused=True), strict=True):
            if gradient is not None:
                weight.grad = gradient if weight.grad is None else weight.grad + gradient

    same(_body, program)


def test_a_plan_is_made_for_the_order_in_which_micro_batches_run(attach):
    """What it predicts is measured, and holds the limit: more is alive than where all blocks run forward and then backward."""
    model = stack(lambda block, x: block.linear(x).tanh().exp() * x.sin())
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="local")

    def peak_of_a_step():
        x = torch.randn(4096, WIDTH, generator=torch.Generator().manual_seed(1))
        with session.step():
            pipeline = Pipeline(model, x)
            for scale in (1.0, 0.5, 2.0):
                pipeline.forward(scale)
            for scale in (-1.0, 0.25, 3.0):
                pipeline.backward()
                pipeline.forward(scale)
            while pipeline.alive:
                pipeline.backward()
            del pipeline
        model.zero_grad()
        return session.stats()["step_peak_bytes"]

    def require_predicted(generation):
        deadline = time.monotonic() + 60
        while session.plan.generation < generation:
            peak_of_a_step()
            time.sleep(0.01)  # the planner is a thread
            assert time.monotonic() < deadline, "no plan"
        plan = session.plan
        peaks = [peak_of_a_step() for _ in range(4)]
        assert session.passed_through() == {}
        assert 0.99 * plan.step_peak_bytes <= max(peaks) <= plan.step_peak_bytes
        return plan

    least = require_predicted(1)
    limit = least.step_peak_bytes + 5 * 4096 * WIDTH * 4
    session.set_memory_limit(limit)
    plan = require_predicted(2)
    assert plan.step_peak_bytes <= limit
    assert plan.saved_bytes > least.saved_bytes
    assert plan.replay_seconds < least.replay_seconds
