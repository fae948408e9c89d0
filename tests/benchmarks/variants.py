"""The ways of training one model that a benchmark compares.

tidetape is imported where a variant uses it or where bytes are counted, so that plain training and the rivals are timed without it.
"""

import contextlib
import dataclasses
import functools
import hashlib
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from tests.benchmarks import rivals
from tests.benchmarks.shapes import build_batch, build_model

# The planner needs a few steps to measure; after so many without a plan something is wrong.
MOST_STEPS_TO_PLAN = 60


@dataclasses.dataclass(frozen=True)
class Variant:
    """A name, and what to do with a model so that it trains this way; `prepare` may return a session of Tidetape's."""

    name: str
    prepare: Callable = lambda model: None


PLAIN = Variant("plain")
FULL_CHECKPOINT = Variant("full checkpoint", lambda model: rivals.checkpoint_blocks(blocks_of(model)))
SAC_TITAN = Variant("SAC titan", lambda model: rivals.checkpoint_blocks_saving(blocks_of(model), rivals.titan_policy))
SAC_ALL_MATMULS = Variant(
    "SAC all mm+attn", lambda model: rivals.checkpoint_blocks_saving(blocks_of(model), rivals.all_matmuls_policy)
)
NOTHING_SAVED = Variant("tidetape, nothing saved", lambda model: _attach(model, "min", "none"))
ALL_SAVED = Variant("tidetape, all saved", lambda model: _attach(model, "max", "none"))


def planned(name, memory_limit_bytes):
    """Tidetape under a limit on the step peak, with its own planner."""
    return Variant(name, lambda model: _attach(model, memory_limit_bytes, "local"))


def _bare_redispatch(model):
    import tidetape

    def within(forward, *args, **kwargs):
        with tidetape._C.BareRedispatch():
            return forward(*args, **kwargs)

    for block in blocks_of(model):
        block.forward = functools.partial(within, block.forward)


BARE_REDISPATCH = Variant("bare redispatch", _bare_redispatch)


def _attach(model, memory_limit, planner):
    import tidetape

    return tidetape.attach(model, blocks=blocks_of(model), memory_limit=memory_limit, planner=planner)


def blocks_of(model):
    """The repeated layers: the children of the longest ModuleList."""
    return list(max((module for module in model.modules() if isinstance(module, nn.ModuleList)), key=len))


@dataclasses.dataclass(frozen=True)
class Step:
    """One forward and backward; seconds are CPU time of the training thread."""

    loss: torch.Tensor
    seconds: float
    forward_seconds: float


class Training:
    """A variant at work on a shape, the only one in its process."""

    def __init__(self, variant, shape):
        self._model = build_model(shape)
        self._batch = build_batch(shape, self._model)
        self._session = variant.prepare(self._model)

    def step_seconds(self, steps, warm_steps):
        """CPU seconds of one forward and backward, the mean over `steps` of them."""
        return statistics.fmean(step.seconds for step in self._steps(steps, warm_steps))

    def forward_seconds(self, steps, warm_steps):
        """CPU seconds of the forward alone; each has its backward after it, as in training."""
        return statistics.fmean(step.forward_seconds for step in self._steps(steps, warm_steps))

    def result(self):
        """(loss, {parameter: hash of its gradient's bits}) of one step from zero gradients."""
        self._zero_gradients()
        loss = self._step().loss.item()
        return loss, {name: _hash(parameter.grad) for name, parameter in self._model.named_parameters()}

    def peak_bytes(self):
        """(peak of one step, live bytes before it), every CPU tensor of the process counted."""
        from tidetape import _C

        self._zero_gradients()
        before = _C.meter_live_bytes()
        _C.meter_reset_peak()
        self._step()
        return _C.meter_peak_bytes(), before

    def wait_for_plan(self):
        """Trains until a plan is in force; returns what it saves, in bytes."""
        for _ in range(MOST_STEPS_TO_PLAN):
            if self._session.plan.generation > 0:
                return self._session.plan.saved_bytes
            self._steps(1, 0)
        raise AssertionError(f"no plan after {MOST_STEPS_TO_PLAN} steps")

    def intercepted_ops(self):
        """Ops of one step that pass through the fallback."""
        from tidetape import _C

        before = _C.intercepted_ops()
        self._step()
        return _C.intercepted_ops() - before

    def close(self):
        if self._session is not None:
            self._session.detach()

    def _steps(self, steps, warm_steps):
        self._zero_gradients()
        for _ in range(warm_steps):
            self._step()
        return [self._step() for _ in range(steps)]

    def _step(self):
        start = time.thread_time()
        with self._session.step() if self._session else contextlib.nullcontext():
            before = time.thread_time()
            loss = self._model(**self._batch).loss
            forward_seconds = time.thread_time() - before
            loss.backward()
        return Step(loss.detach(), time.thread_time() - start, forward_seconds)

    def _zero_gradients(self):
        """Outside of what is timed. They stay allocated."""
        for parameter in self._model.parameters():
            parameter.grad.zero_()


def _hash(tensor):
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()
