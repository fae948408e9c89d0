"""The demo's training at work with one variant: forward, backward and AdamW, a batch of text a step."""

import importlib.util
import sys
import time

import torch

from tests.benchmarks.shapes import blocks_of
from tests.processes import ROOT

# The planner needs a few steps to measure; after so many without a plan something is wrong.
MOST_STEPS_TO_PLAN = 60
# A step's peak is the same from the second step on, when the optimizer's state is there.
STEPS_FOR_PEAK = 3


def demo_workload(**fields):
    """The demo's Workload. Loaded by its path, because importing tidetape would put the meter in front of every variant."""
    name = "demo_workload"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "agent" / "python" / "tidetape" / "demo" / "workload.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name].Workload(**fields)


class DemoTraining:
    """A variant at work on the demo's workload, the only one in its process."""

    def __init__(self, variant, workload, marks=()):
        """`marks`: numbers of the steps after which the live bytes are noted."""
        cpu = torch.device("cpu")
        self.model = workload.build(cpu)
        self.blocks = blocks_of(self.model)
        self._optimizer = workload.optimizer(self.model)
        self._batches = iter(workload.batches(cpu))
        self._marks = marks
        self._losses = []
        self._live_bytes = []
        self._seconds = 0.0
        self._session = variant.prepare(self)

    def train(self, steps):
        """The workload's next steps; CPU seconds of the training thread."""
        wall, cpu = time.perf_counter(), time.thread_time()
        for _ in range(steps):
            self.run_step()
        self._seconds += time.perf_counter() - wall
        return time.thread_time() - cpu

    def run_step(self):
        """One step, with the loss read at its end as training scripts do."""
        tokens = next(self._batches)
        loss = self.model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        del loss
        if len(self._losses) in self._marks:
            self._note_live_bytes()
        self._losses.append(value)

    def figures(self):
        """Of all steps so far: losses, wall seconds, live bytes at the marks; and of the last one what Tidetape says of it."""
        figures = {"losses": self._losses, "wall_seconds": self._seconds, "live_bytes": self._live_bytes}
        if self._session is not None:
            figures |= {"stats": self._session.stats(), "passed_through": self._session.passed_through()}
        return figures

    def peak_bytes(self):
        """The step peak, everything alive counted."""
        return max(self._peak_of_step() for _ in range(STEPS_FOR_PEAK))

    def peaks_around_plan(self):
        """The largest step peak before a plan is in force, and the largest of a few steps under it."""
        before = []
        while self._session.plan.generation == 0:
            if len(before) == MOST_STEPS_TO_PLAN:
                raise AssertionError(f"no plan after {MOST_STEPS_TO_PLAN} steps")
            before.append(self._peak_of_step())
        return max(before), self.peak_bytes()

    def close(self):
        if self._session is not None:
            self._session.detach()

    def _peak_of_step(self):
        from tidetape import _C

        _C.meter_reset_peak()
        self.run_step()
        return _C.meter_peak_bytes() if self._session is None else self._session.stats()["step_peak_bytes"]

    def _note_live_bytes(self):
        if self._session is not None:
            from tidetape import _C

            self._live_bytes.append(_C.meter_live_bytes())
