"""The server is killed and started again under a training of two ranks, which must not notice."""

import time

import pytest

from tests.planner_server import PlannerServer
from tests.rank_training import RANKS, RankTraining

WINDOWS = 3
AWAY_SECONDS = 2
# From the issue of a restart to the job with its tapes at the new server.
BACK_SECONDS = 5


@pytest.fixture
def server(server_program, tidetapectl):
    planner = PlannerServer(server_program, tidetapectl)
    planner.start()
    yield planner
    planner.stop()


def test_training_survives_a_server_that_is_killed_and_comes_back(server, tmp_path):
    def has_plan(training, generation):
        training.require_running()
        summary = _summary(server, training.job)
        return summary is not None and int(summary.get("generation", 0)) > generation

    def is_back(training):
        summary = _summary(server, training.job)
        return bool(summary) and summary.get("connected_ranks") == RANKS and server.ask("frontier", training.job) is not None

    with RankTraining(tmp_path, server.address, "90%") as training:
        server.wait_for("the first plan", lambda: has_plan(training, 0), 120)
        for _ in range(WINDOWS):
            server.kill()
            before = len(training.steps(0))
            time.sleep(AWAY_SECONDS)
            training.require_running()
            assert len(training.steps(0)) > before, "no step while the server was away"
            server.start()
            server.wait_for("the job with its tapes", lambda: is_back(training), BACK_SECONDS)
            server.wait_for("a plan after the restart", lambda: has_plan(training, 0), 60)
        training.finish()

    steps = [training.steps(rank) for rank in range(RANKS)]
    assert [[line["step"] for line in lines] for lines in steps] == [list(range(len(steps[0])))] * RANKS
    first_steps = training.activations()
    assert first_steps[0] == first_steps[1], "the ranks switched plans at different steps"
    assert len(first_steps[0]) > 1, "no plan was ever activated"


def _summary(server, job):
    answer = server.ask("jobs")
    return next((entry for entry in (answer or {}).get("jobs", []) if entry["job"] == job), None)
