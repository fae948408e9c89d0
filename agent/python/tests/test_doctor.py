import socket
import stat

import pytest
import torch

import tidetape
from tidetape import doctor, programs


def find(findings, subject):
    return next(finding for finding in findings if finding.subject == subject)


def look(**arguments):
    return doctor.examine(**arguments)


def test_a_good_machine_has_nothing_bad():
    findings = look()
    assert [str(finding) for finding in findings if finding.good is False] == []
    assert find(findings, "torch").seen == torch.__version__
    assert find(findings, "planner").seen == "inside the training process"


def test_another_torch_is_named_with_what_to_do(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.15.0+cpu")
    finding = find(look(), "torch")
    assert (finding.good, finding.remedy) == (False, "pip install torch==2.14.1")
    assert "2.15.0" in finding.seen


def test_interception_that_does_not_work_is_said(monkeypatch):
    monkeypatch.setattr(tidetape, "intercept_status", lambda: (False, "another fallback sits on the key"))
    finding = find(look(), "recording")
    assert not finding.good and "another fallback" in finding.seen and finding.remedy


def test_a_missing_or_broken_library_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "find_agent_library", lambda: None)
    assert find(look(), "planner link").remedy == "make build, or install the wheel again"
    broken = tmp_path / "libtt_agent.so"
    broken.write_text("no library")
    monkeypatch.setattr(doctor, "find_agent_library", lambda: broken)
    assert not find(look(), "planner link").good


def test_nccl_is_asked_at_run_time():
    finding = find(look(), "NCCL")
    assert finding.good in (True, None)
    assert "at run time" in finding.seen


def test_nobody_listens_at_the_planners_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        finding = find(look(planner=address), "planner")
    assert not finding.good
    assert f"tidetape-server --listen={address}" in finding.remedy
    assert not find(look(planner="nowhere"), "planner").good


@pytest.mark.parametrize(
    ("script", "good", "seen"), [("exit 0", True, "answers"), ("echo 'wrong service' >&2; exit 1", False, "wrong service")]
)
def test_the_planner_is_asked_through_tidetapectl(monkeypatch, tmp_path, script, good, seen):
    program = tmp_path / "tidetapectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(doctor, "find_program", lambda name: program)
    with socket.create_server(("127.0.0.1", 0)) as server:
        finding = find(look(planner=f"127.0.0.1:{server.getsockname()[1]}"), "planner")
    assert finding.good == good and seen in finding.seen


def test_a_limit_is_said_in_bytes():
    assert "1,073,741,824 bytes" in find(look(memory_limit="1GiB"), "memory limit").seen
    assert not find(look(memory_limit="lots"), "memory limit").good


def test_the_exit_code_says_whether_something_is_bad(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "examine", lambda *_: [doctor.Finding("torch", True, "fine"), doctor.Finding("NCCL", None, "none")])
    assert doctor.main([]) == 0
    monkeypatch.setattr(doctor, "examine", lambda *_: [doctor.Finding("torch", False, "old", "update")])
    assert doctor.main([]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["BAD  torch: old", "     update"]


def test_programs_are_found_in_the_wheel_before_the_checkout(monkeypatch, tmp_path):
    monkeypatch.setattr(programs, "_PACKAGE", tmp_path / "package")
    monkeypatch.setattr(programs, "_BAZEL_BIN", tmp_path / "bazel-bin")
    monkeypatch.setenv("PATH", "")
    assert programs.find_program("tidetapectl") is None
    for folder in ("bazel-bin/server", "package/bin"):
        path = tmp_path / folder / "tidetapectl"
        path.parent.mkdir(parents=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        assert programs.find_program("tidetapectl") == path
