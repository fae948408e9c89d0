"""Times replay against plain training, torch's checkpointing, selective policies, torch_remat and the ideal.

    python -m tests.benchmarks.bench_replay [--shapes op_bound,moe,random] [--seed N] [--rounds N] [--quick]
    python -m tests.benchmarks.bench_replay --config config.json --batch 2 --tokens 128 --dtype float32
    python -m tests.benchmarks.bench_replay --model-type llama --set hidden_size=256 --set num_hidden_layers=4

Forward and backward of a Hugging Face model built from a config, without an optimizer. Every variant's loss and gradients are first
compared with plain training's, to the bit. Beside the fixed shapes runs one drawn by a seed. The last line is JSON.
"""

import argparse
import secrets
import sys

from tests.benchmarks import timing

if __name__ == "__main__":
    timing.fix_process_settings(__spec__.name)

import torch
from tqdm import tqdm

from tests.benchmarks import recording, report, shapes
from tests.benchmarks.comparison import compare
from tests.benchmarks.random_shape import random_shape

# What a median with a 90 % interval is asked of; --quick takes fewer, for a look.
LEAST_PAIRS = 60
QUICK_ROUNDS = 5
RANDOM = "random"


def main():
    options = parse_options()
    torch.set_num_threads(1)
    result = {"shapes": {}}
    for shape in chosen_shapes(options):
        shape = shapes.with_usable_dtype(shape, forced=options.keep_dtype)
        rounds = QUICK_ROUNDS if options.quick else options.rounds or shape.rounds
        if rounds < LEAST_PAIRS:
            print(f"{shape.name}: {rounds} rounds are too few for figures to quote, those take {LEAST_PAIRS}", file=sys.stderr)
        result["shapes"][shape.name] = compare(shape, rounds, progress_bar(shape.name))
    rounds = QUICK_ROUNDS if options.quick else options.rounds or shapes.OP_BOUND.rounds
    result |= recording.measure_recording(shapes.OP_BOUND, rounds, progress_bar("recording"))
    report.print_json(result)


def chosen_shapes(options):
    if options.config or options.model_type:
        return [
            shapes.custom_shape(
                options.config, options.model_type, options.set, options.batch, options.tokens, options.dtype, LEAST_PAIRS
            )
        ]
    return [drawn_shape(options.seed) if name == RANDOM else shapes.SHAPES[name] for name in options.shapes.split(",")]


def drawn_shape(seed):
    """The random shape; says how to have it again."""
    shape = random_shape(seed)
    print(f"{RANDOM}: --seed {seed} is {shape.model_type}, {shape.batch} x {shape.tokens} tokens, {shape.config}", flush=True)
    return shape


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shapes", default=",".join([*shapes.SHAPES, RANDOM]), help="names separated by commas (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(10**6), help="of the random shape (default: another each time)"
    )
    parser.add_argument("--rounds", type=int, help=f"each variant runs once a round (default: by shape, at least {LEAST_PAIRS})")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROUNDS} rounds: a look, no figures to quote")
    parser.add_argument(
        "--keep-dtype", action="store_true", help="time bfloat16 shapes in bfloat16 also where the CPU only emulates it"
    )
    parser.add_argument("--config", help="a Hugging Face config.json of a causal language model, instead of the named shapes")
    parser.add_argument("--model-type", help="Hugging Face's name of an architecture, instead of --config")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="overrides a key of the config; VALUE is JSON"
    )
    parser.add_argument("--batch", type=int, default=1, help="sequences a step, with --config or --model-type (default: 1)")
    parser.add_argument("--tokens", type=int, default=128, help="tokens a sequence, likewise (default: 128)")
    parser.add_argument("--dtype", default="float32", help="of the parameters, likewise (default: float32)")
    return parser.parse_args()


def progress_bar(label):
    """A function for timing.measure that shows how far it is; on stderr, and only where somebody looks."""
    bar = None

    def show(done, total):
        nonlocal bar
        if bar is None:
            bar = tqdm(total=total, desc=label, unit="round", disable=not sys.stderr.isatty(), leave=False)
        bar.update(done - bar.n)
        if done == total:
            bar.close()

    return show


if __name__ == "__main__":
    main()
