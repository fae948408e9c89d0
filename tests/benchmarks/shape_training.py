"""A variant of training at work on a shape."""

import contextlib
import dataclasses
import hashlib
import statistics
import time

import torch

from tests.benchmarks.captured_ops import capture
from tests.benchmarks.shapes import blocks_of, build_batch, build_model
from tests.benchmarks.xformers_policy import optimal_choices

# The planner needs a few steps to measure; after so many without a plan something is wrong.
MOST_STEPS_TO_PLAN = 60


@dataclasses.dataclass(frozen=True)
class Step:
    """One forward and backward; seconds are CPU time of the training thread."""

    loss: torch.Tensor
    seconds: float
    forward_seconds: float


class ShapeTraining:
    """A variant at work on a shape, the only one in its process."""

    def __init__(self, variant, shape):
        self.model = build_model(shape)
        self.blocks = blocks_of(self.model)
        self._batch = build_batch(shape, self.model)
        self._session = None
        self._session = variant.prepare(self)
        self.run_step()  # whatever a first step sets up

    def run_step(self):
        """One forward and backward."""
        start = time.thread_time()
        with self._session.step() if self._session else contextlib.nullcontext():
            before = time.thread_time()
            loss = self.model(**self._batch).loss
            forward_seconds = time.thread_time() - before
            loss.backward()
        return Step(loss.detach(), time.thread_time() - start, forward_seconds)

    def step_seconds(self, steps, warm_steps):
        """CPU seconds of one forward and backward, the mean over `steps` of them."""
        return statistics.fmean(step.seconds for step in self._steps(steps, warm_steps))

    def forward_seconds(self, steps, warm_steps):
        """CPU seconds of the forward alone; each has its backward after it, as in training."""
        return statistics.fmean(step.forward_seconds for step in self._steps(steps, warm_steps))

    def result(self):
        """(loss, {parameter: hash of its gradient's bits}) of one step from zero gradients."""
        self._zero_gradients()
        loss = self.run_step().loss.item()
        return loss, {name: _hash(parameter.grad) for name, parameter in self.model.named_parameters()}

    def peak_bytes(self):
        """(peak of one step, live bytes before it), every CPU tensor of the process counted."""
        from tidetape import _C

        self._zero_gradients()
        before = _C.meter_live_bytes()
        _C.meter_reset_peak()
        self.run_step()
        return _C.meter_peak_bytes(), before

    def wait_for_plan(self):
        """Trains until a plan is in force; returns what it saves, in bytes, and whether it keeps the limit."""
        for _ in range(MOST_STEPS_TO_PLAN):
            plan = self._session.plan
            if plan.generation > 0:
                return plan.saved_bytes, plan.feasible
            self._steps(1, 0)
        raise AssertionError(f"no plan after {MOST_STEPS_TO_PLAN} steps")

    def xformers_choices(self, budget):
        """What xformers' policy saves of each block, see xformers_policy."""
        return optimal_choices(self.blocks, self.run_step, budget)

    def dispatched_ops(self):
        """Ops that the blocks of one step dispatch below autograd, as plain training does."""
        return sum(len(ops.calls) for ops in capture(self.blocks, self.run_step))

    def intercepted_ops(self):
        """Ops of one step that pass through the fallback."""
        from tidetape import _C

        before = _C.intercepted_ops()
        self.run_step()
        return _C.intercepted_ops() - before

    def close(self):
        if self._session is not None:
            self._session.detach()

    def _steps(self, steps, warm_steps):
        self._zero_gradients()
        for _ in range(warm_steps):
            self.run_step()
        return [self.run_step() for _ in range(steps)]

    def _zero_gradients(self):
        """Outside of what is timed. They stay allocated."""
        for parameter in self.model.parameters():
            parameter.grad.zero_()


def _hash(tensor):
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()
