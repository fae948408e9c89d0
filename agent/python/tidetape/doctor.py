"""`tidetape doctor`: what works on this machine, and what to do about the rest."""

from __future__ import annotations

import argparse
import ctypes
import importlib.metadata
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

import tidetape
from tidetape.memory_limit import device_memory_bytes, parse_memory_limit
from tidetape.programs import find_agent_library, find_program
from tidetape.versions import SUPPORTED_TORCH

# Tidetape's library interface that this Python code speaks (TT_LINK_ABI_VERSION in agent/link/tt_link.h).
_LINK_ABI_VERSION = 6
_CONNECT_SECONDS = 3.0
_ASK_SECONDS = 10.0


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, whether it is good (None: not needed here), what was seen, and what to do where it is bad."""

    subject: str
    good: bool | None
    seen: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {True: "ok  ", False: "BAD ", None: "-   "}[self.good]
        return f"{mark} {self.subject}: {self.seen}" + (f"\n     {self.remedy}" if self.remedy else "")


def examine(planner: str = "local", memory_limit: str = "90%") -> list[Finding]:
    """Looks at everything that attach() needs. Changes nothing; asks the planner where one is named."""
    return [
        _torch(),
        _dispatcher(),
        _agent_library(),
        _nccl(),
        _planner(planner),
        _memory_limit(memory_limit),
    ]


def _torch() -> Finding:
    wanted = SUPPORTED_TORCH
    if torch.__version__.split("+")[0] == wanted:
        return Finding("torch", True, torch.__version__)
    return Finding("torch", False, f"{torch.__version__}, made for {wanted}", f"pip install torch=={wanted}")


def _dispatcher() -> Finding:
    good, text = tidetape.intercept_status()
    remedy = "" if good else "training runs, unmanaged; a supported torch without another user of its dispatch key records again"
    return Finding("recording", good, text, remedy)


def _agent_library() -> Finding:
    path = find_agent_library()
    if path is None:
        return Finding("planner link", False, "libtt_agent.so is not there", "make build, or install the wheel again")
    try:
        version = ctypes.CDLL(str(path)).tt_link_abi_version()
    except (OSError, AttributeError) as error:
        remedy = "install what it misses, on Debian: apt-get install libgrpc++1.51 libprotobuf32"
        return Finding("planner link", False, str(error), remedy)
    if version != _LINK_ABI_VERSION:
        return Finding("planner link", False, f"{path} has interface {version}, not {_LINK_ABI_VERSION}", "make build")
    return Finding("planner link", True, str(path))


def _nccl() -> Finding:
    """The NCCL that this process runs with: torch.cuda.nccl.version() would only say what torch was compiled for."""
    package = next((name for name in _distributions() if name.startswith("nvidia-nccl-")), None)
    installed = f"{package} {importlib.metadata.version(package)}" if package else "no package"
    try:
        number = ctypes.c_int()
        ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return Finding("NCCL", None, f"none at run time ({installed}); gloo is used on CPU")
    version = number.value
    return Finding("NCCL", True, f"{version // 10000}.{version // 100 % 100}.{version % 100} at run time ({installed})")


def _distributions() -> list[str]:
    return [str(distribution.metadata["Name"]) for distribution in importlib.metadata.distributions()]


def _planner(planner: str) -> Finding:
    if planner == "local":
        return Finding("planner", True, "inside the training process")
    # Of several servers one leads, and the others stand by.
    findings = [_server(server) for server in planner.split(",")]
    return next((finding for finding in findings if finding.good), findings[0])


def _server(planner: str) -> Finding:
    host, _, port = planner.rpartition(":")
    if not host or not port.isdigit():
        return Finding("planner", False, f"{planner!r} is no address", 'pass --planner host:port, or "local"')
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError as error:
        remedy = f"start it there: tidetape-server --listen={planner}; training goes on without it meanwhile"
        return Finding("planner", False, f"{planner}: {error}", remedy)
    program = find_program("tidetapectl")
    if program is None:
        return Finding("planner", True, f"{planner} takes connections (not asked further: no tidetapectl)")
    command = [str(program), "--server", planner, "jobs"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS)
        complaint = "" if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"
    except subprocess.TimeoutExpired:
        complaint = f"no answer within {_ASK_SECONDS:g} s"
    if complaint:
        return Finding(
            "planner", False, f"{planner} takes connections, but: {complaint}", "is it a tidetape-server of this version?"
        )
    return Finding("planner", True, f"{planner} answers")


def _memory_limit(limit: str) -> Finding:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        parsed = parse_memory_limit(limit, device)
    except ValueError as error:
        return Finding("memory limit", False, str(error))
    said = {0: "as little as possible", -1: "none"}.get(parsed, f"{parsed:,} bytes")
    return Finding("memory limit", True, f"{limit} is {said} a rank; {device} has {device_memory_bytes(device):,} bytes a rank")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--planner", default=os.environ.get("TIDETAPE_PLANNER", "local"), help='"local" or host:port')
    parser.add_argument(
        "--memory-limit", default=os.environ.get("TIDETAPE_MEMORY_LIMIT", "90%"), help='as for attach, "90%%" by default'
    )


def run(options: argparse.Namespace, say: Callable[[str], None] = print) -> int:
    """Prints the findings. 0 where nothing is bad."""
    findings = examine(options.planner, options.memory_limit)
    for finding in findings:
        say(str(finding))
    return 1 if any(finding.good is False for finding in findings) else 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tidetape.doctor", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
