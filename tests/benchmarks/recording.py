"""What recording costs an op, above a bare boxed redispatch of the same ops measured beside it."""

import functools

import tidetape
from tests.benchmarks import report, timing
from tests.benchmarks.intervals import difference
from tests.benchmarks.shapes import build_batch, build_model
from tests.benchmarks.variants import Variant, blocks_of


def measure_recording(shape, rounds, progress):
    """Forward of the blocks three ways: plain, every op through a fallback that does nothing, every op recorded."""
    model = build_model(shape)
    batch = build_batch(shape, model)
    plain = Variant("plain", model, batch)
    bare = Variant("bare redispatch", model, batch, _redispatch_barely)
    recorded = Variant(
        "recorded", model, batch, lambda model: tidetape.attach(model, blocks=blocks_of(model), memory_limit="min", planner=None)
    )
    variants = [plain, bare, recorded]
    for variant in variants:
        variant.result()
    before = tidetape._C.intercepted_ops()
    bare.result()
    ops = tidetape._C.intercepted_ops() - before

    seconds = timing.measure({v.name: v.forward_seconds for v in variants}, rounds, progress=progress)
    recorded.close()
    microseconds = ops * 1e-6
    record = difference(seconds[recorded.name], seconds[bare.name], microseconds)
    redispatch = difference(seconds[bare.name], seconds[plain.name], microseconds)
    report.print_table(
        f"recording {ops} ops, microseconds an op with saved-tensor hooks; medians with 90 % intervals",
        ["", "us / op", "pairs"],
        [["bare redispatch above plain", redispatch, redispatch.count], ["recording above bare redispatch", record, record.count]],
    )
    return {
        "record_us_per_op": record.median,
        "record_us_per_op_interval": record.as_json(),
        "bare_redispatch_us_per_op": redispatch.median,
        "recorded_ops": ops,
    }


def _redispatch_barely(model):
    for block in blocks_of(model):
        block.forward = functools.partial(_within_bare_redispatch, block.forward)


def _within_bare_redispatch(forward, *args, **kwargs):
    with tidetape._C.BareRedispatch():
        return forward(*args, **kwargs)
