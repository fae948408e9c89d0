"""Servers, streams and ranks die while the ranks switch their pacing. No two ranks ever run different ones, by their own logs; and
nobody hangs.

A run changes the memory limit, so that a new plan, with its pacing, is on its way, and kills something at a moment drawn by chance.
"""

import random
import time

import pytest

from tests.collectives.paced_training import CutProxy, PacedTraining
from tests.planner_server import PlannerServer, wait_for

RANKS = 2
LIMITS = ("min", "90%")
# The time from a change of the limit to the switch is a few steps; a kill falls before it, into it or after it.
LATEST_KILL_SECONDS = 0.4
# Beyond the wait of the collectives, 20 s, and of the ranks' own goodbyes.
END_SECONDS = 60

# A few of each in `make test`; the long ones make a hundred together.
FEW, MANY_SERVERS, MANY_STREAMS, MANY_RANKS = 3, 35, 35, 30


@pytest.fixture
def server(server_program, tmp_path):
    planner = PlannerServer(server_program, None, f"sqlite:{tmp_path}/server.db")
    planner.start()
    yield planner
    planner.stop()


def next_pacing(training, above):
    return lambda: training.newest_pacing() > above


def kill_servers(server, folder, runs):
    draw = random.Random(runs)
    with PacedTraining(folder, [server.address] * RANKS) as training:
        wait_for("the first pacing", next_pacing(training, 0), 120)
        for run in range(runs):
            before = training.newest_pacing()
            training.set_limit(LIMITS[run % 2])
            time.sleep(draw.random() * LATEST_KILL_SECONDS)
            server.kill()
            time.sleep(draw.random() * LATEST_KILL_SECONDS)
            server.start()
            wait_for(f"a new pacing after kill {run}", next_pacing(training, before), END_SECONDS)
            assert training.splits() == {}, f"kill {run}"
        training.stop()
        assert training.splits() == {}
        assert training.switches() >= runs


def cut_streams(server, folder, runs):
    draw = random.Random(runs)
    proxies = [CutProxy(server.address) for _ in range(RANKS)]
    with PacedTraining(folder, [proxy.address for proxy in proxies]) as training:
        wait_for("the first pacing", next_pacing(training, 0), 120)
        for run in range(runs):
            before = training.newest_pacing()
            training.set_limit(LIMITS[run % 2])
            time.sleep(draw.random() * LATEST_KILL_SECONDS)
            draw.choice(proxies).cut()
            wait_for(f"a new pacing after cut {run}", next_pacing(training, before), END_SECONDS)
            assert training.splits() == {}, f"cut {run}"
        training.stop()
        assert training.splits() == {}
        assert training.switches() >= runs
    for proxy in proxies:
        proxy.close()


def kill_ranks(server, folder, runs):
    draw = random.Random(runs)
    folder.mkdir()
    for run in range(runs):
        with PacedTraining(folder / str(run), [server.address] * RANKS) as training:
            wait_for("the first pacing", next_pacing(training, 0), 120)
            training.set_limit(LIMITS[0])
            time.sleep(draw.random() * LATEST_KILL_SECONDS)
            victim = draw.randrange(RANKS)
            training.kill(victim)
            codes = training.await_end(END_SECONDS)
            assert all(code != 0 for code in codes), f"kill {run}: {codes}"
            assert training.splits() == {}, f"kill {run} of rank {victim}"


def test_killed_servers(server, tmp_path):
    kill_servers(server, tmp_path / "training", FEW)


def test_cut_streams(server, tmp_path):
    cut_streams(server, tmp_path / "training", FEW)


def test_killed_ranks(server, tmp_path):
    kill_ranks(server, tmp_path / "trainings", FEW)


@pytest.mark.long
def test_many_killed_servers(server, tmp_path):
    kill_servers(server, tmp_path / "training", MANY_SERVERS)


@pytest.mark.long
def test_many_cut_streams(server, tmp_path):
    cut_streams(server, tmp_path / "training", MANY_STREAMS)


@pytest.mark.long
def test_many_killed_ranks(server, tmp_path):
    kill_ranks(server, tmp_path / "trainings", MANY_RANKS)
