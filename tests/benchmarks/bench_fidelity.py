"""Compares what plans predict with what training then measures: step peaks and seconds of replay, on six kinds of models.

    python -m tests.benchmarks.bench_fidelity [--models dense,moe] [--steps N]

Each model trains with AdamW under five limits, spread evenly between the least step peak that any plan reaches and that of training
with everything saved. A prediction is the one in the plan when it comes into force; what it is compared with are the steps after
that. The last line is JSON.
"""

import argparse
import functools
import statistics

from tests.benchmarks import timing

if __name__ == "__main__":
    timing.fix_process_settings(__spec__.name)

import torch

from tests.benchmarks import report
from tests.benchmarks.fidelity_models import MODELS
from tests.benchmarks.fidelity_training import FidelityTraining
from tests.benchmarks.workers import Worker

LIMITS = 5
STEPS = 20
# What a prediction may be away from the measurement.
PEAK_ERROR = 0.01
REPLAY_ERROR = 0.10
REPLAY_ERROR_OF_PLAIN_STEP = 0.01


def main():
    options = parse_options()
    torch.set_num_threads(1)
    models = {name: compare(MODELS[name], options.steps) for name in options.models.split(",")}
    points = [point for model in models.values() for point in model["points"]]
    errors = [point["peak_error"] for point in points]
    report.print_json(
        {
            "models": models,
            "points": len(points),
            "limits_kept": sum(point["limit_kept"] for point in points),
            "worst_peak_error": max(errors),
            "median_peak_error": statistics.median(errors),
            "peaks_within_bound": sum(error <= PEAK_ERROR for error in errors),
            "replays_within_bound": sum(point["replay_within_bound"] for point in points),
        }
    )


def compare(model, steps):
    """The figures of one model under all limits; prints them as a table."""
    with _training(model, "max") as worker:
        plain = worker.call("train_saving_all", steps)
    with _training(model, "min") as worker:
        least = max(part["measured_peak_bytes"] for part in worker.call("train_under_plan", steps))
    most = plain["peak_bytes"]
    limits = [least + k * (most - least) // (LIMITS + 1) for k in range(1, LIMITS + 1)]
    points = []
    for limit in limits:
        with _training(model, limit) as worker:
            points += [judged(part, limit, plain["step_seconds"]) for part in worker.call("train_under_plan", steps)]
    report.print_table(
        f"{model.name}: limits between {report.mebibytes(least)} and {report.mebibytes(most)} MiB, "
        f"step with everything saved {plain['step_seconds'] * 1e3:.1f} ms",
        ["limit MiB", "steps", "predicted peak", "measured", "error %", "predicted replay ms", "measured", "of bound"],
        [
            [
                report.mebibytes(point["limit_bytes"]),
                point["steps"],
                report.mebibytes(point["predicted_peak_bytes"]),
                report.mebibytes(point["measured_peak_bytes"]),
                f"{100 * point['peak_error']:.3f}",
                f"{1e3 * point['predicted_replay_seconds']:.2f}",
                f"{1e3 * point['measured_replay_seconds']:.2f}",
                f"{point['replay_error_of_bound']:.2f}",
            ]
            for point in points
        ],
    )
    return {"least_peak_bytes": least, "most_peak_bytes": most, "plain_step_seconds": plain["step_seconds"], "points": points}


def judged(part, limit, plain_seconds):
    """One plan's predictions beside its measurements, and whether they hold."""
    peak_error = abs(part["predicted_peak_bytes"] - part["measured_peak_bytes"]) / part["measured_peak_bytes"]
    bound = max(REPLAY_ERROR * part["measured_replay_seconds"], REPLAY_ERROR_OF_PLAIN_STEP * plain_seconds)
    replay_error = abs(part["predicted_replay_seconds"] - part["measured_replay_seconds"])
    return part | {
        "limit_bytes": limit,
        "limit_kept": part["measured_peak_bytes"] <= limit,
        "peak_error": peak_error,
        "replay_error_of_bound": replay_error / bound,
        "replay_within_bound": replay_error <= bound,
    }


def _training(model, limit):
    return Worker(f"{model.name} under {limit}", functools.partial(FidelityTraining, model, limit), metered=True)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="names separated by commas (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="measured under each plan (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
