"""Compares all ways of training one shape: gradients, step peaks, times."""

import functools

import tidetape
from tests.benchmarks import report, rivals, timing
from tests.benchmarks.intervals import median_interval, ratio
from tests.benchmarks.shapes import build_batch, build_model
from tests.benchmarks.variants import Variant, blocks_of, require_equal, step_peak

SAC_POLICIES = {"SAC titan": rivals.titan_policy, "SAC all mm+attn": rivals.all_matmuls_policy}
# The policies are ranked before the timed rounds, in which only the best of them runs.
RANKING_ROUNDS = 9
# The planner needs a few steps to measure; after so many without a plan something is wrong.
MOST_STEPS_TO_PLAN = 60


def compare(shape, rounds, progress):
    """The figures of one shape, as they go into the JSON."""
    model = build_model(shape)
    batch = build_batch(shape, model)
    plain = Variant("plain", model, batch)
    full = Variant("full checkpoint", model, batch, lambda model: rivals.checkpoint_blocks(blocks_of(model)))
    policies = [Variant(name, model, batch, functools.partial(_selective, policy)) for name, policy in SAC_POLICIES.items()]
    nothing_saved = Variant("nothing saved", model, batch, _attach_nothing_saved)
    all_saved = Variant("all saved", model, batch, _attach("max"))
    variants = [plain, full, *policies, nothing_saved, all_saved]

    loss, gradients = plain.result()
    peaks = {}
    for variant in variants:
        require_equal(variant, loss, gradients)
        peaks[variant.name] = step_peak(variant, tidetape._C)

    ranking = timing.measure({v.name: v.seconds for v in [plain, *policies]}, min(RANKING_ROUNDS, rounds))
    best = min(policies, key=lambda v: ratio(ranking[v.name], ranking[plain.name]).median)
    limit, _ = peaks[best.name]
    planned = Variant("at best policy's memory", model, batch, _attach(limit))
    _wait_for_plan(planned)
    require_equal(planned, loss, gradients)
    peaks[planned.name] = step_peak(planned, tidetape._C)

    timed = [plain, full, best, nothing_saved, planned, all_saved]
    seconds = timing.measure({v.name: v.seconds for v in timed}, rounds, progress=progress)
    ratios = {v.name: ratio(seconds[v.name], seconds[plain.name]) for v in timed}
    for policy in policies:
        if policy is not best:
            ratios[policy.name] = ratio(ranking[policy.name], ranking[plain.name])
    peaks[planned.name] = step_peak(planned, tidetape._C)  # again, after all the steps in between
    for variant in (nothing_saved, planned, all_saved):
        require_equal(variant, loss, gradients)

    activation = {name: peak - before for name, (peak, before) in peaks.items()}
    headline = {
        "replay_over_checkpoint": ratio(seconds[nothing_saved.name], seconds[full.name]),
        "replay_over_best_policy": ratio(seconds[planned.name], seconds[best.name]),
        "attach_save_all_over_plain": ratio(seconds[all_saved.name], seconds[plain.name]),
    }
    figures = {name: estimate.median for name, estimate in headline.items()} | {
        "peak_over_checkpoint": activation[nothing_saved.name] / activation[full.name],
        "peak_over_best_policy": activation[planned.name] / activation[best.name],
        "best_policy": best.name,
        "dtype": str(shape.dtype).removeprefix("torch."),
        "plain_seconds": median_interval(seconds[plain.name]).median,
        "intervals": {name: estimate.as_json() for name, estimate in headline.items()},
        "over_plain": {name: estimate.as_json() for name, estimate in ratios.items()},
        "peak_bytes": activation,
    }
    _print(shape, figures, headline, ratios, activation)
    for variant in (nothing_saved, planned, all_saved):
        variant.close()
    return figures


def _selective(policy, model):
    rivals.checkpoint_blocks_saving(blocks_of(model), policy)


def _attach(memory_limit):
    def prepare(model):
        return tidetape.attach(model, blocks=blocks_of(model), memory_limit=memory_limit, planner="local")

    return prepare


def _attach_nothing_saved(model):
    # "min" plans once it has measured; without a planner it stays with nothing saved.
    return tidetape.attach(model, blocks=blocks_of(model), memory_limit="min", planner=None)


def _wait_for_plan(variant):
    for _ in range(MOST_STEPS_TO_PLAN):
        if variant.session.plan.generation > 0:
            return
        variant.zero_gradients()
        variant.run()
    raise AssertionError(f"{variant.name}: no plan after {MOST_STEPS_TO_PLAN} steps")


def _print(shape, figures, headline, ratios, activation):
    rows = [
        [
            name,
            estimate,
            estimate.count,
            report.mebibytes(activation[name]),
            f"{activation[name] / activation['full checkpoint']:.3f}",
        ]
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
