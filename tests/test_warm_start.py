"""A job of blocks that another one trained before has its plan before it has measured enough for one."""

import contextlib
import subprocess
import sys

import pytest

from tests.planner_server import PlannerServer
from tests.processes import ROOT, environment

# The second step is the first whose memory counts, because the first one makes the optimizer's state.
EARLY = 2
ENOUGH = 6


@pytest.fixture
def server(server_program, tidetapectl, tmp_path):
    planner = PlannerServer(server_program, tidetapectl, f"sqlite:{tmp_path}/store/server.db")
    planner.start()
    yield planner
    planner.stop()


@contextlib.contextmanager
def training(server, job, steps):
    """A job that has trained so many steps, or is about to."""
    command = [sys.executable, ROOT / "tests" / "programs" / "train_steps.py", server.address, str(steps)]
    with subprocess.Popen(command, cwd=ROOT, env=environment(TIDETAPE_JOB=job), stdin=subprocess.PIPE) as process:
        yield
        process.stdin.close()
        assert process.wait(60) == 0


def first_plan(server, job):
    """Waits for it."""
    server.wait_for(f"a plan of {job}", lambda: (server.ask("plans", job) or {}).get("plans"), 120)
    return server.ask("plans", job)["plans"][-1]


def test_the_second_job_starts_warm_also_after_a_restart_of_the_server(server):
    with training(server, "first", ENOUGH):
        first = first_plan(server, "first")
    assert first["reason"] == "the first plan of this start of the job"
    server.stop()
    server.start()
    with training(server, "second", EARLY):
        second = first_plan(server, "second")
    assert second["reason"] == "a warm start: job 'first' ran the same blocks at the same shapes"
    assert int(second["step_peak_bytes"]) == pytest.approx(int(first["step_peak_bytes"]), rel=0.02)
