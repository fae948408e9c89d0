"""A real tidetape-server that tests kill and start again, and tidetapectl to ask it."""

import json
import os
import socket
import subprocess
import time

START_SECONDS = 10


def free_address():
    """A loopback host:port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


def wait_for(what, condition, seconds):
    """Seconds until `condition()` is true; fails after `seconds`."""
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        if condition():
            return time.monotonic() - start
        time.sleep(0.05)
    raise AssertionError(f"not within {seconds} s: {what}")


class PlannerServer:
    """tidetape-server on loopback ports of its own, the same after every start. `store` is as for its --store; `environment` comes
    on top of this process's."""

    def __init__(self, server_program, ctl_program, store="memory", environment=None):
        self._server_program = server_program
        self._store = store
        self._environment = os.environ | (environment or {})
        self._ctl_program = ctl_program
        self._process = None
        self.address = free_address()
        self.http_address = free_address()

    def start(self):
        """Returns once it accepts connections."""
        command = [
            self._server_program,
            f"--listen={self.address}",
            f"--store={self._store}",
            f"--http_listen={self.http_address}",
            "--log_level=warning",
        ]
        self._process = subprocess.Popen(command, env=self._environment)
        host, port = self.address.split(":")
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"tidetape-server ended with {self._process.returncode}")
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.02)
        raise AssertionError(f"tidetape-server does not listen after {START_SECONDS} s")

    def kill(self):
        """SIGKILL: it has no time to say goodbye."""
        self._process.kill()
        self._process.wait()

    def stop(self):
        """Ends it if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(20)

    def ask(self, *arguments):
        """What tidetapectl answers as JSON, or None where it fails, as while the server is away."""
        command = [self._ctl_program, "--server", self.address, *arguments, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        return json.loads(done.stdout) if done.returncode == 0 else None

    # Here too, for those who have a server at hand.
    wait_for = staticmethod(wait_for)
