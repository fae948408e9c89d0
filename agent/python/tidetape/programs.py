"""Finds the C++ programs and libraries that belong to this package."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
# Set in a checkout, where Bazel builds; a wheel carries its programs in bin/.
_BAZEL_BIN = _PACKAGE.parents[2] / "bazel-bin"


def find_program(name: str) -> Path | None:
    """The program in the wheel, in the checkout's bazel-bin, or on PATH, in this order; None where it is nowhere."""
    for path in (_PACKAGE / "bin" / name, _BAZEL_BIN / "server" / name):
        if os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    return Path(found) if found else None


def find_agent_library() -> Path | None:
    """libtt_agent.so of the wheel or the checkout."""
    paths = (_PACKAGE / "libtt_agent.so", _BAZEL_BIN / "agent" / "link" / "libtt_agent.so")
    return next((path for path in paths if path.exists()), None)
