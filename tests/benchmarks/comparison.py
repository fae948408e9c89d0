"""Compares all ways of training one shape: gradients, step peaks, times."""

import contextlib

from tests.benchmarks import report, timing, variants
from tests.benchmarks.intervals import median_interval, ratio
from tests.benchmarks.workers import Worker

PLAIN, FULL = variants.PLAIN.name, variants.FULL_CHECKPOINT.name
NOTHING, ALL = variants.NOTHING_SAVED.name, variants.ALL_SAVED.name
PLANNED = "tidetape, best SAC's memory"
POLICIES = (variants.SAC_TITAN, variants.SAC_ALL_MATMULS)
# The policies are ranked before the timed rounds, in which only the best of them runs.
RANKING_ROUNDS = 5


def compare(shape, rounds, progress):
    """The figures of one shape, as they go into the JSON."""
    expected, peaks = _results_and_peaks(shape)
    ranking = _rank(shape, min(RANKING_ROUNDS, rounds))
    best = min(POLICIES, key=lambda policy: ranking[policy.name].median)
    planned = variants.planned(PLANNED, memory_limit_bytes=peaks[best.name][0])
    timed = [variants.PLAIN, variants.FULL_CHECKPOINT, best, variants.NOTHING_SAVED, planned, variants.ALL_SAVED]
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(variant, shape)) for variant in timed]
        by_name = {worker.name: worker for worker in workers}
        saved_bytes = by_name[PLANNED].call("wait_for_plan")
        _require_equal(PLANNED, by_name[PLANNED].call("result"), expected)
        seconds = timing.measure(_samplers(workers, shape), rounds, progress=progress)
        for worker in workers:
            _require_equal(worker.name, worker.call("result"), expected)
        peaks[PLANNED] = by_name[PLANNED].call("peak_bytes")

    ratios = ranking | {variant.name: ratio(seconds[variant.name], seconds[PLAIN]) for variant in timed}
    activation = {name: peak - before for name, (peak, before) in peaks.items()}
    headline = {
        "replay_over_checkpoint": ratio(seconds[NOTHING], seconds[FULL]),
        "replay_over_best_policy": ratio(seconds[PLANNED], seconds[best.name]),
        "attach_save_all_over_plain": ratio(seconds[ALL], seconds[PLAIN]),
    }
    figures = {name: estimate.median for name, estimate in headline.items()} | {
        "peak_over_checkpoint": activation[NOTHING] / activation[FULL],
        "peak_over_best_policy": activation[PLANNED] / activation[best.name],
        "best_policy": best.name,
        "planned_saved_bytes": saved_bytes,
        "dtype": str(shape.dtype).removeprefix("torch."),
        "plain_seconds": median_interval(seconds[PLAIN]).median,
        "intervals": {name: estimate.as_json() for name, estimate in headline.items()},
        "over_plain": {name: estimate.as_json() for name, estimate in ratios.items()},
        "peak_bytes": activation,
    }
    _print(shape, figures, headline, ratios, activation)
    return figures


def _results_and_peaks(shape):
    """(plain training's loss and gradients, {variant: (step peak, bytes before)}); every variant's gradients were compared."""
    expected, peaks = None, {}
    for variant in (variants.PLAIN, variants.FULL_CHECKPOINT, *POLICIES, variants.NOTHING_SAVED, variants.ALL_SAVED):
        with Worker(variant, shape, metered=True) as worker:
            peaks[variant.name] = worker.call("peak_bytes")
            result = worker.call("result")
        expected = expected or result
        _require_equal(variant.name, result, expected)
    return expected, peaks


def _rank(shape, rounds):
    """The policies' times over plain."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(variant, shape)) for variant in (variants.PLAIN, *POLICIES)]
        seconds = timing.measure(_samplers(workers, shape), rounds)
    return {policy.name: ratio(seconds[policy.name], seconds[PLAIN]) for policy in POLICIES}


def _samplers(workers, shape):
    def sampler(worker):
        return lambda: worker.call("step_seconds", shape.steps, shape.warm_steps)

    return {worker.name: sampler(worker) for worker in workers}


def _require_equal(name, result, expected):
    """Raises unless the loss and all gradients are plain training's, to the bit."""
    (loss, gradients), (expected_loss, expected_gradients) = result, expected
    if loss != expected_loss:
        raise AssertionError(f"{name}: loss {loss!r} is not plain training's {expected_loss!r}")
    different = [parameter for parameter in expected_gradients if gradients[parameter] != expected_gradients[parameter]]
    if different:
        raise AssertionError(f"{name}: {len(different)} of {len(gradients)} gradients differ from plain's, first {different[0]}")


def _print(shape, figures, headline, ratios, activation):
    rows = [
        [name, estimate, estimate.count, report.mebibytes(activation[name]), f"{activation[name] / activation[FULL]:.3f}"]
        for name, estimate in sorted(ratios.items(), key=lambda item: item[1].median)
    ]
    report.print_table(
        f"{shape.name}: {shape.model_type}, {shape.batch} x {shape.tokens} tokens, {figures['dtype']}, plain step "
        f"{figures['plain_seconds'] * 1e3:.1f} ms; medians with 90 % intervals; peaks above what is alive before the step",
        ["variant", "time / plain", "pairs", "peak MiB", "peak / checkpoint"],
        rows,
    )
    for name, estimate in headline.items():
        print(f"  {name} = {estimate}")
    print(f"  peak_over_checkpoint = {figures['peak_over_checkpoint']:.4f}", flush=True)
