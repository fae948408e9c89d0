"""A real tidetape-server with jobs that nobody trains: `bazel-bin/server/testing/fake_jobs` plays their ranks."""

import subprocess
import time
from pathlib import Path

START_SECONDS = 60


class ServerWithFakeJobs:
    """As a context: the server listens and its jobs have their plans. See server/testing/fake_jobs.cpp for which there are."""

    def __init__(self, server_program: Path, fake_jobs_program: Path, folder: Path, *flags: str):
        self._programs = server_program, fake_jobs_program
        self._addresses = folder / "addresses"
        self._flags = flags
        self._processes = []
        self.address = self.http_address = ""

    def __enter__(self):
        server, jobs = self._programs
        command = [server, "--listen=127.0.0.1:0", "--http_listen=127.0.0.1:0", "--store=memory", "--log_level=error"]
        self._processes.append(subprocess.Popen([*command, f"--address_file={self._addresses}", *self._flags]))
        deadline = time.monotonic() + START_SECONDS
        while not self._addresses.exists():
            assert self._processes[0].poll() is None, "tidetape-server ended"
            assert time.monotonic() < deadline, "tidetape-server does not listen"
            time.sleep(0.02)
        self.address, self.http_address = self._addresses.read_text().split()
        ranks = subprocess.Popen([jobs, self.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._processes.append(ranks)
        assert ranks.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *exception):
        for process in reversed(self._processes):
            if process.stdin is not None:
                process.stdin.close()
            process.terminate()
            process.wait(30)
