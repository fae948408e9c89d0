"""The Debian package: installed into a clean Debian 12, run, used by a training, and purged; and the container made of it."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.planner_server import free_address, wait_for
from tests.processes import ROOT
from tests.rank_training import RankTraining

UNIT = Path("usr/lib/systemd/system/tidetape-server.service")
FLAGS = Path("etc/tidetape/server.flags")
# What dpkg and the user database keep for themselves.
BOOKKEEPING = re.compile(r"(dev|proc|sys|run|tmp|var/lib/dpkg|var/log|var/cache)(/|$)|etc/(\.pwd\.lock|(passwd|group|g?shadow)-?)$")


def run(*command, seconds=1800):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout


def test_the_package_has_the_servers_version():
    version = re.search(r'kVersion\[\] = "(.*)"', (ROOT / "server" / "common" / "version.h").read_text())[1]
    changelog = ROOT / "deploy" / "debian" / "changelog"
    assert run("dpkg-parsechangelog", "-l", str(changelog), "-S", "Version").strip() == version


@pytest.fixture(scope="module")
def package():
    """The path of a package that is built anew."""
    run("tools/build_deb.sh")
    (path,) = (ROOT / "dist").glob("tidetape-server_*.deb")
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A minimal Debian 12 as a tar archive."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("mmdebstrap", "buildah"))):
        pytest.skip("needs root, mmdebstrap and buildah")
    path = tmp_path_factory.mktemp("base") / "debian.tar"
    # It need not survive a power cut.
    run("mmdebstrap", "--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io", "bookworm", str(path))
    return path


@pytest.fixture(scope="module")
def debian(base, package, tmp_path_factory):
    """The folder of a Debian with what the package depends on, and without the package."""
    root = tmp_path_factory.mktemp("debian")
    run("tar", "--extract", "--file", str(base), "--directory", str(root))
    shutil.copy("/etc/resolv.conf", root / "etc")
    needed = run("dpkg-deb", "--field", str(package), "Depends").strip()
    # The first of the alternatives is all of systemd; here is no init to use it.
    needed = needed.replace("systemd | systemd-standalone-sysusers | systemd-sysusers", "systemd-standalone-sysusers")
    run("chroot", str(root), "apt-get", "update")
    run("chroot", str(root), "apt-get", "satisfy", "--yes", "--no-install-recommends", needed)
    yield root
    shutil.rmtree(root)


def files(root):
    found = {str(path.relative_to(root)) for path in root.rglob("*")}
    return {path for path in found if not BOOKKEEPING.match(path)}


class InstalledService:
    """Starts what the unit in `root` starts, as the user and with the folders that systemd would give it."""

    def __init__(self, root):
        unit = dict(re.findall(r"^(\w+)=(.*)$", (root / UNIT).read_text(), re.MULTILINE))
        user = f"{unit['User']}:{unit['Group']}"
        state, logs = f"/var/lib/{unit['StateDirectory']}", f"/var/log/{unit['LogsDirectory']}"
        for folder in (state, logs):
            run("chroot", str(root), "install", "-d", "-m", "700", "-o", unit["User"], "-g", unit["Group"], folder)
        command = ["chroot", f"--userspec={user}", str(root), *unit["ExecStart"].split()]
        self._process = subprocess.Popen(
            command, env={"STATE_DIRECTORY": state, "PATH": "/usr/sbin:/usr/bin"}, stderr=subprocess.PIPE, text=True
        )

    def stop(self):
        """Ends it as systemd would; returns its exit code and its log."""
        self._process.terminate()
        log = self._process.communicate(timeout=20)[1]
        return self._process.returncode, log


@pytest.mark.long
def test_the_package_is_installed_used_and_purged(debian, package, tmp_path):
    before = files(debian)
    shutil.copy(package, debian / "tmp")
    run("chroot", str(debian), "dpkg", "--install", f"/tmp/{package.name}")
    installed = files(debian) - before
    assert {str(UNIT), str(FLAGS), "usr/bin/tidetape-server", "usr/bin/tidetapectl"} <= installed
    # Nobody's machine is asked for anything that the package did not name.
    assert run("chroot", str(debian), "dpkg", "--audit") == ""

    address, http = free_address(), free_address()
    flags = (debian / FLAGS).read_text().replace("127.0.0.1:50551", address).replace("127.0.0.1:50552", http)
    (debian / FLAGS).write_text(flags)
    service = InstalledService(debian)
    try:

        def jobs():
            command = ["chroot", str(debian), "tidetapectl", "--server", address, "jobs", "-o", "json"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=20)
            return json.loads(done.stdout).get("jobs", []) if done.returncode == 0 else None

        wait_for("the server", lambda: jobs() is not None, 20)
        with RankTraining(tmp_path, address, "90%") as training:
            wait_for("the first plan", lambda: training.newest_generation() > 0, 120)
            (job,) = jobs()
            assert (job["job"], job["connected_ranks"]) == (training.job, 2)
            training.finish()
    finally:
        code, log = service.stop()
    assert code == 0, log
    assert (debian / "var/lib/tidetape/server.db").stat().st_size > 0
    assert oct((debian / "var/lib/tidetape").stat().st_mode & 0o777) == "0o700"

    run("chroot", str(debian), "dpkg", "--remove", "tidetape-server")
    assert (debian / FLAGS).read_text() == flags, "removing keeps the settings"
    assert (debian / "var/lib/tidetape/server.db").exists(), "removing keeps the store"
    run("chroot", str(debian), "dpkg", "--purge", "tidetape-server")
    assert files(debian) == before
    assert not (debian / "var/log/tidetape").exists()


@pytest.fixture
def buildah(base, tmp_path, monkeypatch):
    """A function that runs buildah on images of the test's own, without the network's ones, and returns what it says."""
    monkeypatch.setenv("BUILDAH_ISOLATION", "chroot")
    folders = [f"--root={tmp_path}/images", f"--runroot={tmp_path}/run", "--storage-driver=vfs"]

    def buildah(*arguments):
        return run("buildah", *folders, *map(str, arguments)).strip()

    buildah.command = ["buildah", *folders]
    yield buildah
    buildah("rm", "--all")
    buildah("rmi", "--all", "--force")


@pytest.mark.long
def test_the_container_serves(base, buildah, package, tmp_path):
    """Its first stage, which builds the package from the sources, is replaced by the package that is there."""
    scratch = buildah("from", "scratch")
    buildah("add", "--quiet", scratch, base, "/")
    buildah("commit", "--quiet", scratch, "debian:bookworm-slim")
    built = tmp_path / "package" / "source" / "dist"
    built.mkdir(parents=True)
    shutil.copy(package, built)
    stages = ["--pull-never", "--skip-unused-stages=true", f"--build-context=package={tmp_path}/package"]
    buildah("build", *stages, "--file=deploy/container/Containerfile", "--tag=tidetape-server", ".")

    container = buildah("from", "--pull-never", "tidetape-server")
    image = json.loads(buildah("inspect", "--type=image", "tidetape-server"))["OCIv1"]["config"]
    address = free_address()
    command = [*image["Entrypoint"], f"--listen={address}", "--http_listen="]
    # By shell, so that the server ends when its input does: buildah passes no signals on.
    script = f"{' '.join(command)} & cat; kill $!; wait $!"
    server = subprocess.Popen([*buildah.command, "run", "--net=host", container, "--", "sh", "-c", script], stdin=subprocess.PIPE)
    try:

        def jobs():
            ask = [*buildah.command, "run", "--net=host", container, "--", "tidetapectl", "--server", address, "jobs"]
            return subprocess.run(ask, capture_output=True, timeout=60).returncode == 0

        wait_for("the server", jobs, 60)
        store = Path(buildah("mount", container)) / "var/lib/tidetape"
        assert oct(store.stat().st_mode & 0o777) == "0o700"
        owners = {f"{path.stat().st_uid}:{path.stat().st_gid}" for path in (store, store / "server.db")}
        assert owners == {image["User"]}
    finally:
        server.stdin.close()
    assert server.wait(20) == 0
