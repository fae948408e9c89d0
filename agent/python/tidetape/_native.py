"""Finds and loads the native parts: beside this file in an installed package, in bazel-bin in a source tree."""

from __future__ import annotations

import functools
import gc
import importlib.machinery
import importlib.util
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType

import torch

from .versions import SUPPORTED_TORCH

_PACKAGE = Path(__file__).resolve().parent
_TREE = _PACKAGE.parents[2] / "bazel-bin"


def _find(name: str, built_at: str) -> Path:
    for path in (_PACKAGE / name, _TREE / built_at):
        if path.exists():
            return path
    raise ImportError(f"tidetape: {name} is neither in {_PACKAGE} nor in {_TREE / built_at}; run `make build` or install the wheel")


def library_path() -> str:
    """Path of libtt_agent.so, the link to the planner. Raises ImportError where it was not built."""
    return str(_find("libtt_agent.so", "agent/link/libtt_agent.so"))


def _load(module_name: str, built_at: str) -> ModuleType:
    name = f"{__package__}.{module_name}"
    path = _find(f"{module_name}.so", built_at)
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


@functools.cache
def collectives() -> ModuleType:
    """The data plane of FSDP2's collectives, loaded when it is first wanted. Raises ImportError where it was not built."""
    return _load("_collectives", "agent/fsdp/_collectives.so")


def _adopt_existing_tensors(native: ModuleType) -> None:
    """Counts tensors that were allocated before the meter was there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for item in gc.get_objects():
            try:
                if isinstance(item, torch.Tensor) and item.device.type == "cpu" and item.layout == torch.strided:
                    native.meter_adopt(getattr(item, "_local_tensor", item))
            except Exception:  # objects that are half alive raise whatever they like
                continue


def _problem() -> str:
    """Why nothing may be loaded into this process, or an empty string."""
    if os.environ.get("TIDETAPE_DISABLE", "") not in ("", "0"):
        return "TIDETAPE_DISABLE is set"
    version = torch.__version__.split("+")[0]
    if version != SUPPORTED_TORCH:
        return f"torch {version} is not supported (this Tidetape is for {SUPPORTED_TORCH}); training goes on without Tidetape"
    return ""


_C: ModuleType | None = None
intercept_problem: str = _problem()
"""Empty, or in one line why this torch cannot be intercepted."""

if not intercept_problem:
    _C = _load("_C", "agent/session/_C.so")
    intercept_problem = _C.install()
    _C.meter_install()
    _adopt_existing_tensors(_C)


def intercept_status() -> tuple[bool, str]:
    """Whether ops can be recorded in this process, and a line about it."""
    return (not intercept_problem, intercept_problem or f"torch {torch.__version__}: ops below autograd can be recorded")
