"""What recording costs an op, above a bare boxed redispatch of the same ops measured beside it."""

import contextlib

from tests.benchmarks import report, timing, variants
from tests.benchmarks.intervals import difference
from tests.benchmarks.workers import Worker


def measure_recording(shape, rounds, progress):
    """Forward three ways: plain, every op of a block through a fallback that does nothing, every op recorded."""
    compared = (variants.PLAIN, variants.BARE_REDISPATCH, variants.NOTHING_SAVED)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(variant, shape)) for variant in compared]
        ops = workers[1].call("intercepted_ops")
        seconds = timing.measure(
            {
                worker.name: lambda worker=worker: worker.call("forward_seconds", shape.steps, shape.warm_steps)
                for worker in workers
            },
            rounds,
            progress=progress,
        )
    plain, bare, recorded = (seconds[variant.name] for variant in compared)
    record = difference(recorded, bare, ops * 1e-6)
    redispatch = difference(bare, plain, ops * 1e-6)
    report.print_table(
        f"{shape.name}: forward with {ops} ops, microseconds an op; recording includes the saved-tensor hooks",
        ["", "us / op", "pairs"],
        [["bare redispatch above plain", redispatch, redispatch.count], ["recording above bare redispatch", record, record.count]],
    )
    return {
        "record_us_per_op": record.median,
        "record_us_per_op_interval": record.as_json(),
        "bare_redispatch_us_per_op": redispatch.median,
        "recorded_ops": ops,
    }
