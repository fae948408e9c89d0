"""The server is killed under a training of two ranks, which must not notice, and comes back or leaves its jobs to another one."""

import functools

import pytest

from tests.planner_server import PlannerServer
from tests.postgres_server import DATABASE, USER, PostgresServer
from tests.rank_training import RANKS, RankTraining

# The limit changes after each restart, so that a new plan must follow.
LIMITS_AFTER_RESTARTS = ("min", "90%")
STEPS_AWAY = 10
# From the restart to the job with its tapes at the new server.
BACK_SECONDS = 5
# From the leader's death to the same at the other one. It takes about 3 of them; not so on a busy machine.
TAKE_OVER_SECONDS = 30


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
    _require_complete(training)


@pytest.fixture
def two_servers(server_program, tidetapectl):
    with PostgresServer() as postgres:
        store = f"postgresql://{USER}@localhost/{DATABASE}"
        servers = [PlannerServer(server_program, tidetapectl, store, postgres.environment) for _ in range(2)]
        for server in servers:
            server.start()
        yield servers
        for server in servers:
            server.stop()


def test_training_survives_the_death_of_the_leader(two_servers, tmp_path):
    leader, other = two_servers
    leader.wait_for("a leader", lambda: any(server.ask("jobs") is not None for server in two_servers), 30)
    if leader.ask("jobs") is None:
        leader, other = other, leader
    with RankTraining(tmp_path, f"{leader.address},{other.address}", "90%") as training:
        leader.wait_for("the first plan", lambda: training.newest_generation() > 0, 120)
        for limit in LIMITS_AFTER_RESTARTS:
            generation = training.newest_generation()
            leader.kill()
            back = "the job with its tapes at the other server"
            moved = other.wait_for(back, lambda other=other: training.is_back(other), TAKE_OVER_SECONDS)
            print(f"the other server has the job after {moved:.1f} s")
            training.set_limit(limit)
            other.wait_for("a new plan", lambda generation=generation: training.newest_generation() > generation, 60)
            leader.start()
            leader, other = other, leader
        training.finish()
    _require_complete(training)


def _require_complete(training):
    steps = [[line["step"] for line in training.steps(rank)] for rank in range(RANKS)]
    assert steps == [list(range(len(steps[0])))] * RANKS, "a step is missing"
    first_steps = training.activations()
    assert first_steps[0] == first_steps[1], "the ranks switched plans at different steps"
    assert len(first_steps[0]) > len(LIMITS_AFTER_RESTARTS)
