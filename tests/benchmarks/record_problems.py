"""Records the planning problems of the benchmarks' shapes, for `make bench-planner`: trains each beside a real server and asks it.

Costs are those of the machine at that moment, so files recorded again differ. Run as a module from the root of the repository.
"""

import argparse
import json
from pathlib import Path

import torch

import tidetape
from tests.benchmarks.shapes import SHAPES, build_batch, build_model, with_usable_dtype
from tests.planner_server import PlannerServer

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "planner" / "testing" / "recorded"
PROGRAMS = ROOT / "bazel-bin" / "server"
# Steps in which the agent measures costs and peaks before the problem is asked for.
STEPS = 12


def record(name: str, server: PlannerServer) -> dict:
    """The problem of a shape, as the server would solve it."""
    shape = with_usable_dtype(SHAPES[name], forced=False)
    model = build_model(shape)
    batch = build_batch(shape, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    session = tidetape.attach(model, memory_limit="min", planner=server.address, job=name)
    for _ in range(STEPS):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    problem = server.ask("problem", name)
    session.detach()
    if problem is None:
        raise RuntimeError(f"{name}: the server has no problem after {STEPS} steps")
    return problem


def main() -> None:
    """Writes one compact file a shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", default=["op_bound", "compute_fp32", "moe", "hybrid"], help="names of shapes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    server = PlannerServer(PROGRAMS / "tidetape-server", PROGRAMS / "tidetapectl")
    server.start()
    FOLDER.mkdir(exist_ok=True)
    try:
        for name in options.shapes:
            path = FOLDER / f"{name}.json"
            path.write_text(json.dumps(record(name, server), separators=(",", ":")) + "\n", encoding="utf-8")
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")
    finally:
        server.stop()


if __name__ == "__main__":
    main()
