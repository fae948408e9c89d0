"""Something goes wrong at a random moment of a training: ten runs, and two hundred. Each run waits for seconds: all are long."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.long


def run(runs, seed):
    command = [sys.executable, "-m", "tests.collectives.random_faults", "--runs", str(runs), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300 + 90 * runs)
    assert done.returncode == 0, (done.stdout[-3000:], done.stderr[-3000:])
    assert f"{runs} runs, none wrong" in done.stdout or "left out" in done.stdout


def test_ten_runs():
    run(10, seed=1)


def test_two_hundred_runs():
    run(200, seed=1000)
