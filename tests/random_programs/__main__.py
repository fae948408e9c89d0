"""Trains random programs with and without Tidetape, and prints those that differ, made small. Fails if any does."""

import argparse
import sys
import time

import torch

from .campaign import outcomes, smallest
from .report import runnable


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_programs", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=300, help="how many seeds")
    parser.add_argument("--show", type=int, default=3, help="how many failing programs to make small")
    options = parser.parse_args()

    torch.set_num_threads(1)
    start = time.monotonic()
    done = refused = 0
    failed = []
    for outcome in outcomes(range(options.first, options.first + options.count)):
        done += 1
        refused += outcome.refused
        if outcome.difference is not None:
            failed.append(outcome)
            print(f"seed {outcome.seed}: {outcome.difference}", flush=True)
            if len(failed) <= options.show:
                print(runnable(outcome, *smallest(outcome)), flush=True)
    print(
        f"{done} programs in {time.monotonic() - start:.0f} s: {done - refused} train, {refused} are refused by plain training; "
        f"{len(failed)} differ with Tidetape"
    )
    return 1 if failed or done != options.count else 0


if __name__ == "__main__":
    sys.exit(main())
