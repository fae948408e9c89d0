"""Times FSDP2's stock collectives over gloo, and the limit beside them: copying the bytes that a rank receives.

    python -m tests.benchmarks.bench_collectives [--ranks 2 4] [--rounds N]

Tidetape has no collectives of its own yet: this is the baseline that they will be held against; "tidetape" is null in the JSON on
the last line. Times are medians of rounds and of the slowest rank, in seconds a step; communication includes waiting for peers.
"""

import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LAYERS = 8
WIDTH = 512
TOKENS = 32
WARM_UP_ROUNDS = 2
TIMEOUT_SECONDS = 600


class Timed:
    """Stands for a collective of torch.distributed: counts what a rank receives from its peers, and the seconds inside."""

    def __init__(self, dist, name, received):
        self._function = getattr(dist, name)
        self._received = received
        self.seconds = 0.0
        self.bytes = 0
        setattr(dist, name, self)

    def __call__(self, output, input, *args, **kwargs):
        self.bytes += self._received(output, input)
        start = time.perf_counter()
        result = self._function(output, input, *args, **kwargs)
        self.seconds += time.perf_counter() - start
        return result


def shared_memory_copy(dist, torch, folder, count):
    """Returns a function that copies `count` bytes out of the memory that the next rank shares."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    with open(folder / str(rank), "wb") as file:
        file.write(os.urandom(count))
    dist.barrier()
    with open(folder / str((rank + 1) % world_size), "r+b") as file:
        source = torch.frombuffer(mmap.mmap(file.fileno(), count), dtype=torch.uint8)
    target = torch.empty(count, dtype=torch.uint8)
    return lambda: target.copy_(source)


def measure(rounds, folder):
    """What one rank runs. Returns {quantity: [seconds a round]} and the bytes that a rank receives a step."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    peers = dist.get_world_size() - 1
    gather = Timed(dist, "all_gather_single", lambda out, _: out.nbytes * peers // (peers + 1))
    scatter = Timed(dist, "reduce_scatter_single", lambda out, _: out.nbytes * peers)
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(LAYERS)]
    model = nn.Sequential(*layers)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    tokens = torch.randn(TOKENS, WIDTH)
    copy = None
    seconds = {"step": [], "communication": [], "memcpy": []}
    for _ in range(WARM_UP_ROUNDS + rounds):
        gather.seconds = scatter.seconds = gather.bytes = scatter.bytes = 0
        dist.barrier()
        start = time.perf_counter()
        model(tokens).float().square().mean().backward()
        seconds["step"].append(time.perf_counter() - start)
        seconds["communication"].append(gather.seconds + scatter.seconds)
        received = gather.bytes + scatter.bytes
        if copy is None:
            copy = shared_memory_copy(dist, torch, folder, received)
        dist.barrier()
        start = time.perf_counter()
        copy()
        seconds["memcpy"].append(time.perf_counter() - start)
    result = {"seconds": {name: values[WARM_UP_ROUNDS:] for name, values in seconds.items()}, "received_bytes": received}
    results = [None] * dist.get_world_size()
    dist.all_gather_object(results, result)
    dist.destroy_process_group()
    return results


def summarise(results):
    """Medians over rounds of the slowest rank's time."""
    median = {
        name: statistics.median(max(times) for times in zip(*(result["seconds"][name] for result in results), strict=True))
        for name in results[0]["seconds"]
    }
    return {
        "stock_step_seconds": median["step"],
        "stock_communication_over_step": median["communication"] / median["step"],
        "stock_communication_over_memcpy": median["communication"] / median["memcpy"],
        "received_bytes": results[0]["received_bytes"],
        "tidetape": None,
    }


def run_ranks(ranks, rounds):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command += ["-m", __spec__.name, "--child", folder, "--rounds", str(rounds)]
        subprocess.run(command, check=True, timeout=TIMEOUT_SECONDS, env={"OMP_NUM_THREADS": "1", **os.environ})
        return summarise(json.loads(out.read_text()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        results = measure(options.rounds, options.child)
        if os.environ["RANK"] == "0":
            (options.child / "result.json").write_text(json.dumps(results))
        return
    print("Stock FSDP2 over gloo only: Tidetape has no collectives of its own yet.")
    report = {"ranks": {}, "tidetape": None}
    for ranks in options.ranks:
        found = report["ranks"][str(ranks)] = run_ranks(ranks, options.rounds)
        print(
            f"{ranks} ranks: step {1e3 * found['stock_step_seconds']:.1f} ms, communication "
            f"{100 * found['stock_communication_over_step']:.1f} % of it and {found['stock_communication_over_memcpy']:.1f} times "
            f"the copy of the {found['received_bytes'] / 1e6:.1f} MB received"
        )
    print(json.dumps(report))


if __name__ == "__main__":
    main()
