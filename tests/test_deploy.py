"""What deploy/ holds, given to the programs that will read it."""

import re
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
SYSTEMD = ROOT / "deploy" / "systemd"
UNIT = SYSTEMD / "tidetape-server.service"
GUIDE = ROOT / "docs" / "operations.md"
RUNBOOK = ROOT / "docs" / "runbook.md"
# Of 100, as systemd-analyze counts: 0 is a service that may do nothing.
MOST_EXPOSURE = 15
START_SECONDS = 20


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def alerts():
    groups = yaml.safe_load((PROMETHEUS / "tidetape.rules.yml").read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"] if "alert" in rule}


def test_promtool_takes_the_configuration_and_its_rules():
    run("promtool", "check", "config", "prometheus.yml", cwd=PROMETHEUS)


def test_the_rules_unit_tests_pass_and_fire_every_alert():
    run("promtool", "test", "rules", "tidetape.rules_test.yml", cwd=PROMETHEUS)
    tests = yaml.safe_load((PROMETHEUS / "tidetape.rules_test.yml").read_text())["tests"]
    checks = [check for test in tests for check in test.get("alert_rule_test", [])]
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == set(alerts())
    assert {check["alertname"] for check in checks if not check["exp_alerts"]} == set(alerts())


def test_every_alert_has_its_place_in_the_runbook():
    sections = re.split(r"^## (\w+)$", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]
    assert sections[::2] == list(alerts())
    for text in sections[1::2]:
        assert re.search(r"^\*Look\.\*", text, re.MULTILINE)
        assert re.search(r"^\*Do\.\*", text, re.MULTILINE)
    for name, rule in alerts().items():
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{name.lower()}"


def test_the_rules_name_only_metrics_that_the_guide_lists():
    documented = set(re.findall(r"^\| `((?:tidetape|process)_\w+)", GUIDE.read_text(), re.MULTILINE))
    groups = yaml.safe_load((PROMETHEUS / "tidetape.rules.yml").read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        # What a recording rule made is named level:metric:operation.
        expression = re.sub(r"\w+:\w+:\w+", "", rule["expr"])
        names = {name.removesuffix("_bucket") for name in re.findall(r"\b(?:tidetape|process)_\w+", expression)}
        assert names <= documented


@pytest.fixture
def unit(tmp_path, server_program):
    """The unit, with the built server in place of the installed one."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/usr/bin/tidetape-server", str(server_program)))
    return copy


def test_systemd_finds_no_fault_in_the_unit(unit):
    assert run("systemd-analyze", "verify", "--man=no", str(unit)) == ""


def test_the_service_may_do_little(unit):
    run("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSURE}", str(unit))


def test_the_user_of_the_unit_is_made(tmp_path):
    sysusers = (SYSTEMD / "tidetape-server.sysusers").read_text()
    assert re.search(r"^User=(\w+)$", UNIT.read_text(), re.MULTILINE)[1] == re.search(r"^u (\w+) ", sysusers, re.MULTILINE)[1]
    (tmp_path / "etc").mkdir()
    run("systemd-sysusers", f"--root={tmp_path}", str(SYSTEMD / "tidetape-server.sysusers"))
    assert "tidetape:" in (tmp_path / "etc" / "passwd").read_text()


def test_the_unit_starts_a_server_with_the_settings_it_comes_with(unit, tmp_path):
    """The unit's own command line with its own flags, except for what would clash on this machine."""
    flags = (SYSTEMD / "server.flags").read_text()
    for port in (50551, 50552):
        flags, changed = re.subn(rf"127\.0\.0\.1:{port}", "127.0.0.1:0", flags)
        assert changed == 1
    (tmp_path / "server.flags").write_text(flags.replace("/var/log/tidetape", str(tmp_path)))
    command = re.search(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[1]
    command = command.replace("/etc/tidetape/server.flags", str(tmp_path / "server.flags")).split()
    addresses = tmp_path / "addresses"
    environment = {"STATE_DIRECTORY": str(tmp_path / "state")}
    server = subprocess.Popen([*command, f"--address_file={addresses}"], env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not addresses.exists() and server.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        http = addresses.read_text().split()[1]
        with urllib.request.urlopen(f"http://{http}/readyz", timeout=10) as answer:
            assert answer.read() == b"ready\n"
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{http}/nothing", timeout=10)
        assert (tmp_path / "state" / "server.db").exists()
    finally:
        server.terminate()
    assert server.wait(START_SECONDS) == 0
