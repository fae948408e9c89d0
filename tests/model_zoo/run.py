"""Runs the zoo over all model types, in worker processes that a crash or a slow model cannot stop, and writes the report.

python -m tests.model_zoo.run --records build/model-zoo.jsonl --report docs/model-zoo.md

A run that was stopped goes on where it was: types that have a record are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
from pathlib import Path

from .models import model_types
from .report import write_report
from .verdict import MODE_NAMES

ROOT = Path(__file__).resolve().parents[2]
SECONDS_A_TYPE = 600
# A worker's caches grow with the types that it has seen.
TYPES_A_WORKER = 60


class Worker:
    """One process, at work on one type at a time."""

    def __init__(self, modes: tuple[str, ...], plans: int):
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'agent' / 'python'}:{ROOT}",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.model_zoo.worker", str(plans), *modes],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.type: str | None = None
        self.deadline = 0.0
        self.done = 0

    def give(self, model_type: str) -> None:
        self.type, self.deadline = model_type, time.monotonic() + SECONDS_A_TYPE
        self.process.stdin.write(model_type + "\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def run(types: list[str], processes: int, modes: tuple[str, ...] = MODE_NAMES, plans: int = 3):
    """Yields the record of each type as it comes, in no order."""
    waiting = list(reversed(types))
    selector = selectors.DefaultSelector()

    def start() -> None:
        worker = Worker(modes, plans)
        worker.give(waiting.pop())
        selector.register(worker.process.stdout, selectors.EVENT_READ, worker)

    def end(worker: Worker) -> None:
        selector.unregister(worker.process.stdout)
        worker.stop()
        if waiting:
            start()

    for _ in range(min(processes, len(waiting))):
        start()
    while selector.get_map():
        for key, _ in selector.select(timeout=1):
            worker = key.data
            line = worker.process.stdout.readline()
            if not line:
                code = worker.process.wait()
                yield {"type": worker.type, "crashed": f"the process ended with code {code}"}
                end(worker)
                continue
            worker.done += 1
            yield json.loads(line)
            if waiting and worker.done < TYPES_A_WORKER:
                worker.give(waiting.pop())
            else:
                end(worker)
        for key in list(selector.get_map().values()):
            if time.monotonic() > key.data.deadline:
                yield {"type": key.data.type, "crashed": f"not done after {SECONDS_A_TYPE} s"}
                end(key.data)


def read_records(path: Path) -> dict[str, dict]:
    """The records of a file by type; the last one of a type counts."""
    if not path.exists():
        return {}
    return {record["type"]: record for record in map(json.loads, path.read_text().splitlines())}


def run_all(
    path: Path, processes: int, types: list[str] | None = None, modes: tuple[str, ...] = MODE_NAMES, plans: int = 3
) -> dict[str, dict]:
    """Runs the types that `path` has no record of, adds theirs, and returns all."""
    records = read_records(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", buffering=1) as file:
        for record in run([name for name in types or model_types() if name not in records], processes, modes, plans):
            file.write(json.dumps(record) + "\n")
            records[record["type"]] = record
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", help="only these model types")
    parser.add_argument("--records", type=Path, default=ROOT / "build" / "model-zoo.jsonl")
    parser.add_argument("--report", type=Path, help="a Markdown file to write")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--modes", nargs="+", choices=MODE_NAMES, default=MODE_NAMES)
    parser.add_argument("--plans", type=int, default=3, help="random plans for each type and precision")
    options = parser.parse_args()
    records = run_all(options.records, options.processes, options.types, tuple(options.modes), options.plans)
    if options.report:
        write_report(records, options.report)


if __name__ == "__main__":
    main()
