"""Compares all ways of training one shape: gradients, step peaks, times."""

import contextlib
import functools

from tests.benchmarks import report, timing, variants
from tests.benchmarks.intervals import excess_ratio, median_interval, ratio
from tests.benchmarks.shape_training import ShapeTraining
from tests.benchmarks.workers import Worker

PLAIN, FULL = variants.PLAIN.name, variants.FULL_CHECKPOINT.name
NOTHING, ALL, IDEAL = variants.NOTHING_SAVED.name, variants.ALL_SAVED.name, variants.IDEAL.name
LEAST = variants.planned("tidetape, least memory", "min")


def compare(shape, rounds, progress):
    """The figures of one shape, as they go into the JSON."""
    policies = variants.selective_policies(shape.has_experts)
    rivals = (*policies, variants.REMAT_FULL, variants.REMAT_MATMULS)
    expected, peaks = _results_and_peaks(shape, rivals)
    # At each rival's memory.
    matched = {rival.name: variants.planned(f"tidetape as {rival.name}", peaks[rival.name][0]) for rival in rivals}
    timed = [variants.PLAIN, variants.FULL_CHECKPOINT, *rivals, *matched.values()]
    timed += [variants.IDEAL, variants.NOTHING_SAVED, variants.ALL_SAVED]
    saved_bytes, feasible = {}, {}
    with contextlib.ExitStack() as stack:
        workers = {variant.name: stack.enter_context(training_worker(variant, shape)) for variant in timed}
        for variant in matched.values():
            saved_bytes[variant.name], feasible[variant.name] = workers[variant.name].call("wait_for_plan")
            require_equal(variant.name, workers[variant.name].call("result"), expected)
        seconds = timing.measure(step_samplers(workers, shape), rounds, progress=progress)
        for name, worker in workers.items():
            require_equal(name, worker.call("result"), expected)
        for variant in matched.values():
            peaks[variant.name] = workers[variant.name].call("peak_bytes")

    over_plain = {variant.name: ratio(seconds[variant.name], seconds[PLAIN]) for variant in timed}
    activation = {name: peak - before for name, (peak, before) in peaks.items()}
    at_their_memory = {rival: ratio(seconds[ours.name], seconds[rival]) for rival, ours in matched.items()}
    best = min((policy.name for policy in policies), key=lambda name: over_plain[name].median)
    headline = {
        "replay_over_checkpoint": ratio(seconds[NOTHING], seconds[FULL]),
        "replay_over_best_policy": at_their_memory[best],
        "attach_save_all_over_plain": ratio(seconds[ALL], seconds[PLAIN]),
        "overhead_over_ideal": excess_ratio(seconds[NOTHING], seconds[IDEAL], seconds[PLAIN]),
    }
    figures = {name: estimate.median for name, estimate in headline.items()} | {
        "peak_over_checkpoint": activation[NOTHING] / activation[FULL],
        "min_peak_over_checkpoint": activation[LEAST.name] / activation[FULL],
        "best_policy": best,
        "peak_over_best_policy": activation[matched[best].name] / activation[best],
        "planned_saved_bytes": saved_bytes[matched[best].name],
        "rivals": {
            rival: {
                "time_over_plain": over_plain[rival].median,
                "peak_over_plain": activation[rival] / activation[PLAIN],
                "tidetape_over_it": at_their_memory[rival].median,
                "tidetape_over_it_interval": at_their_memory[rival].as_json(),
                "tidetape_peak_over_it": activation[ours.name] / activation[rival],
                "tidetape_feasible": feasible[ours.name],
            }
            for rival, ours in matched.items()
        },
        "model_type": shape.model_type,
        "dtype": str(shape.dtype).removeprefix("torch."),
        "plain_seconds": median_interval(seconds[PLAIN]).median,
        "intervals": {name: estimate.as_json() for name, estimate in headline.items()},
        "over_plain": {name: estimate.as_json() for name, estimate in over_plain.items()},
        "peak_bytes": activation,
    }
    _print(shape, figures, headline, over_plain, activation)
    return figures


def training_worker(variant, shape, metered=False):
    """A ShapeTraining in a process of its own."""
    return Worker(variant.name, functools.partial(ShapeTraining, variant, shape), metered)


def _results_and_peaks(shape, rivals):
    """(plain training's loss and gradients, {variant: (step peak, bytes before)}); every variant's gradients were compared."""
    expected, peaks = None, {}
    for variant in (variants.PLAIN, variants.FULL_CHECKPOINT, *rivals, variants.NOTHING_SAVED, variants.ALL_SAVED, LEAST):
        with training_worker(variant, shape, metered=True) as worker:
            if variant is LEAST:
                worker.call("wait_for_plan")
            peaks[variant.name] = worker.call("peak_bytes")
            result = worker.call("result")
        expected = expected or result
        require_equal(variant.name, result, expected)
    return expected, peaks


def step_samplers(workers, shape):
    """For timing.measure: CPU seconds of a step of each worker."""
    return {name: functools.partial(worker.call, "step_seconds", shape.steps, shape.warm_steps) for name, worker in workers.items()}


def require_equal(name, result, expected):
    """Raises unless the loss and all gradients are plain training's, to the bit."""
    (loss, gradients), (expected_loss, expected_gradients) = result, expected
    if loss != expected_loss:
        raise AssertionError(f"{name}: loss {loss!r} is not plain training's {expected_loss!r}")
    different = [parameter for parameter in expected_gradients if gradients[parameter] != expected_gradients[parameter]]
    if different:
        raise AssertionError(f"{name}: {len(different)} of {len(gradients)} gradients differ from plain's, first {different[0]}")


def _print(shape, figures, headline, over_plain, activation):
    # The ideal rerun holds what it reads: it is for its time alone.
    rows = [
        [
            name,
            estimate,
            estimate.count,
            report.mebibytes(activation[name]) if name in activation else "-",
            f"{activation[name] / activation[FULL]:.3f}" if name in activation else "-",
        ]
        for name, estimate in sorted(over_plain.items(), key=lambda item: item[1].median)
    ]
    report.print_table(
        f"{shape.name}: {shape.model_type}, {shape.batch} x {shape.tokens} tokens, {figures['dtype']}, plain step "
        f"{figures['plain_seconds'] * 1e3:.1f} ms; medians with 90 % intervals; peaks above what is alive before the step",
        ["variant", "time / plain", "pairs", "peak MiB", "peak / checkpoint"],
        rows,
    )
    for name, estimate in headline.items():
        print(f"  {name} = {estimate}")
    for name, rival in figures["rivals"].items():
        feasible = "" if rival["tidetape_feasible"] else ", more than this limit"
        print(
            f"  tidetape / {name} = {rival['tidetape_over_it']:.3f}, at {rival['tidetape_peak_over_it']:.3f} of its peak{feasible}"
        )
    for name in ("peak_over_checkpoint", "min_peak_over_checkpoint"):
        print(f"  {name} = {figures[name]:.4f}", flush=True)
