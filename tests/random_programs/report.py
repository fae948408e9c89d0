"""Failing programs as text that runs."""

from __future__ import annotations

from .campaign import Outcome
from .program import Program
from .train import Difference


def runnable(outcome: Outcome, program: Program, found: Difference) -> str:
    """The smallest program of a failing seed, as a Python file that says what differs."""
    return "\n".join(
        [
            f"# Seed {outcome.seed}, {outcome.difference}",
            f"# This smaller program, {found}",
            program.source(),
            "",
            'if __name__ == "__main__":',
            "    from tests.random_programs.train import Way, first_difference",
            "",
            f"    print(first_difference(Model, [{found.way!r}]))",
            "",
        ]
    )
