"""Fixtures and paths for the tests that cross folders."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Tests import each other's helpers as tests.<module>; pytest's import mode leaves sys.path alone.
sys.path.insert(0, str(ROOT))

# The tests compare to the bit, so the order of additions must not depend on the number of cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def _program(name):
    path = ROOT / "bazel-bin" / "server" / name
    if not os.access(path, os.X_OK):
        pytest.fail(f"{path.relative_to(ROOT)} is not there: run `make build`", pytrace=False)
    return path


@pytest.fixture(scope="session")
def server_program():
    """The built tidetape-server."""
    return _program("tidetape-server")


@pytest.fixture(scope="session")
def tidetapectl():
    """The built tidetapectl."""
    return _program("tidetapectl")


@pytest.fixture(scope="session")
def fake_jobs_program():
    """The built fake_jobs: ranks of jobs that nobody trains."""
    return _program("testing/fake_jobs")


@pytest.fixture
def attach():
    """tidetape.attach, whose sessions end with the test."""
    import tidetape

    sessions = []

    def attach_until_the_end(*args, **kwargs):
        kwargs.setdefault("planner", "local")
        sessions.append(tidetape.attach(*args, **kwargs))
        return sessions[-1]

    yield attach_until_the_end
    for session in sessions:
        session.detach()
