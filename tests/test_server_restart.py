"""The server is killed and started again under a training of two ranks, which must not notice."""

import functools

import pytest

from tests.planner_server import PlannerServer
from tests.rank_training import RANKS, RankTraining

# The limit changes after each restart, so that a new plan must follow.
LIMITS_AFTER_RESTARTS = ("min", "90%")
STEPS_AWAY = 10
# From the restart to the job with its tapes at the new server.
BACK_SECONDS = 5


@pytest.fixture(params=["memory", "sqlite"])
def server(request, server_program, tidetapectl, tmp_path):
    store = "memory" if request.param == "memory" else f"sqlite:{tmp_path}/store/server.db"
    planner = PlannerServer(server_program, tidetapectl, store)
    planner.start()
    yield planner
    planner.stop()


def test_training_survives_a_server_that_is_killed_and_comes_back(server, tmp_path):
    with RankTraining(tmp_path, server.address, "90%") as training:
        server.wait_for("the first plan", lambda: training.newest_generation() > 0, 120)
        for limit in LIMITS_AFTER_RESTARTS:
            server.kill()
            steps, generation = len(training.steps(0)), training.newest_generation()
            server.wait_for("steps without a server", lambda steps=steps: len(training.steps(0)) >= steps + STEPS_AWAY, 60)
            server.start()
            server.wait_for("the job with its tapes", functools.partial(training.is_back, server), BACK_SECONDS)
            training.set_limit(limit)
            server.wait_for("a new plan", lambda generation=generation: training.newest_generation() > generation, 60)
        training.finish()

    steps = [[line["step"] for line in training.steps(rank)] for rank in range(RANKS)]
    assert steps == [list(range(len(steps[0])))] * RANKS, "a step is missing"
    first_steps = training.activations()
    assert first_steps[0] == first_steps[1], "the ranks switched plans at different steps"
    assert len(first_steps[0]) > len(LIMITS_AFTER_RESTARTS)
