"""One way to train the workload, and what was measured."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from tqdm import tqdm

import tidetape
from tidetape.demo import meter
from tidetape.demo.workload import Workload


@dataclass
class Step:
    """What one rank measured in one step; bytes and seconds."""

    # As written by float.hex(), so that equal means equal to the bit.
    loss: str
    seconds: float
    peak_bytes: int
    # 0 without a plan in force.
    generation: int = 0
    # Of the plan in force, as predicted when it was committed.
    predicted_peak_bytes: int = 0
    replay_seconds: float = 0.0
    saved_bytes: int = 0


@dataclass
class Run:
    """A variant's steps on all ranks."""

    name: str
    # None where Tidetape was not attached, or was asked for "min" or "max".
    limit_bytes: int | None
    ranks: list[list[Step]]
    # Live bytes at the marks of the last step that was profiled, on rank 0.
    live_bytes: list[int] = field(default_factory=list)
    # What the planner says of a limit that is impossible, on rank 0.
    feasible: bool = True
    least_peak_bytes: int = 0
    least_peak_holder: str = ""

    def losses(self) -> list[str]:
        """Of all ranks, one after the other."""
        return [step.loss for steps in self.ranks for step in steps]

    def final_loss(self) -> float:
        return statistics.fmean(float.fromhex(steps[-1].loss) for steps in self.ranks)

    def worst_peak(self, step: int) -> int:
        return max(steps[step].peak_bytes for steps in self.ranks)

    def planned_steps(self) -> list[int]:
        """Steps that ran under a plan from beginning to end."""
        return [i for i, step in enumerate(self.ranks[0]) if step.generation > 0]

    def settled_steps(self) -> list[int]:
        """The steps that figures are of: under the last plan, or the second half where there is no plan."""
        first, last = self.ranks[0], self.ranks[0][-1]
        if last.generation > 0:
            return [i for i, step in enumerate(first) if step.generation == last.generation]
        return list(range(len(first) // 2, len(first)))

    def peak_bytes(self) -> int:
        return max(self.worst_peak(i) for i in self.settled_steps())

    def predicted_peak_bytes(self) -> int:
        return self.ranks[0][-1].predicted_peak_bytes

    def prediction_error(self) -> float:
        """The worst of all steps under a plan, as a share of the measured peak."""
        errors = [abs(self.ranks[0][i].predicted_peak_bytes / self.worst_peak(i) - 1) for i in self.planned_steps()]
        return max(errors, default=0.0)

    def seconds(self) -> float:
        """Median step time of the slowest rank."""
        return max(self._median(steps, "seconds") for steps in self.ranks)

    def replay_seconds(self) -> float:
        return max(self._median(steps, "replay_seconds") for steps in self.ranks)

    def saved_bytes(self) -> int:
        return max(steps[-1].saved_bytes for steps in self.ranks)

    def _median(self, steps: list[Step], name: str) -> float:
        return statistics.median(getattr(steps[i], name) for i in self.settled_steps())


@dataclass(frozen=True)
class Attachment:
    """How Tidetape is attached."""

    memory_limit: int | str
    planner: str
    job: str


def run_variant(
    name: str,
    workload: Workload,
    device: torch.device,
    *,
    checkpoint: bool = False,
    attachment: Attachment | None = None,
    before_detach: Callable[[], None] = lambda: None,
) -> Run:
    """Trains from the seed on, with full checkpointing, attached, or neither. Collective. `before_detach` runs on rank 0 while the
    job is still there to be asked about."""
    gc.collect()
    model = workload.build(device)
    if checkpoint:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    optimizer = workload.optimizer(model)
    batches = workload.batches(device)
    session = None
    if attachment is not None:
        session = tidetape.attach(
            model, memory_limit=attachment.memory_limit, planner=attachment.planner, job=attachment.job, existing="error"
        )
    rank = dist.get_rank() if dist.is_initialized() else 0
    steps: list[Step] = []
    predictions: dict[int, int] = {}
    live_bytes: list[int] = []
    progress = tqdm(batches, desc=f"{name:>14}", disable=rank != 0, unit="step", ncols=100)
    for tokens in progress:
        if session is None:
            meter.reset_peak(device)
        start = time.perf_counter()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        del loss
        seconds = time.perf_counter() - start
        step = Step(value.hex(), seconds, meter.peak_bytes(device) if session is None else 0)
        if session is not None:
            _read(session, step, predictions)
            live_bytes = session.stats()["live_bytes"] or live_bytes
        steps.append(step)
        progress.set_postfix_str(f"loss {value:.3f}, peak {step.peak_bytes / 1e6:.1f} MB, plan {step.generation}")
    progress.close()

    limit = attachment.memory_limit if attachment is not None and isinstance(attachment.memory_limit, int) else None
    run = Run(name, limit, _gather(steps))
    if session is not None:
        plan = session.plan
        run.live_bytes = live_bytes
        run.feasible, run.least_peak_bytes, run.least_peak_holder = plan.feasible, plan.least_peak_bytes, plan.least_peak_holder
        if rank == 0:
            before_detach()
        if dist.is_initialized():
            dist.barrier()
        session.detach()
    return run


def _read(session: tidetape.Session, step: Step, predictions: dict[int, int]) -> None:
    """Fills the step's figures from the session. `predictions` remembers each generation's, as the plan may have just changed."""
    stats, plan = session.stats(), session.plan
    predictions[plan.generation] = plan.step_peak_bytes
    step.peak_bytes = stats["step_peak_bytes"]
    step.replay_seconds = stats["replay_seconds"]
    step.saved_bytes = stats["saved_bytes"]
    step.generation = stats["generation"]
    step.predicted_peak_bytes = predictions.get(step.generation, 0)


def _gather(steps: list[Step]) -> list[list[Step]]:
    if not dist.is_initialized():
        return [steps]
    ranks: list[list[Step]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(ranks, steps)
    return ranks
