"""Times Tidetape at the measured memory of every rival that runs in eager PyTorch, and shows torch.compile's budgets beside them.

    python -m tests.benchmarks.bench_rivals [--shapes op_bound,moe] [--rounds N] [--no-compile] [--plot PATH]

Forward and backward, as in bench_replay. A rival's gradients are compared with plain training's first: a rival whose gradients are
wrong, or that fails, is named and not timed. Then plain training, the rival and Tidetape under a limit of the rival's step peak run
in turn. Writes a chart of all points (step peak, time); the last line is JSON.
"""

import argparse
import contextlib
import functools

from tests.benchmarks import timing

if __name__ == "__main__":
    timing.fix_process_settings(__spec__.name)

import torch

from tests.benchmarks import report, rivals, shapes, variants
from tests.benchmarks.bench_replay import progress_bar
from tests.benchmarks.comparison import require_equal, step_samplers, training_worker
from tests.benchmarks.intervals import ratio
from tests.benchmarks.points_chart import draw_points
from tests.benchmarks.xformers_policy import checkpoint_blocks_by_choices

ROUNDS = 20
XFORMERS_BUDGETS = (0.25, 0.5, 0.75)
COMPILE_BUDGETS = (0.0, 0.5, 1.0)
PLOT = "build/rivals.svg"


def main():
    options = parse_options()
    torch.set_num_threads(1)
    result = {"shapes": {}}
    for name in options.shapes.split(","):
        shape = shapes.with_usable_dtype(shapes.SHAPES[name], forced=options.keep_dtype)
        result["shapes"][name] = compare(shape, options.rounds, compiled=options.compile)
    draw_points(result["shapes"], options.plot)
    print(f"chart: {options.plot}")
    judged = [rival for shape in result["shapes"].values() for rival in shape["rivals"].values() if "tidetape_over_it" in rival]
    result |= {
        "rivals_timed": len(judged),
        "rivals_reached": sum(rival["tidetape_over_it"] <= 1.01 for rival in judged),
        "rivals_beaten": sum(rival["tidetape_over_it"] < 1 for rival in judged),
        "memory_kept": sum(rival["tidetape_peak_over_it"] <= 1 for rival in judged),
    }
    report.print_json(result)


def compare(shape, rounds, compiled):
    """All rivals of one shape; {"rivals": {name: figures}, "compile": {name: figures}}."""
    with training_worker(variants.PLAIN, shape, metered=True) as worker:
        plain_peak, before = worker.call("peak_bytes")
        expected = worker.call("result")
    base = {"peak": plain_peak - before, "expected": expected}
    figures = {rival.name: against(rival, shape, rounds, base) for rival in eager_rivals(shape)}
    budgets = {rival.name: beside(rival, shape, rounds, base) for rival in compile_budgets()} if compiled else {}
    report.print_table(
        f"{shape.name}: {shape.model_type}, {shape.batch} x {shape.tokens} tokens; medians over {rounds} rounds",
        ["rival", "peak / plain", "time / plain", "tidetape / plain", "tidetape / it", "peak / its"],
        [_row(name, values) for name, values in (figures | budgets).items()],
    )
    return {"rivals": figures, "compile": budgets}


def eager_rivals(shape):
    """What is raced: full checkpointing, every second layer, torch's SAC by two lists, torch_remat, xformers by three budgets."""
    return (
        variants.FULL_CHECKPOINT,
        variants.Variant("every second layer", lambda training: rivals.checkpoint_blocks(training.blocks[::2])),
        *variants.selective_policies(shape.has_experts),
        variants.REMAT_FULL,
        variants.REMAT_MATMULS,
        *_xformers_rivals(shape),
    )


def _xformers_rivals(shape):
    """xformers' choices are made in a process with the meter, and carried out in one without."""
    with training_worker(variants.PLAIN, shape, metered=True) as worker:
        for budget in XFORMERS_BUDGETS:
            choices = worker.call("xformers_choices", budget)
            yield variants.Variant(
                f"xformers {budget}", lambda training, choices=choices: checkpoint_blocks_by_choices(training.blocks, choices)
            )


def compile_budgets():
    """torch.compile of each block under activation_memory_budget."""
    return [variants.Variant(f"compile {budget}", functools.partial(_compile_blocks, budget=budget)) for budget in COMPILE_BUDGETS]


def _compile_blocks(training, budget):
    import torch._functorch.config

    torch._functorch.config.activation_memory_budget = budget
    for block in training.blocks:
        block.forward = torch.compile(block.forward)


def against(rival, shape, rounds, base):
    """A rival and Tidetape at its memory; why it was not timed where it was not."""
    try:
        peak, before = _checked_peak(rival, shape, base["expected"])
    except (AssertionError, RuntimeError) as error:
        # The last line of a worker's traceback says what failed.
        return {"not_timed": str(error).strip().splitlines()[-1]}
    ours = variants.planned(f"tidetape as {rival.name}", peak)
    with contextlib.ExitStack() as stack:
        workers = {v.name: stack.enter_context(training_worker(v, shape)) for v in (variants.PLAIN, rival, ours)}
        _, feasible = workers[ours.name].call("wait_for_plan")
        require_equal(ours.name, workers[ours.name].call("result"), base["expected"])
        seconds = _measure(workers, shape, rounds, rival.name)
        our_peak, our_before = workers[ours.name].call("peak_bytes")
    over_it = ratio(seconds[ours.name], seconds[rival.name])
    return {
        "peak_over_plain": (peak - before) / base["peak"],
        "time_over_plain": ratio(seconds[rival.name], seconds[variants.PLAIN.name]).median,
        "tidetape_over_plain": ratio(seconds[ours.name], seconds[variants.PLAIN.name]).median,
        "tidetape_over_it": over_it.median,
        "tidetape_over_it_interval": over_it.as_json(),
        "tidetape_peak_over_it": (our_peak - our_before) / (peak - before),
        "tidetape_peak_over_plain": (our_peak - our_before) / base["peak"],
        "tidetape_feasible": feasible,
    }


def beside(variant, shape, rounds, base):
    """Peak and time of a variant whose gradients need not equal plain training's to the bit."""
    try:
        with training_worker(variant, shape, metered=True) as worker:
            peak, before = worker.call("peak_bytes")
        with contextlib.ExitStack() as stack:
            workers = {v.name: stack.enter_context(training_worker(v, shape)) for v in (variants.PLAIN, variant)}
            seconds = _measure(workers, shape, rounds, variant.name)
    except RuntimeError as error:
        return {"not_timed": str(error).strip().splitlines()[-1]}
    return {
        "peak_over_plain": (peak - before) / base["peak"],
        "time_over_plain": ratio(seconds[variant.name], seconds[variants.PLAIN.name]).median,
    }


def _checked_peak(rival, shape, expected):
    """(step peak, bytes before the step) of a rival; raises where its gradients are not plain training's."""
    with training_worker(rival, shape, metered=True) as worker:
        measured = worker.call("peak_bytes")
        require_equal(rival.name, worker.call("result"), expected)
    return measured


def _measure(workers, shape, rounds, label):
    return timing.measure(step_samplers(workers, shape), rounds, progress=progress_bar(f"{shape.name}, {label}"))


def _row(name, values):
    if "not_timed" in values:
        return [name, f"not timed: {values['not_timed'][:60]}", "", "", "", ""]
    keys = ("peak_over_plain", "time_over_plain", "tidetape_over_plain", "tidetape_over_it", "tidetape_peak_over_it")
    return [name, *(f"{values[key]:.3f}" if key in values else "-" for key in keys)]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default=",".join(shapes.SHAPES), help="names separated by commas (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="each variant runs once a round (default: %(default)s)")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leaves out torch.compile's budgets")
    parser.add_argument("--keep-dtype", action="store_true", help="as in bench_replay")
    parser.add_argument("--plot", default=PLOT, help="where the chart goes (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
