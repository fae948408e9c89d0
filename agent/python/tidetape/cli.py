"""The programs `tidetape` and `tidetapectl` of the wheel."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import tidetape
from tidetape import doctor
from tidetape.programs import find_program


def main(arguments: Sequence[str] | None = None) -> int:
    """`tidetape doctor`. Training itself starts with `python -m tidetape.launch`, so that torchrun can start it, too."""
    parser = argparse.ArgumentParser(prog="tidetape", description="Train PyTorch models under a memory limit.")
    parser.add_argument("--version", action="version", version=f"tidetape {tidetape.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor.add_arguments(commands.add_parser("doctor", help="say what works on this machine, and what to do about the rest"))
    return doctor.run(parser.parse_args(arguments))


def tidetapectl() -> None:
    """Becomes the tidetapectl that came with the wheel."""
    program = find_program("tidetapectl")
    # On PATH it may be this very script.
    if program is None or os.path.realpath(program) == os.path.realpath(sys.argv[0]):
        sys.exit("tidetapectl: this package was made without it; take the one of the machine that runs tidetape-server")
    os.execv(program, [str(program), *sys.argv[1:]])
