"""Programs that tests start: they find tidetape and the tests' own modules, and die with the test."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def environment(**more):
    """The environment of a program in the checkout."""
    path = os.pathsep.join([str(ROOT / "agent" / "python"), str(ROOT)])
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | more


def run_program(source, timeout_seconds=120, **more):
    """Runs Python source text to its end in a process of its own; returns subprocess.CompletedProcess with its text."""
    command = [sys.executable, "-c", textwrap.dedent(source)]
    return subprocess.run(command, cwd=ROOT, env=environment(**more), capture_output=True, text=True, timeout=timeout_seconds)
