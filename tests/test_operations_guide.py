"""The operations guide's commands, run in its order in one shell with the real programs; a store goes through its backup."""

import re
import shlex
import subprocess

import kubernetes_validate
import pytest
import yaml
from tools.kubernetes_programs import program

from tests.planner_server import PlannerServer, free_address
from tests.processes import ROOT
from tests.rank_training import RankTraining

GUIDE = (ROOT / "docs" / "operations.md").read_text()
# What blocks may use that are not run: they need a machine with systemd, or two of them, or change somebody's home.
NOT_RUN = {"apt-get", "systemctl", "tidetape-server", "tidetapectl", "source"}
RUN_SECONDS = 300
# The keys by which manifests and charts use the Secrets.
SECRETS = {
    "tidetape-server-tls": {"tls.crt", "tls.key"},
    "tidetape-server-tokens": {"tokens"},
    "tidetape-agent": {"ca.crt", "token"},
    "tidetape-prometheus": {"ca.crt", "token"},
    "tidetape-postgresql": {"password"},
}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def commands():
    """(command, the output that the guide shows, or "") in the guide's order."""
    result = []
    for block in blocks("console"):
        for line in block.splitlines(keepends=True):
            if line.startswith("$ "):
                result.append([line[2:].rstrip("\n"), ""])
            else:
                result[-1][1] += line
    return result


def test_what_is_not_run_needs_another_machine_or_a_home():
    used = {shlex.split(line)[0] for block in blocks("sh") for line in block.splitlines()}
    assert used == NOT_RUN


class Shell:
    """Runs the guide's commands in `folder`, on free ports in place of the usual ones; kubectl and helm have no cluster."""

    def __init__(self, folder, server_program, tidetapectl):
        self._folder = folder
        self._ports = {str(usual): free_address().split(":")[1] for usual in (50551, 50552)}
        listen, http = (f"127.0.0.1:{port}" for port in self._ports.values())
        self._programs = folder / "programs"
        self._programs.mkdir()
        kubectl, helm = shlex.quote(str(program("kubectl"))), shlex.quote(str(program("helm")))
        self._wrap("tidetape-server", f'exec {server_program} --listen={listen} --http_listen={http} --log_level=warning "$@"')
        self._wrap("tidetapectl", f'TIDETAPE_SERVER={listen} exec {tidetapectl} "$@"')
        create, apply = "--dry-run=client --output=yaml", f"exec {kubectl} kustomize"
        self._wrap("kubectl", f'[ $1 = create ] && exec {kubectl} "$@" {create}\n[ "$1 $2" = "apply --kustomize" ] && {apply} "$3"')
        self._wrap("helm", f'[ $1 = install ] && shift && exec {helm} template "$@"')
        (folder / "deploy").symlink_to(ROOT / "deploy")

    def _wrap(self, name, body):
        path = self._programs / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(self, lines):
        """What each command printed. Fails with the first command that fails."""
        script = ["set -e", "trap 'jobs -p | xargs -r kill' EXIT"]
        for number, line in enumerate(lines):
            for usual, port in self._ports.items():
                line = line.replace(f":{usual}", f":{port}")
            # In braces, not parentheses: jobs, functions and umask stay the shell's.
            script.append(f"echo {shlex.quote(line)} >&2\n{{ {line}\n}} >{self._folder}/output.{number}")
        environment = {"PATH": f"{self._programs}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self._folder)}
        command = ["timeout", "--kill-after=5", str(RUN_SECONDS), "bash", "-c", "\n".join(script)]
        done = subprocess.run(command, cwd=self._folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [(self._folder / f"output.{number}").read_text() for number in range(len(lines))]


@pytest.fixture
def trained(server_program, tidetapectl, tmp_path):
    """A function that asks the store which the guide backs up, where a training has left a job with a plan."""

    def ask(*arguments, train=False):
        server = PlannerServer(server_program, tidetapectl, f"sqlite:{tmp_path}/state/server.db")
        server.start()
        try:
            if train:
                with RankTraining(tmp_path, server.address, "90%") as training:
                    server.wait_for("the first plan", lambda: training.newest_generation() > 0, 120)
                    training.finish()
            return server.ask(*arguments)
        finally:
            server.stop()

    return ask


def test_the_guides_commands_do_what_it_says(trained, server_program, tidetapectl, tmp_path):
    (job,) = trained("jobs", train=True)["jobs"]
    plan = trained("plan", job["job"])
    assert int(job["generation"]) > 0
    assert plan

    expected = commands()
    outputs = Shell(tmp_path, server_program, tidetapectl).run([command for command, _ in expected])
    made = {}
    for (command, shown), output in zip(expected, outputs, strict=True):
        if shown:
            assert output == shown, command
        if command.startswith("kubectl create secret"):
            secret = yaml.safe_load(output)
            kubernetes_validate.validate(secret, "1.33", strict=True)
            made[secret["metadata"]["name"]] = set(secret["data"])
    assert made == SECRETS
    # On the way the store was removed and came back from its backup.
    assert (tmp_path / "server-backup.db").exists()
    assert trained("plan", job["job"]) == plan
