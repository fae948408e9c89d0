"""A job of blocks that another one trained before has its plan before it has measured enough for one."""

import pytest

from tests.planner_server import PlannerServer
from tests.rank_training import RANKS, RankTraining


@pytest.fixture
def server(server_program, tidetapectl, tmp_path):
    planner = PlannerServer(server_program, tidetapectl, f"sqlite:{tmp_path}/store/server.db")
    planner.start()
    yield planner
    planner.stop()


def train(server, folder):
    """The first plan of a training and the logged steps of its ranks."""
    folder.mkdir()
    with RankTraining(folder, server.address, "90%") as training:
        server.wait_for("a plan that the ranks run", lambda: training.newest_generation() > 0, 120)
        steps = len(training.steps(0))
        server.wait_for("steps under it", lambda: len(training.steps(0)) >= steps + 20, 60)
        plans = server.ask("plans", training.job)["plans"]
        training.finish()
    return plans[-1], [training.steps(rank) for rank in range(RANKS)]


def test_the_second_job_starts_warm_also_after_a_restart_of_the_server(server, tmp_path):
    first, _ = train(server, tmp_path / "first")
    assert first["reason"] == "the first plan of this start of the job"
    server.stop()
    server.start()
    second, ranks = train(server, tmp_path / "second")
    assert "a warm start: job 'test-" in second["reason"], second["reason"]
    # The same blocks on the same machine under the same share of memory: the same plan.
    assert int(second["step_peak_bytes"]) == pytest.approx(int(first["step_peak_bytes"]), rel=0.02)
    limit = int(second["memory_limit_bytes"])
    for steps in ranks:
        # Nothing is saved before the optimizer's state is there, which the first step makes.
        assert steps[0]["generation"] == steps[1]["generation"] == 0
        assert all(step["step_peak_bytes"] <= limit for step in steps if step["generation"] > 0)
