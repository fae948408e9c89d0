"""The ranks agree among themselves when to switch to a plan. docs/decisions/0003-agreement.md says why."""

from __future__ import annotations

import datetime
import logging

import torch
import torch.distributed as dist

_log = logging.getLogger("tidetape")

# A job starts with a round at every step, because its plans change then; afterwards a round costs more than a late switch.
_EVERY_STEP_FIRST = 32
_EVERY_NTH_STEP_LATER = 4


class Agreement:
    """Finds the steps at which all ranks hold the same newest plan, so that they switch to it together.

    A round starts at one step boundary and its result is read at the next: an asynchronous MIN all-reduce over a gloo group of the
    agreement's own, of the held generation and of its negative. The two are equal but for the sign only where every rank holds the
    same generation, so no rank is ever told to switch to a plan that it has not got. Whether a step starts a round follows from
    its number alone, which is why all ranks start the same rounds.

    Not thread-safe; all methods are called on the training thread. Creation is collective.
    """

    def __init__(self, timeout_seconds: float = 60.0):
        """`timeout_seconds` bounds the wait for a round's result, beyond which the ranks stop agreeing and keep their plan."""
        self._timeout = datetime.timedelta(seconds=timeout_seconds)
        self._distributed = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self._group = dist.new_group(backend="gloo", timeout=self._timeout) if self._distributed else None
        self._pending: tuple[dist.Work, torch.Tensor] | None = None
        self._first_step: int | None = None
        self.failures = 0
        """Rounds that failed or ran out of time. After the first no further round starts."""

    def step(self, step: int, held: int, active: int) -> int | None:
        """Call at every step boundary, on all ranks, with the step's number, the newest generation that this rank holds (0: none)
        and the one in force. Returns the generation to switch to now, on every rank at the same step, or None."""
        if not self._distributed:
            return held if held > active else None
        agreed = self._finish_round(step)
        if self.failures == 0 and self._starts_round(step):
            self._start_round(step, held)
        return agreed if agreed is not None and agreed > active else None

    def close(self) -> None:
        """Ends the agreement. Collective in that all ranks stop calling step()."""
        if self._group is None:
            return
        if self._pending is not None:
            self._finish_round(-1)
        # After a failure, or once the job has torn down its groups, there is nothing left to say goodbye to.
        if self.failures == 0 and dist.is_initialized():
            dist.destroy_process_group(self._group)
        self._group = None
        self._distributed = False

    def _starts_round(self, step: int) -> bool:
        if self._first_step is None:
            self._first_step = step
        since = step - self._first_step
        return since < _EVERY_STEP_FIRST or since % _EVERY_NTH_STEP_LATER == 0

    def _start_round(self, step: int, held: int) -> None:
        bounds = torch.tensor([held, -held], dtype=torch.int64)
        try:
            self._pending = dist.all_reduce(bounds, op=dist.ReduceOp.MIN, group=self._group, async_op=True), bounds
        except RuntimeError as error:
            self._give_up(step, error)

    def _finish_round(self, step: int) -> int | None:
        if self._pending is None:
            return None
        work, bounds = self._pending
        self._pending = None
        try:
            work.wait(self._timeout)
        except RuntimeError as error:
            self._give_up(step, error)
            return None
        least, negated_greatest = bounds.tolist()
        return least if least == -negated_greatest else None

    def _give_up(self, step: int, error: Exception) -> None:
        self.failures += 1
        _log.warning(
            "tidetape: rank %d could not agree with the other ranks at step %d and keeps its plan from now on: %s",
            dist.get_rank() if dist.is_initialized() else -1,
            step,
            str(error).splitlines()[0],
        )
