"""The whole demo on one machine: a planner's server, and two ranks that train under its plans.

make demo
"""

from __future__ import annotations

import argparse
import os
import re
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

from tidetape.programs import find_program

_SERVER_START_SECONDS = 20
_SERVER_STOP_SECONDS = 10
_TRAINING_SECONDS = 900


def _start_server() -> tuple[subprocess.Popen, str]:
    """A server on a free loopback port, and its address."""
    program = find_program("tidetape-server")
    if program is None:
        raise RuntimeError("tidetape-server is not there; make build makes it")
    command = [str(program), "--listen=127.0.0.1:0", "--store=memory", "--http_listen=", "--log_level=warning"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        return server, _read_address(server)
    except BaseException:
        _stop(server)
        raise


def _read_address(server: subprocess.Popen) -> str:
    """The server says on its standard output where it listens."""
    deadline = time.monotonic() + _SERVER_START_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(server.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline and selector.select(deadline - time.monotonic()):
            line = server.stdout.readline()
            match = re.search(r"(127\.0\.0\.1:\d+)", line)
            if match:
                return match[1]
            if not line:
                break
    raise RuntimeError(f"tidetape-server did not say within {_SERVER_START_SECONDS} s where it listens")


def _stop(process: subprocess.Popen) -> None:
    """Asks the process and its children to end, and makes them where they do not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_SERVER_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _train(address: str, ranks: int, arguments: list[str]) -> int:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += ["-m", "tidetape.demo", f"--planner={address}", *arguments]
    # Threads of the ranks would fight for the cores; torchrun says so at length where nobody chose.
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    training = subprocess.Popen(command, env=environment)
    try:
        return training.wait(_TRAINING_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"demo: training took more than {_TRAINING_SECONDS} s", file=sys.stderr)
        return 124
    finally:
        _stop(training)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tidetape.demo.cluster", description=__doc__.split("\n\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    options, arguments = parser.parse_known_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start = time.monotonic()
    server, address = _start_server()
    try:
        print(
            f"demo: tidetape-server on {address}; try: {Path('bazel-bin/server/tidetapectl')} --server {address} jobs", flush=True
        )
        result = _train(address, options.ranks, arguments)
    finally:
        _stop(server)
    print(f"demo: {time.monotonic() - start:.0f} s, exit {result}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
