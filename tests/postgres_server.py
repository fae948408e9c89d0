"""A real PostgreSQL on a port of its own, with a password."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.planner_server import free_address, wait_for

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
USER, DATABASE, PASSWORD = "tidetape", "tidetape", "password-of-tidetape"


class PostgresServer:
    """Use as a context. `environment` has libpq connect here whatever host it is told."""

    def __init__(self):
        # Not in the test's own folder, which may be closed to other users. PostgreSQL refuses to run as root.
        self._folder = Path(tempfile.mkdtemp(prefix="tidetape-postgres-"))
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as_user:
            shutil.chown(self._folder, "postgres")
        host, port = free_address().split(":")
        self.environment = {"PGHOSTADDR": host, "PGPORT": port, "PGPASSWORD": PASSWORD}

    def __enter__(self):
        password = self._folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        authentication = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={password}", "--encoding=UTF8", "--locale=C"]
        self._run("initdb", f"--pgdata={self._folder}/data", "--no-sync", *authentication)
        place = ["-D", f"{self._folder}/data", "-p", self.environment["PGPORT"], "-k", str(self._folder)]
        self._process = subprocess.Popen([*self._as_user, PROGRAMS / "postgres", *place], stderr=subprocess.DEVNULL, cwd="/")
        wait_for("PostgreSQL", lambda: self._psql("SELECT 1", "postgres").returncode == 0, 30)
        assert self._psql(f"CREATE DATABASE {DATABASE}", "postgres").returncode == 0
        return self

    def __exit__(self, *error):
        self._run("pg_ctl", "stop", f"--pgdata={self._folder}/data", "--mode=immediate")
        self._process.wait(20)
        shutil.rmtree(self._folder)

    def _run(self, program, *arguments):
        done = subprocess.run([*self._as_user, PROGRAMS / program, *arguments], cwd="/", capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr

    def _psql(self, statement, database):
        command = ["psql", "--no-psqlrc", f"--username={USER}", f"--dbname={database}", f"--command={statement}"]
        return subprocess.run(command, env=os.environ | self.environment, capture_output=True, timeout=60)
