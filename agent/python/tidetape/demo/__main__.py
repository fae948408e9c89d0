"""Trains one model several ways and compares them. One process, or a rank of torchrun's.

python -m tidetape.demo                    # planner inside the process
torchrun --nproc-per-node 2 -m tidetape.demo --planner localhost:50051
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tidetape.demo import planner, report
from tidetape.demo.checks import check
from tidetape.demo.variant import Attachment, Run, run_variant
from tidetape.demo.workload import Workload

# Limits between the least and the largest step peak, in sixths of the way.
_SIXTHS = (1, 2, 3, 4, 5)
# A limit that no plan can keep, as a share of the least step peak.
_IMPOSSIBLE = 0.9


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tidetape.demo", description=__doc__.split("\n\n")[0])
    parser.add_argument("--planner", default="local", help='"local" or host:port of a tidetape-server')
    parser.add_argument("--job", default="demo", help="prefix of the jobs' names at the planner")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="folder for the page")
    for name, help_ in {
        "hidden": "width of the model",
        "layers": "number of layers",
        "batch": "sequences a rank and step",
        "sequence": "tokens a sequence",
        "steps": "steps of each run",
        "seed": "of weights and data",
    }.items():
        parser.add_argument(f"--{name}", type=int, default=getattr(Workload, name), help=help_)
    return parser.parse_args()


def _train_all(options: argparse.Namespace, workload: Workload, device: torch.device) -> tuple[list[Run], planner.Frontier | None]:
    """All runs, in the order of the table, and the frontier where a server can be asked for it."""

    def attached(name: str, limit: int | str, before_detach=lambda: None) -> Run:
        attachment = Attachment(limit, options.planner, f"{options.job}-{name.replace(' ', '-').replace('/', '-')}")
        return run_variant(name, workload, device, attachment=attachment, before_detach=before_detach)

    plain = run_variant("plain", workload, device)
    checkpoint = run_variant("checkpoint", workload, device, checkpoint=True)
    frontiers: list[planner.Frontier | None] = [None]
    serving = options.planner != "local"

    def learn_frontier() -> None:
        if serving:
            frontiers[0] = planner.frontier(options.planner, f"{options.job}-min")

    least = attached("min", "min", learn_frontier)
    if dist.is_initialized():
        dist.broadcast_object_list(frontiers)
    frontier = frontiers[0]
    # Without a server the planner inside the process still says what the least is; the largest is that of the plain run.
    low = frontier.least_peak_bytes if frontier else least.least_peak_bytes
    high = frontier.largest_peak_bytes if frontier else plain.peak_bytes()
    runs = [plain, checkpoint, least]
    for k in _SIXTHS:
        runs.append(attached(f"limit {k}/6", low + k * (high - low) // 6))
    runs.append(
        attached("below least", int(_IMPOSSIBLE * low), lambda: serving and print(planner.ask(options.planner, "jobs"), flush=True))
    )
    return runs, frontier


def main() -> int:
    options = _parse()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        # Ranks share the machine's cores.
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
    device = torch.device("cuda" if ranks == 1 and torch.cuda.is_available() else "cpu")
    workload = Workload(**{name: getattr(options, name) for name in ("hidden", "layers", "batch", "sequence", "steps", "seed")})
    runs, frontier = _train_all(options, workload, device)
    verdict = check(runs)
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(f"\n{ranks} rank(s) on {device.type}, {workload.layers} layers of width {workload.hidden}, {workload.steps} steps\n")
        print(report.text_table(runs))
        print()
        print("\n".join(verdict.lines))
        options.out.mkdir(parents=True, exist_ok=True)
        report.write_page(options.out / "index.html", runs, frontier, verdict.lines)
        print(f"page: {options.out / 'index.html'}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
