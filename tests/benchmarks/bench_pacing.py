"""Times FSDP2 steps over slow links, paced by the planner and unpaced, in turn, in one run.

    python -m tests.benchmarks.bench_pacing [--rounds N]

Two ranks on two hosts (network namespaces), with a link in user space between them (collectives/testing/slow_link.h):

    plain         100 MB/s, 0.5 ms, and flow control: who sends more than the queue of 256 KiB holds waits
    finite_queue  the same, but a queue that is overrun drops: the link then carries nothing new for 20 ms

The ranks train beside a real tidetape-server, which plans their pacing from what they measured of the link. Then the pacing of the
plan and that of the start take turns, by the ranks' own agreement. Times are of forward and backward, of the slower rank in a
round, as the median of rounds. Needs root and iproute2. The last line is JSON:

    {link: {"step_paced_over_unpaced", "paced_step_seconds", "unpaced_step_seconds", "pacing", "measured"}}
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.report import print_json, print_table
from tests.benchmarks.timing import MALLOC_SETTINGS, THREAD_SETTINGS
from tests.collectives.two_hosts import TwoHosts, address

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "agent" / "python" / "tests"))
RATE, DELAY_SECONDS, QUEUE_BYTES = 100e6, 0.5e-3, 256 << 10
LINKS = {"plain": 0.0, "finite_queue": 20e-3}
PORT = 50551
ROUNDS, WARM_UP_ROUNDS, STEPS_TO_PLAN = 9, 2, 60
TIMEOUT_SECONDS = 600
# Generations far above those of plans, for pacings that take turns.
FIRST_OWN_GENERATION = 1 << 20
CONFIG = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1024,
}


def over_slow_link(stall):
    """Puts a link before this rank: whoever connects to it goes over the link."""
    from tidetape.fsdp.roll_call import RollCall

    plain = RollCall.set

    def set_with_link(self, key, value):
        lines = value.split(b"\n")
        for number, line in enumerate(lines):
            if line.startswith(b"tcp\t"):
                lines[number] = b"tcp\t" + start_proxy(line.removeprefix(b"tcp\t").decode(), stall).encode()
        plain(self, key, b"\n".join(lines))

    RollCall.set = set_with_link


def start_proxy(target, stall):
    """The endpoint of a link that leads to `target`, both as "address port". It goes with this process."""
    command = [ROOT / "bazel-bin/collectives/testing/slow_link_proxy", *target.split()]
    command += [str(figure) for figure in (RATE, DELAY_SECONDS, QUEUE_BYTES, stall)]
    proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _proxies.append(proxy)
    return proxy.stdout.readline().strip()


_proxies = []


class Training:
    """A model between two hosts, and the pacing of its collectives."""

    def __init__(self, planner):
        import torch
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        from transformers import AutoConfig, AutoModelForCausalLM

        import tidetape

        torch.manual_seed(0)
        self.model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", use_cache=False, **CONFIG)).train()
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in self.model.model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(self.model, mp_policy=policy)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.session = tidetape.attach(self.model, memory_limit="90%", planner=planner, job="bench-pacing", collectives="tide")
        self.tokens = torch.randint(CONFIG["vocab_size"], (2, 64), generator=torch.Generator().manual_seed(1))
        self.generation = FIRST_OWN_GENERATION

    def step(self):
        """Seconds of forward and backward."""
        import torch.distributed as dist

        with self.session.step():
            dist.barrier()
            start = time.perf_counter()
            self.model(input_ids=self.tokens, labels=self.tokens).loss.backward()
            seconds = time.perf_counter() - start
            self.optimizer.step()
            self.optimizer.zero_grad()
        return seconds

    def planned(self):
        """The planner's pacing, once the ranks run it."""
        for _ in range(STEPS_TO_PLAN):
            self.step()
            plan = self.session.plan
            if plan.pacing is not None and self.session.collectives.pacing_generation == plan.generation:
                return plan.pacing
        raise RuntimeError(f"no pacing in {STEPS_TO_PLAN} steps: {self.session.planner_state()}")

    def switch(self, pacing):
        """All ranks run it from the end of the next step on."""
        self.generation += 1
        self.session.collectives.arm(self.generation, pacing)
        self.step()
        if self.session.collectives.pacing_generation != self.generation:
            raise RuntimeError(f"the ranks did not switch to pacing {self.generation}")


def train(rank, planner, stall, rounds):
    """What one rank measured; run by run_ranks."""
    import torch

    torch.set_num_threads(1)
    over_slow_link(stall)
    training = Training(planner)
    paced = training.planned()
    options = training.session.collectives.options
    unpaced = paced | {
        "algorithm": "recursive doubling",
        "chunk_bytes": options.chunk_bytes,
        "puts_in_flight": 256,
        "chunk_gap_seconds": 0.0,
        "staging_slots": 2,
    }
    seconds = {"paced": [], "unpaced": []}
    for done in range(WARM_UP_ROUNDS + rounds):
        ways = [("paced", paced), ("unpaced", unpaced)]
        for name, pacing in ways if done % 2 else reversed(ways):
            training.switch(pacing)
            seconds[name].append(training.step())
    measured = training.session.collectives.network_link
    training.session.detach()
    for proxy in _proxies:
        proxy.kill()
    return {
        "seconds": {name: times[WARM_UP_ROUNDS:] for name, times in seconds.items()},
        "pacing": paced,
        "measured": measured,
    }


def on_link(hosts, holder, stall, rounds):
    """Results of both ranks over a link, beside a server on the first host."""
    from ranks import run_ranks

    command = ["nsenter", "--target", str(holder), "--net", ROOT / "bazel-bin/server/tidetape-server"]
    command += [f"--listen={address(0)}:{PORT}", "--allow_plaintext", "--store=memory", "--http_listen=", "--log_level=warning"]
    server = subprocess.Popen(command)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return run_ranks(
                train,
                2,
                Path(folder),
                f"{address(0)}:{PORT}",
                stall,
                rounds,
                timeout_seconds=TIMEOUT_SECONDS,
                meeting=hosts.meeting,
                before=hosts.enter(per_host=1),
            )
    finally:
        server.terminate()
        server.wait(20)


def measure(rounds=ROUNDS):
    """The figures of each link, as above; an empty dict where there cannot be two hosts. Prints a table."""
    os.environ.update(MALLOC_SETTINGS | THREAD_SETTINGS)
    report = {}
    try:
        with TwoHosts() as hosts:
            for link, stall in LINKS.items():
                results = on_link(hosts, hosts.holder(0), stall, rounds)
                times = {
                    way: [max(both) for both in zip(*(r["seconds"][way] for r in results), strict=True)]
                    for way in ("paced", "unpaced")
                }
                report[link] = {
                    "step_paced_over_unpaced": statistics.median(
                        a / b for a, b in zip(times["paced"], times["unpaced"], strict=True)
                    ),
                    "paced_step_seconds": statistics.median(times["paced"]),
                    "unpaced_step_seconds": statistics.median(times["unpaced"]),
                    "pacing": results[0]["pacing"],
                    "measured": results[0]["measured"],
                }
    except OSError as error:
        print(f"no pacing: {error}", file=sys.stderr)
        return {}
    rows = [
        (
            link,
            f"{found['step_paced_over_unpaced']:.3f}",
            f"{1e3 * found['paced_step_seconds']:.0f}",
            f"{1e3 * found['unpaced_step_seconds']:.0f}",
            found["pacing"]["chunk_bytes"] >> 10,
            found["pacing"]["puts_in_flight"],
            f"{1e3 * found['pacing']['chunk_gap_seconds']:.2f}",
        )
        for link, found in report.items()
    ]
    print_table(
        "Steps over slow links", ("link", "paced / unpaced", "paced ms", "unpaced ms", "chunk KiB", "in flight", "gap ms"), rows
    )
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    print_json(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    main()
