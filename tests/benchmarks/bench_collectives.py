"""Times FSDP2 over its stock gloo collectives and over Tidetape's, in turn, in one run.

    python -m tests.benchmarks.bench_collectives [--ranks 2 4] [--rounds N] [--staging-ranks 2 4 8 16]

A model of transformer layers with float32 parameters, bfloat16 compute and float32 sums, on ranks of this host. Figures, all of the
slowest rank in a round, as the median of rounds:

    collective_over_stock    wall time of a step inside FSDP2's collective path, conversions and waiting for peers included, over
                             stock's in the same round
    collective_over_memcpy   a step's collectives alone, each between barriers, over copying the bytes that a rank receives out of a
                             peer's shared memory in one go
    step_over_stock          forward and backward
    extra_bytes              a rank's step peak, with the arena's private memory and its share of what the host shares, less stock's
    staging_bytes            what the arena maps for a rank alone, by number of ranks, with shards of one size
    pacing                   steps over slow links; see bench_pacing

The last line is JSON.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import bench_pacing
from tests.benchmarks.report import print_json, print_table
from tests.benchmarks.timing import MALLOC_SETTINGS, THREAD_SETTINGS

TIMEOUT_SECONDS = 1200


def over(results, name, other):
    """Median over rounds of the ratio of the slowest ranks' times."""
    slowest = {
        what: [max(times) for times in zip(*(result["seconds"][what] for result in results), strict=True)] for what in (name, other)
    }
    return statistics.median(a / b for a, b in zip(slowest[name], slowest[other], strict=True))


def summarise(results):
    """The figures of one number of ranks, and beside them what they are made of."""
    return {
        "collective_over_stock": over(results, "tide_communication", "stock_communication"),
        "collective_over_memcpy": over(results, "tide_alone", "memcpy"),
        "step_over_stock": over(results, "tide_step", "stock_step"),
        "extra_bytes": max(result["peak_bytes"]["tide"] - result["peak_bytes"]["stock"] for result in results),
        "stock_communication_over_step": over(results, "stock_communication", "stock_step"),
        "tide_communication_over_step": over(results, "tide_communication", "tide_step"),
        "stock_alone_over_memcpy": over(results, "stock_alone", "memcpy"),
        "stock_step_seconds": statistics.median(max(s) for s in zip(*(r["seconds"]["stock_step"] for r in results), strict=True)),
        "received_bytes": results[0]["received_bytes"],
        "stock_peak_bytes": max(result["peak_bytes"]["stock"] for result in results),
        "arena_bytes": results[0]["arena_bytes"],
        "stock_units": results[0]["reasons"],
    }


def on_ranks(what, ranks, rounds):
    """What each rank returned from `what` of collective_ranks."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command += ["-m", __spec__.name, "--child", what, "--folder", folder, "--rounds", str(rounds)]
        environment = os.environ | MALLOC_SETTINGS | THREAD_SETTINGS
        subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS, env=environment)
        return json.loads((Path(folder) / "result.json").read_text())


def run_child(options):
    import torch.distributed as dist

    from tests.benchmarks import collective_ranks

    dist.init_process_group("gloo")
    if options.child == "measure":
        result = collective_ranks.measure(options.rounds, options.folder)
    else:
        result = collective_ranks.staging_bytes()
    results = [None] * dist.get_world_size()
    dist.all_gather_object(results, result)
    if dist.get_rank() == 0:
        (options.folder / "result.json").write_text(json.dumps(results))
    # The models hold on to the group in cycles. Its threads take Python's lock to let go of what they gathered: while the
    # interpreter ends, that aborts the process, so they must be gone before.
    gc.collect()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--staging-ranks", type=int, nargs="*", default=[2, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--child", choices=["measure", "staging"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(options)
        return
    report = {"ranks": {str(ranks): summarise(on_ranks("measure", ranks, options.rounds)) for ranks in options.ranks}}
    report["staging_bytes"] = {str(ranks): max(on_ranks("staging", ranks, 0)) for ranks in options.staging_ranks}
    report["pacing"] = bench_pacing.measure()
    rows = [
        (
            ranks,
            f"{found['collective_over_stock']:.3f}",
            f"{100 * found['stock_communication_over_step']:.1f} %",
            f"{100 * found['tide_communication_over_step']:.1f} %",
            f"{found['collective_over_memcpy']:.2f}",
            f"{found['stock_alone_over_memcpy']:.2f}",
            f"{found['step_over_stock']:.3f}",
            f"{found['extra_bytes'] / 1e6:.1f}",
        )
        for ranks, found in report["ranks"].items()
    ]
    header = ("ranks", "comm / stock", "stock comm", "tide comm", "alone / memcpy", "stock", "step / stock", "extra MB")
    print_table("Collectives of a step", header, rows)
    print_json(report)


if __name__ == "__main__":
    main()
