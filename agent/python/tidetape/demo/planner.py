"""Asks a planner's server through tidetapectl, as an operator would."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass

from tidetape.programs import find_program

_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Frontier:
    """The step's frontier: points of (step peak in bytes, replay seconds) by falling bytes."""

    points: list[tuple[int, float]]
    least_peak_bytes: int
    largest_peak_bytes: int


def ask(server: str, *arguments: str) -> str:
    """What tidetapectl prints. Raises RuntimeError with its complaint where it fails."""
    program = find_program("tidetapectl")
    if program is None:
        raise RuntimeError("tidetapectl is not there; make build makes it")
    command = [str(program), "--server", server, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def frontier(server: str, job: str) -> Frontier:
    """The frontier of the job's whole step."""
    answer = json.loads(ask(server, "frontier", job, "-o", "json"))
    # Proto3 JSON writes 64-bit integers as strings.
    points = [(int(point["bytes"]), float(point.get("replay_seconds", 0))) for point in answer["points"]]
    return Frontier(points, int(answer["least_peak_bytes"]), int(answer["largest_peak_bytes"]))
