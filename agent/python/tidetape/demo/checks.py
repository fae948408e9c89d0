"""What the demo promises, checked against what was measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidetape.demo.variant import Run

# Between the predicted and the measured step peak, as a share of the measured one.
_LARGEST_PREDICTION_ERROR = 0.02


@dataclass
class Verdict:
    """`lines` are for people; `good` is False where any promise was broken."""

    good: bool = True
    lines: list[str] = field(default_factory=list)

    def say(self, good: bool, text: str) -> None:
        self.good &= good
        self.lines.append(text if good else f"BROKEN: {text}")


def check(runs: list[Run]) -> Verdict:
    """Checks all runs; the first one is plain training."""
    verdict = Verdict()
    plain, *others = runs
    _check_losses(verdict, plain, others)
    for run in others:
        if run.limit_bytes is not None and run.feasible:
            _check_limit(verdict, run)
        elif run.limit_bytes is not None:
            _check_impossible(verdict, run)
    return verdict


def _check_losses(verdict: Verdict, plain: Run, others: list[Run]) -> None:
    pairs = [pair for run in others for pair in zip(run.losses(), plain.losses(), strict=True)]
    equal = sum(ours == theirs for ours, theirs in pairs)
    verdict.say(
        equal == len(pairs),
        f"losses: {equal} of {len(pairs)} equal plain training's to the bit ({len(others)} runs, {len(plain.ranks)} rank(s))",
    )
    first, last = float.fromhex(plain.ranks[0][0].loss), plain.final_loss()
    verdict.say(last < first, f"loss fell from {first:.3f} to {last:.3f}")


def _check_limit(verdict: Verdict, run: Run) -> None:
    planned = run.planned_steps()
    if not planned:
        verdict.say(False, f"{run.name}: no plan came within {len(run.ranks[0])} steps")
        return
    worst = max(run.worst_peak(i) for i in planned)
    verdict.say(
        worst <= run.limit_bytes,
        f"{run.name}: measured peak {worst:,} bytes, limit {run.limit_bytes:,} bytes, over {len(planned)} steps under a plan",
    )
    error = run.prediction_error()
    verdict.say(
        error <= _LARGEST_PREDICTION_ERROR, f"{run.name}: predicted and measured peak differ by at most {100 * error:.2f} %"
    )
    same = all([step.generation for step in steps] == [step.generation for step in run.ranks[0]] for steps in run.ranks)
    verdict.say(same, f"{run.name}: all ranks switched to the plan at step {planned[0]}")


def _check_impossible(verdict: Verdict, run: Run) -> None:
    verdict.say(
        bool(run.least_peak_holder) and run.least_peak_bytes > run.limit_bytes,
        f"{run.name}: the planner says that {run.limit_bytes:,} bytes are impossible, the least peak is {run.least_peak_bytes:,} "
        f"bytes, held by {run.least_peak_holder}; training went on for all {len(run.ranks[0])} steps",
    )
