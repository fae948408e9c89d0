import os
import socket
import time

import pytest
from ranks import run_ranks

from tidetape.incarnation import job_name, new_incarnation

VARIABLES = ("TIDETAPE_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID")


@pytest.fixture(autouse=True)
def no_job_in_the_environment(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_the_job_is_named_by_the_first_that_names_it(monkeypatch):
    assert job_name() == f"{socket.gethostname()}-{os.getpid()}"
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert job_name() == f"{socket.gethostname()}-{os.getpid()}"
    for name in reversed(VARIABLES):
        monkeypatch.setenv(name, name.lower())
        assert job_name() == name.lower()
    assert job_name("mine") == "mine"


def test_one_process_makes_new_and_later_ones():
    before = time.time_ns() // 1000
    first, second = new_incarnation("j"), new_incarnation("j")
    assert first.job == second.job == "j"
    assert first.id != second.id
    assert before <= first.order < second.order


def make_two(rank):
    return [new_incarnation().__dict__ for _ in range(2)]


def test_all_ranks_get_rank_0s(tmp_path):
    results = run_ranks(make_two, 3, tmp_path)
    assert results[0] == results[1] == results[2]
    first, second = results[0]
    assert first["id"] != second["id"] and first["order"] < second["order"]
    # A name that is made of a process id is rank 0's on all ranks.
    assert first["job"] == second["job"]


def wait_in_vain(rank):
    if rank == 0:
        time.sleep(1)
        return ""
    try:
        new_incarnation("j", timeout_seconds=0.2)
    except RuntimeError as error:
        return str(error)


def test_a_rank_0_that_does_not_attach_is_named(tmp_path):
    assert "rank 1: rank 0 published no incarnation within 0.2 s" in run_ranks(wait_in_vain, 2, tmp_path)[1]
