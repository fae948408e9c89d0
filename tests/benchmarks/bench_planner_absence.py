"""What a planner that goes away costs a training of two ranks: its server is killed and started again in alternating windows.

    python -m tests.benchmarks.bench_planner_absence [--windows N] [--seconds S]

CPU time of a step (all threads of a rank), pooled over the windows with a server and those without; the agent's own time on the
training thread; how soon the job is back at the new server with its tapes. The last line is JSON.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tests.benchmarks import report
from tests.planner_server import PlannerServer
from tests.processes import ROOT
from tests.rank_training import RANKS, RankTraining

FIRST_PLAN_SECONDS = 120
# The target for the return of a job is 5 s; waiting longer shows by how much it is missed.
MOST_BACK_SECONDS = 60
# Everything fits, so that every plan is the same, and with it the work of a step.
LIMIT = "90%"


def main():
    options = parse_options()
    programs = ROOT / "bazel-bin" / "server"
    server = PlannerServer(programs / "tidetape-server", programs / "tidetapectl")
    server.start()
    try:
        with tempfile.TemporaryDirectory() as folder, RankTraining(Path(folder), server.address, LIMIT) as training:
            result = alternate(server, training, options)
    finally:
        server.stop()
    report.print_json(result)


def alternate(server, training, options):
    """Runs the windows and sums them up."""
    server.wait_for("the first plan", lambda: training.newest_generation() > 0, FIRST_PLAN_SECONDS)
    windows, back_seconds = [], []
    for _ in range(options.windows):
        windows.append(("present", time.time(), wait(options.seconds)))
        server.kill()
        windows.append(("away", time.time(), wait(options.seconds)))
        server.start()
        back_seconds.append(server.wait_for("the job with its tapes", lambda: training.is_back(server), MOST_BACK_SECONDS))
    training.finish()

    steps = [line for rank in range(RANKS) for line in training.steps(rank)]
    pooled = {
        name: [line for line in steps if any(kind == name and begin < line["time"] < end for kind, begin, end in windows)]
        for name in ("present", "away")
    }
    means = {name: statistics.fmean(line["cpu_seconds"] for line in lines) for name, lines in pooled.items()}
    agent = {name: agent_share(lines) for name, lines in pooled.items()}
    longest = {name: max(line["step_seconds"] for line in lines) for name, lines in pooled.items()}
    first_steps = training.activations()
    report.print_table(
        f"{options.windows} windows of {options.seconds:g} s with a server and as many without, {RANKS} ranks",
        ["server", "steps", "CPU ms / step", "longest step s", "agent's share"],
        [
            [name, len(lines), f"{means[name] * 1e3:.2f}", f"{longest[name]:.2f}", f"{agent[name]:.3%}"]
            for name, lines in pooled.items()
        ],
    )
    return {
        "windows": options.windows,
        "away_over_present_cpu": means["away"] / means["present"],
        "agent_share": max(agent.values()),
        "back_seconds": {"median": statistics.median(back_seconds), "max": max(back_seconds)},
        "longest_step_seconds": longest,
        "generations": len(first_steps[0]) - 1,
        "switched_together": all(first == first_steps[0] for first in first_steps),
        "steps": {name: len(lines) for name, lines in pooled.items()},
    }


def wait(seconds):
    """Returns when it is over, in seconds since the epoch."""
    time.sleep(seconds)
    return time.time()


def agent_share(lines):
    """The agent's own time over the CPU time of the steps."""
    return sum(line["agent_seconds"] for line in lines) / sum(line["cpu_seconds"] for line in lines)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=10, help="with a server, and as many without (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="length of a window (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
