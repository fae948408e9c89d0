"""Ten minutes of libFuzzer on the reader of problem files and the solver, under sanitizers."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 600


@pytest.mark.long
def test_no_input_breaks_the_planner() -> None:
    """Whatever a problem file holds, reading and solving it ends within seconds, with a plan or a message."""
    done = subprocess.run([ROOT / "tools" / "fuzz_planner.sh", str(SECONDS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
