"""What recording costs an op, above a bare boxed redispatch of the same ops measured beside it."""

import contextlib
import functools

from tests.benchmarks import report, timing, variants
from tests.benchmarks.intervals import difference
from tests.benchmarks.shape_training import ShapeTraining
from tests.benchmarks.workers import Worker


def measure_recording(shape, rounds, progress):
    """Forward four ways, each doing one thing more: plain, intercepted and passed on, recorded, with saved-tensor hooks.

    Figures are per op that the blocks dispatch below autograd, intercepted or not.
    """
    compared = (variants.PLAIN, variants.BARE_REDISPATCH, variants.RECORDING_WITHOUT_HOOKS, variants.NOTHING_SAVED)
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(variant.name, functools.partial(ShapeTraining, variant, shape))) for variant in compared
        ]
        seconds = timing.measure(
            {worker.name: functools.partial(worker.call, "forward_seconds", shape.steps, shape.warm_steps) for worker in workers},
            rounds,
            progress=progress,
        )
        intercepted = workers[1].call("intercepted_ops")
        # Last, because capturing holds all tensors of a step for a while.
        dispatched = workers[0].call("dispatched_ops")
    plain, bare, recorded, hooked = (seconds[variant.name] for variant in compared)
    figures = {
        "bare_redispatch_us_per_op": difference(bare, plain, dispatched * 1e-6),
        "record_us_per_op": difference(recorded, bare, dispatched * 1e-6),
        "saved_hooks_us_per_op": difference(hooked, recorded, dispatched * 1e-6),
    }
    report.print_table(
        f"{shape.name}: forward with {dispatched} ops in its blocks, {intercepted} of them intercepted; microseconds an op of all",
        ["", "us / op", "pairs"],
        [
            ["bare redispatch above plain", figures["bare_redispatch_us_per_op"], rounds],
            ["recording above bare redispatch", figures["record_us_per_op"], rounds],
            ["saved-tensor hooks above recording", figures["saved_hooks_us_per_op"], rounds],
        ],
    )
    return (
        {name: estimate.median for name, estimate in figures.items()}
        | {f"{name}_interval": estimate.as_json() for name, estimate in figures.items()}
        | {"dispatched_ops": dispatched, "intercepted_ops": intercepted}
    )
