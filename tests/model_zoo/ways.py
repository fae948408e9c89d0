"""Trains a type in several ways and says where they differ."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import random

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tidetape
from tests.training import History, keep, require_same

from .blocks import choose_blocks
from .inputs import make_inputs
from .losses import loss_of
from .models import build, seed_all

STEPS = 2


@dataclasses.dataclass(frozen=True)
class Mode:
    """A precision to train in."""

    name: str
    dtype: torch.dtype
    autocast: bool = False


MODES = (Mode("fp32", torch.float32), Mode("bf16", torch.bfloat16), Mode("autocast", torch.float32, autocast=True))


def compare(model_type: str, mode: Mode, plans: int) -> dict:
    """What every way of training gave, `plans` random plans among them, as a record of plain values.

    "equal" stands for equal to the bit with plain training.
    """
    record = {}
    try:
        expected, _ = _train(model_type, mode)
    except Exception as error:
        return {"plain": _first_line(error)}
    again, _ = _train(model_type, mode)
    record["plain"] = _difference(again, expected)
    if record["plain"] != "equal":
        return record

    theirs = None
    try:
        got, theirs = _train(model_type, mode, _checkpoint)
        record["checkpoint"] = _difference(got, expected)
    except Exception as error:
        record["checkpoint"] = f"fails: {_first_line(error)}"

    sites = {}
    try:
        with _attached(model_type) as attach:
            got, ours = _train(model_type, mode, attach)
            record["nothing_saved"] = _difference(got, expected)
            record.update(_numbers(attach.session))
            sites = _sites(attach.session)
            record.update(peak=ours, checkpoint_peak=theirs)
    except Exception as error:
        record["nothing_saved"] = f"fails: {_first_line(error)}"
    if sites:
        record["plans"] = [_random_plan(model_type, mode, number, sites, expected) for number in range(plans)]
    return record


def _train(model_type: str, mode: Mode, prepare=None) -> tuple[History, int]:
    """(what the steps left behind, bytes at the last step's peak above those before it)."""
    model = build(model_type, mode.dtype)
    inputs = [make_inputs(model, mode.dtype, step) for step in range(STEPS)]
    session = prepare(model) if prepare else None
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    seed_all(7)
    history, peak = History(), 0
    for arguments in inputs:
        gc.collect()
        before = tidetape._C.meter_live_bytes()
        tidetape._C.meter_reset_peak()
        with session.step() if session else contextlib.nullcontext():
            with torch.autocast("cpu", torch.bfloat16, enabled=mode.autocast):
                loss = loss_of(model(**arguments))
            loss.backward()
        peak = tidetape._C.meter_peak_bytes() - before
        keep(history, model, loss)
        optimizer.step()
        optimizer.zero_grad()
        del loss
    return history, peak


def _checkpoint(model: nn.Module) -> None:
    for _, block in choose_blocks(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


class _attached:
    """Attaches a session with nothing saved to the model that it is called with, for as long as the context lasts."""

    def __init__(self, model_type: str, impose=None):
        self.impose = impose
        self.session = None

    def __enter__(self):
        return self

    def __call__(self, model: nn.Module):
        blocks = [block for _, block in choose_blocks(model)]
        self.session = tidetape.attach(model, blocks=blocks, memory_limit="min", planner="none")
        if self.impose:
            self.impose(self.session)
        return self.session

    def __exit__(self, *_exception):
        if self.session is not None:
            self.session.detach()


def _numbers(session) -> dict:
    """What the session counted in its last step."""
    stats = session.stats()
    numbers = {name: stats[name] for name in ("recorded_ops", "consumed_bytes", "demoted_bytes", "demoted_ops") if name in stats}
    numbers["passed_through"] = session.passed_through()
    numbers["demotions"] = session.demotions() if hasattr(session, "demotions") else {}
    return numbers


def _sites(session) -> dict[str, list]:
    """(site, may be replayed) by block; empty with an agent that takes no hand-made plans."""
    if not hasattr(session, "impose"):
        return {}
    return {block: [(site.site, not site.must_save) for site in sites] for block, sites in session.sites().items()}


def _random_plan(model_type: str, mode: Mode, number: int, sites: dict, expected: History) -> str:
    """Trains under a plan drawn by type, mode and number."""
    draw = random.Random(f"{model_type} {mode.name} {number}")
    actions = {block: {site: draw.choice(("save", "replay", "move")) for site, _ in named} for block, named in sites.items()}
    default = draw.choice(("save", "replay"))
    try:
        with _attached(model_type, lambda session: session.impose(actions, default=default)) as attach:
            return _difference(_train(model_type, mode, attach)[0], expected)
    except Exception as error:
        return f"fails: {_first_line(error)}"


def _difference(got: History, expected: History) -> str:
    try:
        require_same(got, expected)
    except AssertionError as error:
        return _first_line(error)
    return "equal"


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}"[:200] if not isinstance(error, AssertionError) else (lines or ["?"])[0][:200]
