"""Trains the demo's model for many steps: equal losses, flat memory, and time and batch size under one limit.

    python -m tests.benchmarks.bench_training [--steps N]

The limit is the largest step peak among full checkpointing and the policies chosen by hand, so that all of them fit; Tidetape
trains under it. Then the batch grows until each of the others exceeds the limit; there Tidetape trains without host memory and
with it. The last line is JSON.
"""

import argparse
import contextlib
import dataclasses
import functools
import sys

from tests.benchmarks import timing

if __name__ == "__main__":
    timing.fix_process_settings(__spec__.name)

import torch
from tqdm import tqdm

from tests.benchmarks import report, variants
from tests.benchmarks.demo_training import MOST_STEPS_TO_PLAN, STEPS_FOR_PEAK, DemoTraining, demo_workload
from tests.benchmarks.intervals import ratio
from tests.benchmarks.workers import Worker

RIVALS = (variants.FULL_CHECKPOINT, *variants.selective_policies(with_experts=False), variants.REMAT_FULL, variants.REMAT_MATMULS)
PLAIN, TIDETAPE = variants.PLAIN.name, "tidetape"
STEPS = 500
# Variants take turns, each for so many steps.
STEPS_A_TURN = 10
# The first step whose live bytes are compared with the last's: the plan is in force by then.
FIRST_MARK = 50
MOST_BATCH = 256
# Room for all that the demo's model may move.
HOST_BYTES = 1 << 30


def main():
    options = parse_options()
    torch.set_num_threads(1)
    workload = demo_workload(steps=options.steps)
    peaks = {rival.name: step_peak(rival, workload) for rival in RIVALS}
    limit = max(peaks.values())
    result = {"steps": options.steps, "batch": workload.batch, "limit_bytes": limit, "peak_bytes": peaks}
    result |= train_all(workload, limit)
    result["batches"] = {rival.name: outgrow(rival, workload, limit) for rival in RIVALS}
    print_batches(result["batches"], limit)
    report.print_json(result)


def train_all(workload, limit):
    """All variants over all steps, taking turns; raises where a loss is not plain training's to the bit."""
    compared = (variants.PLAIN, *RIVALS, variants.planned(TIDETAPE, limit))
    turns, rest = divmod(workload.steps, STEPS_A_TURN)
    if rest:
        raise ValueError(f"--steps takes a multiple of {STEPS_A_TURN}")
    marks = (min(FIRST_MARK, workload.steps // 2), workload.steps - 1)
    with contextlib.ExitStack() as stack:
        workers = {
            variant.name: stack.enter_context(Worker(variant.name, functools.partial(DemoTraining, variant, workload, marks)))
            for variant in compared
        }
        turn = {name: functools.partial(worker.call, "train", STEPS_A_TURN) for name, worker in workers.items()}
        with tqdm(total=turns, unit="turn", disable=not sys.stderr.isatty(), leave=False) as bar:
            seconds = timing.measure(turn, turns, progress=lambda done, total: bar.update(done - bar.n))
        figures = {name: worker.call("figures") for name, worker in workers.items()}

    losses = figures[PLAIN]["losses"]
    for name, others in figures.items():
        different = [step for step, pair in enumerate(zip(losses, others["losses"], strict=True)) if pair[0] != pair[1]]
        if different:
            raise AssertionError(
                f"{name}: {len(different)} of {len(losses)} losses are not plain training's, first at step {different[0]}"
            )
    over = {name: ratio(seconds[TIDETAPE], samples) for name, samples in seconds.items() if name != TIDETAPE}
    report.print_table(
        f"{workload.steps} steps of {workload.batch} x {workload.sequence} tokens, all losses equal to the bit, loss from "
        f"{losses[0]:.3f} to {losses[-1]:.3f}; limit {report.mebibytes(limit)} MiB; medians with 90 % intervals over {turns} turns",
        ["variant", "wall s", "CPU s", "tidetape / it"],
        [
            [name, f"{figures[name]['wall_seconds']:.1f}", f"{sum(samples):.1f}", over.get(name, "-")]
            for name, samples in sorted(seconds.items(), key=lambda item: sum(item[1]))
        ],
    )
    ours = figures[TIDETAPE]
    stats = ours["stats"]
    live = dict(zip(marks, ours["live_bytes"], strict=True))
    print(f"  live bytes after steps {live}, {stats['bookkeeping_bytes'] / stats['recorded_ops']:.0f} bytes of bookkeeping an op")
    return {
        "losses_equal": True,
        "loss": {"first": losses[0], "last": losses[-1]},
        "live_bytes": live,
        "live_bytes_flat": len(set(live.values())) == 1,
        "bookkeeping_bytes_per_op": stats["bookkeeping_bytes"] / stats["recorded_ops"],
        "tidetape_step_peak_bytes": stats["step_peak_bytes"],
        "passed_through": ours["passed_through"],
        "wall_seconds": {name: values["wall_seconds"] for name, values in figures.items()},
        "cpu_seconds": {name: sum(samples) for name, samples in seconds.items()},
        "tidetape_over": {name: estimate.as_json() for name, estimate in over.items()},
    }


def outgrow(rival, workload, limit):
    """The least batch at which the rival exceeds the limit, and Tidetape's peaks at that batch under the same limit."""

    def peak(batch):
        return step_peak(rival, dataclasses.replace(workload, batch=batch))

    fits, exceeds = workload.batch, 2 * workload.batch
    while peak(exceeds) <= limit:
        fits, exceeds = exceeds, 2 * exceeds
        if exceeds > MOST_BATCH:
            raise AssertionError(f"{rival.name} does not exceed {limit} bytes at batch {fits}")
    while exceeds - fits > 1:
        middle = (fits + exceeds) // 2
        fits, exceeds = (middle, exceeds) if peak(middle) <= limit else (fits, middle)
    larger = dataclasses.replace(workload, batch=exceeds, steps=MOST_STEPS_TO_PLAN + STEPS_FOR_PEAK)

    def peaks_around_plan(host_memory_limit):
        with _metered(variants.planned(TIDETAPE, limit, host_memory_limit), larger) as worker:
            return worker.call("peaks_around_plan")

    before, under = peaks_around_plan(None)
    _, with_host = peaks_around_plan(HOST_BYTES)
    return {
        "exceeds_at_batch": exceeds,
        "its_peak_bytes": peak(exceeds),
        "tidetape_peak_bytes_before_plan": before,
        "tidetape_peak_bytes": under,
        "tidetape_keeps_limit": under <= limit,
        "tidetape_with_host_memory_peak_bytes": with_host,
        "tidetape_with_host_memory_keeps_limit": with_host <= limit,
    }


def step_peak(variant, workload):
    """The step peak of a variant, in bytes, everything alive counted."""
    with _metered(variant, dataclasses.replace(workload, steps=STEPS_FOR_PEAK)) as worker:
        return worker.call("peak_bytes")


def _metered(variant, workload):
    return Worker(variant.name, functools.partial(DemoTraining, variant, workload), metered=True)


def print_batches(batches, limit):
    report.print_table(
        f"the least batch that exceeds {report.mebibytes(limit)} MiB, and step peaks in MiB there",
        ["variant", "batch", "its peak", "tidetape before its plan", "tidetape", "with host memory"],
        [
            [
                name,
                found["exceeds_at_batch"],
                *(
                    report.mebibytes(found[key])
                    for key in (
                        "its_peak_bytes",
                        "tidetape_peak_bytes_before_plan",
                        "tidetape_peak_bytes",
                        "tidetape_with_host_memory_peak_bytes",
                    )
                ),
            ]
            for name, found in batches.items()
        ],
    )


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=STEPS, help="of each variant (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
