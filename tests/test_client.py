"""tidetape.client against a real server."""

import matplotlib
import pandas
import pytest

from tests.fake_jobs import ServerWithFakeJobs
from tidetape.client import Client, PlannerError

matplotlib.use("Agg")

MIB = 2**20


@pytest.fixture(scope="module")
def client(tmp_path_factory, server_program, fake_jobs_program):
    with ServerWithFakeJobs(server_program, fake_jobs_program, tmp_path_factory.mktemp("client")) as server:
        yield Client(server.address, timeout=60)


def test_jobs_are_a_frame_with_numbers(client):
    frame = client.jobs().frame().set_index("job")
    assert isinstance(frame, pandas.DataFrame)
    assert set(frame.index) == {"example", "finished", "pretrain-70b", "waiting"}
    assert frame.loc["pretrain-70b", "memory_limit_bytes"] == 60_000 * MIB
    assert frame.loc["pretrain-70b", "connected_ranks"] == 8
    assert frame["step_peak_bytes"].dtype.kind == "i"
    assert frame.loc["waiting", "waiting_for"] == "ranks to connect: 1 of 2"


def test_ranks_carry_their_newest_report(client):
    ranks = client.ranks("pretrain-70b").frame()
    assert list(ranks["rank"]) == list(range(8))
    # As server/testing/fake_jobs.cpp sends it: 130 MiB more on each rank.
    assert list(ranks["step_peak_bytes"] - ranks["step_peak_bytes"][0]) == [130 * rank * MIB for rank in range(8)]


def test_plans_and_blocks(client):
    (plan,) = client.plans("example")
    # example_job.h: under 1300 bytes one block replays for 1 ms.
    assert (plan["generation"], plan["step_peak_bytes"], plan["replay_seconds"]) == (1, 1300, 0.001)
    assert client.plan("example", generation=1)["etag"] == plan["etag"]
    assert list(client.blocks("example").frame()["name"]) == ["layers.0", "layers.1"]
    assert client.blocks("example").frame()["saved_bytes"].sum() == 300


def test_a_frontier_is_drawn(client):
    frontier = client.frontier("example")
    # Under 1100 bytes the first block keeps nothing, and replays for 11 ms.
    assert [point["bytes"] for point in frontier.points] == [1400, 1300, 1200, 1100]
    assert frontier.current["bytes"] == 1300
    axes = frontier.plot()
    assert axes.get_xlabel() == "step peak (GiB)"
    assert list(axes.lines[0].get_ydata()) == pytest.approx([0, 1, 2, 12])
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"frontier", "now", "limit"}
    assert client.frontier("example", block=0).points[0]["bytes"] == 200


def test_memory_through_the_step_is_drawn(client):
    memory = client.memory("pretrain-70b")
    assert len(memory.parts) == 2 * 32 + 2
    assert memory.measured_rank == 7
    assert memory.parts[0]["measured_begin_bytes"] == 40_000 * MIB
    assert memory.parts[32]["phase"] == "head" and memory.parts[32]["measured_begin_bytes"] is None
    axes = memory.plot()
    assert axes.get_ylabel() == "memory (GiB)"
    assert "measured by rank 7" in {text.get_text() for text in axes.get_legend().get_texts()}
    assert client.memory("example").measured_rank is None


def test_values_are_explained_and_limits_tried(client):
    values = client.explain("example").frame()
    assert set(values["label"]) == {"aten::op1", "aten::op2"}
    assert client.simulate("example", memory_limit=1200)["step_peak_bytes"] == 1200
    assert client.simulate("example", memory_limit="max")["saved_bytes"] == 400


def test_rivals_and_pins_have_their_price(client):
    policies = client.policies("example").frame().set_index("policy")
    # Nothing kept: 11 ms in each block. At that peak, the last block can keep what 10 ms made.
    assert policies.loc["full checkpoint", ["step_peak_bytes", "replay_seconds", "planned_seconds"]].tolist() == [
        1100,
        0.022,
        0.012,
    ]
    price = client.price("example", replay=["aten::op1@layers.0"])
    assert (price.pinned_values, price.replay_seconds) == (1, pytest.approx(0.009))
    assert client.block_plan("example", 0, within=150)["point"]["bytes"] == 100
    with pytest.raises(PlannerError, match="labels look like") as error:
        client.price("example", save=["nothing"])
    assert error.value.code == "INVALID_ARGUMENT"


def test_one_size_is_said_to_be_one(client):
    with pytest.raises(PlannerError, match="seen at one size only") as error:
        client.largest("example")
    assert error.value.reason == "ONE_SIZE"


def test_plans_are_compared(client):
    compared = client.compare("example@1", "example@1")
    assert compared["blocks"] == []
    assert compared["before"]["step_peak_bytes"] == compared["after"]["step_peak_bytes"] == 1300


def test_what_comes_is_watched(client):
    first = next(client.watch("example", seconds=30))
    assert first["summary"]["job"] == "example"


def test_errors_say_what_is_wrong(client):
    with pytest.raises(PlannerError, match="Did you mean 'example'") as error:
        client.plan("exampel")
    assert (error.value.code, error.value.reason, error.value.metadata) == ("NOT_FOUND", "JOB_NOT_FOUND", {"job": "exampel"})
    with pytest.raises(PlannerError, match="no answer from") as error:
        Client("127.0.0.1:1", timeout=5).jobs()
    assert error.value.code == "UNAVAILABLE"
    with pytest.raises(PlannerError, match="token"):
        Client("127.0.0.1:1", token_file="/nowhere").jobs()


def test_rows_show_themselves_as_a_table(client):
    assert "<table" in client.jobs()._repr_html_()
