"""Runs an unmodified training script with Tidetape attached to its model.

    torchrun --nproc-per-node 8 -m tidetape.launch --memory-limit 90% train.py --its --arguments

The model is the outermost module that runs forward for training, owns repeated blocks and fits --model. It is attached just before
that first forward, when FSDP2, DDP and the like have been applied already.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

import tidetape
from tidetape.block_options import choose_blocks
from tidetape.blocks import find_blocks
from tidetape.existing import POLICIES, find_checkpointing
from tidetape.memory_limit import parse_host_memory_limit, parse_memory_limit

_FALSE = ("", "0", "false", "no", "off")


@dataclass(frozen=True)
class Settings:
    """What to attach, and how. The command line wins over the environment (TIDETAPE_MODEL and so on), which wins over defaults."""

    # Regular expression for the class of the model, as in "Qwen3"; any model fits None.
    model: str | None = None
    # Name globs, separated by commas.
    blocks: str | None = None
    memory_limit: str = "90%"
    host_memory_limit: str | None = None
    planner: str = "local"
    job: str | None = None
    existing: str = "replace"
    # Runs the script as if Tidetape were not there.
    disable: bool = False
    dry_run: bool = False

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
        names = ("model", "blocks", "memory_limit", "host_memory_limit", "planner", "job", "existing")
        given = {name: environment[f"TIDETAPE_{name.upper()}"] for name in names if environment.get(f"TIDETAPE_{name.upper()}")}
        return Settings(**given, disable=environment.get("TIDETAPE_DISABLE", "").lower() not in _FALSE)

    def check(self) -> None:
        """Raises ValueError for a setting that could never work, before the script spends time on its start."""
        parse_memory_limit(self.memory_limit)
        parse_host_memory_limit(self.host_memory_limit)
        if self.existing not in POLICIES:
            raise ValueError(f"existing={self.existing!r}: it takes one of {', '.join(POLICIES)}")
        if self.planner != "local" and re.fullmatch(r".+:\d+", self.planner) is None:
            raise ValueError(f'planner={self.planner!r}: it takes "local" or host:port')
        if self.model is not None:
            try:
                re.compile(self.model)
            except re.error as error:
                raise ValueError(f"model={self.model!r} is no regular expression: {error}") from error

    def block_globs(self) -> list[str] | None:
        return [glob.strip() for glob in self.blocks.split(",")] if self.blocks else None


class FirstTrainingForward:
    """Calls `found(model)` once, just before the first forward for training of the model that fits the settings.

    A hook that torch calls for every module until then and that is gone afterwards.
    """

    def __init__(self, settings: Settings, found: Callable[[nn.Module], None]):
        self._settings = settings
        self._found = found
        self._rejected: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        # What kept the last candidate from being taken, for people.
        self.reason = "no module ran forward for training"
        self._handle = nn.modules.module.register_module_forward_pre_hook(self._before_forward)

    def remove(self) -> None:
        self._handle.remove()

    def _before_forward(self, module: nn.Module, _inputs) -> None:
        # Evaluation comes first in many scripts: what does not train now may train later, so it is not rejected.
        if not torch.is_grad_enabled() or not module.training or module in self._rejected:
            return
        if self._fits(module):
            self.remove()
            self._found(module)
        else:
            self._rejected.add(module)

    def _fits(self, module: nn.Module) -> bool:
        if self._settings.model is not None and not any(
            re.search(self._settings.model, f"{kind.__module__}.{kind.__qualname__}") for kind in type(module).__mro__
        ):
            self.reason = f"no module that trained fits --model {self._settings.model!r}"
            return False
        if not any(parameter.requires_grad for parameter in module.parameters()):
            return False
        try:
            find_blocks(module, self._settings.block_globs())
        except ValueError as error:
            self.reason = str(error)
            return False
        return True


def describe(model: nn.Module, settings: Settings) -> str:
    """What attaching would do, in a few lines."""
    blocks = find_blocks(model, settings.block_globs())
    lines = [f"would attach to {type(model).__name__}: {len(blocks)} blocks, {blocks[0][0]} … {blocks[-1][0]}"]
    chosen = choose_blocks(blocks, {})
    lines += [f"  {name}: by one of {', '.join(given.options)}" for name, given in chosen.options.items()]
    lines += [f"  {name}: unmanaged, {reason}" for name, reason in chosen.unmanaged.items()]
    on = find_checkpointing(model)
    if on:
        kinds = ", ".join(sorted({one.kind for one in on}))
        lines.append(f"  checkpointing is on ({kinds}); existing={settings.existing}")
    limit = parse_memory_limit(settings.memory_limit, next(model.parameters()).device)
    said = {0: "as little as possible", -1: "none"}.get(limit, f"{limit:,} bytes")
    host = f", host memory limit {settings.host_memory_limit}" if settings.host_memory_limit else ""
    lines.append(f"  memory limit {settings.memory_limit} ({said}){host}, planner {settings.planner}")
    return "\n".join(lines)


def _say(text: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        print("\n".join(f"tidetape: {line}" for line in text.splitlines()), file=sys.stderr, flush=True)


def parse_arguments(arguments: Sequence[str]) -> tuple[Settings, bool, list[str]]:
    """(settings, the script is a module's name, [script, *its arguments]). Exits with a message where they make no sense."""
    environment = Settings.from_environment()
    parser = argparse.ArgumentParser(prog="tidetape.launch", description=__doc__.split("\n\n")[0], allow_abbrev=False)
    parser.add_argument(
        "--model", default=environment.model, metavar="REGEX", help="class of the model, where the script has several"
    )
    parser.add_argument("--blocks", default=environment.blocks, metavar="GLOB", help='as in "model.layers.*"; several with commas')
    parser.add_argument(
        "--memory-limit", default=environment.memory_limit, metavar="X", help='bytes, "3.5GiB", "90%%", "min", "max"'
    )
    parser.add_argument(
        "--host-memory-limit",
        default=environment.host_memory_limit,
        metavar="X",
        help='host memory for moved values: bytes, "4GiB", "10%%" (default: nothing is moved)',
    )
    parser.add_argument("--planner", default=environment.planner, metavar="X", help='"local" or host:port of a tidetape-server')
    parser.add_argument("--job", default=environment.job, help="name of the job at the planner")
    parser.add_argument(
        "--existing", default=environment.existing, choices=POLICIES, help="what becomes of checkpointing that is on"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be attached and run the script without it")
    parser.add_argument("--module", action="store_true", help="the script is the name of a module, as with python -m")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = vars(parser.parse_args(arguments))
    command = [given.pop("script"), *given.pop("arguments")]
    as_module = given.pop("module")
    settings = Settings(**given, disable=environment.disable)
    try:
        settings.check()
    except ValueError as error:
        parser.error(str(error))
    return settings, as_module, command


def run(settings: Settings, as_module: bool, command: list[str]) -> None:
    """Runs the script as __main__, attached as the settings say, and detaches when it ends."""
    sessions = []

    def attach(model: nn.Module) -> None:
        if settings.dry_run:
            sessions.append(None)
            _say(describe(model, settings))
            return
        sessions.append(
            tidetape.attach(
                model,
                blocks=settings.block_globs(),
                memory_limit=settings.memory_limit,
                host_memory_limit=settings.host_memory_limit,
                planner=settings.planner,
                job=settings.job,
                existing=settings.existing,
            )
        )

    watch = None if settings.disable else FirstTrainingForward(settings, attach)
    sys.argv = list(command)
    try:
        if as_module:
            runpy.run_module(command[0], run_name="__main__", alter_sys=True)
        else:
            # As Python does for a script: modules that lie beside it can be imported.
            sys.path.insert(0, os.path.dirname(os.path.abspath(command[0])))
            runpy.run_path(command[0], run_name="__main__")
    finally:
        if watch is not None:
            watch.remove()
            if not sessions:
                _say(f"nothing was attached: {watch.reason}")
        for session in filter(None, sessions):
            session.detach()


def main(arguments: Sequence[str] | None = None) -> None:
    run(*parse_arguments(sys.argv[1:] if arguments is None else arguments))


if __name__ == "__main__":
    main()
