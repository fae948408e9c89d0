"""Asks a planner service from Python, for notebooks: jobs, plans, frontiers and memory as data frames and pictures.

    from tidetape.client import Client

    client = Client()                       # the server and the token that tidetapectl would use
    client.jobs().frame()                   # with pandas
    client.frontier("train-1").plot()       # with matplotlib

It runs `tidetapectl -o json`, so contexts, certificates, tokens and messages are the same as there, and no gRPC comes into the
process. Nothing here changes a job.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .programs import find_program

# 64-bit integers are strings in proto3's JSON; these fields have them.
_INTEGERS = re.compile(r"(^|_)(bytes|micros|generation|step|reports|ops|revision|dropped|site|hash|size|tokens|visits)$")


class PlannerError(RuntimeError):
    """What the planner refused, or that it did not answer. `code` is gRPC's, `reason` and `metadata` are for programs."""

    def __init__(self, message: str, code: str = "", reason: str = "", metadata: dict[str, str] | None = None):
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.metadata = metadata or {}


class Rows(list):
    """A list of dicts with equal keys. In a notebook it shows itself as a table."""

    def frame(self):
        """A pandas.DataFrame with one row an entry. ImportError where pandas is missing."""
        import pandas

        return pandas.DataFrame(list(self))

    def _repr_html_(self) -> str:
        try:
            return self.frame()._repr_html_()
        except ImportError:
            return f"<pre>{html.escape(repr(list(self)))}</pre>"


@dataclass(frozen=True)
class Frontier:
    """Replay time against memory, of a step (`bytes` is its peak) or of one block (`bytes` is what it saves)."""

    job: str
    block: int | None
    points: Rows  # bytes, replay_seconds; by falling bytes
    current: dict[str, float] | None  # where the committed plan stands; None before the first
    memory_limit_bytes: int  # 0: least memory, -1: none

    def plot(self, axes=None):
        """Draws it with matplotlib, on `axes` or a picture of its own; returns the axes."""
        axes = axes or _new_axes()
        gib, milli = 2**30, 1e3
        axes.plot(
            [point["bytes"] / gib for point in self.points],
            [point["replay_seconds"] * milli for point in self.points],
            marker=".",
            label="frontier",
        )
        if self.current is not None:
            axes.plot(self.current["bytes"] / gib, self.current["replay_seconds"] * milli, "o", color="tab:orange", label="now")
        if self.memory_limit_bytes > 0 and self.block is None:
            axes.axvline(self.memory_limit_bytes / gib, color="tab:red", linestyle="--", label="limit")
        axes.set_xlabel("step peak (GiB)" if self.block is None else "saved (GiB)")
        axes.set_ylabel("replay time per step (ms)")
        axes.set_title(self.job if self.block is None else f"block {self.block} of {self.job}")
        axes.legend()
        return axes


@dataclass(frozen=True)
class StepMemory:
    """Memory through the step: the predicted peak of each part, and what a rank measured at its ends (None where none did)."""

    job: str
    parts: Rows  # phase, block, name, predicted_peak_bytes, measured_begin_bytes, measured_end_bytes; in order of time
    predicted_step_peak_bytes: int
    measured_step_peak_bytes: int | None
    measured_rank: int | None

    def plot(self, axes=None):
        """Draws it with matplotlib, on `axes` or a picture of its own; returns the axes."""
        axes = axes or _new_axes()
        gib = 2**30
        edges = range(len(self.parts) + 1)
        axes.stairs([part["predicted_peak_bytes"] / gib for part in self.parts], edges, label="predicted peak")
        marks = [
            (place + end, part[field] / gib)
            for place, part in enumerate(self.parts)
            for end, field in enumerate(("measured_begin_bytes", "measured_end_bytes"))
            if part[field] is not None
        ]
        if marks:
            axes.plot(*zip(*marks, strict=True), marker=".", label=f"measured by rank {self.measured_rank}")
        axes.set_xlabel("parts of the step")
        axes.set_ylabel("memory (GiB)")
        axes.set_ylim(bottom=0)
        axes.set_title(self.job)
        axes.legend()
        return axes


@dataclass(frozen=True)
class Price:
    """The plan with pins and the one without; neither was committed."""

    with_pins: dict[str, Any]
    without_pins: dict[str, Any]
    pinned_values: int

    @property
    def replay_seconds(self) -> float:
        """What the pins add to a step's replay time; negative where they save some."""
        return self.with_pins["replay_seconds"] - self.without_pins["replay_seconds"]


@dataclass(frozen=True)
class LargestSize:
    """The largest size whose step fits.

    Steps have size, tokens, step_peak_bytes, replay_seconds, step_seconds, seconds_per_token.
    """

    axis: str  # "batch", "sequence" or "rows"
    largest: dict[str, Any] | None  # None where not even size 1 fits
    measured: Rows  # the sizes that were seen, ascending
    bytes_residual_ratio: float | None  # how far the fit is off what was measured; None where nothing can be said
    seconds_residual_ratio: float | None
    basis: str  # one sentence on what the figures rest on


class Client:
    """Asks one server. `context`, `server`, `token_file` and so on are as for tidetapectl, whose own are used where they are None.

    Thread-safe: it keeps nothing between calls. Every call raises PlannerError where the server refuses or does not answer within
    `timeout` seconds.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        context: str | None = None,
        token_file: str | None = None,
        tls_ca: str | None = None,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        tls_name: str | None = None,
        timeout: float = 10,
    ):
        program = find_program("tidetapectl")
        if program is None:
            raise FileNotFoundError("tidetapectl is nowhere; this package was made without it")
        options = {
            "server": server,
            "context": context,
            "token-file": token_file,
            "tls-ca": tls_ca,
            "tls-cert": tls_cert,
            "tls-key": tls_key,
            "tls-name": tls_name,
            "timeout": timeout,
        }
        self._command = [str(program), "-o", "json"]
        self._command += [f"--{name}={value}" for name, value in options.items() if value is not None]

    def jobs(self) -> Rows:
        """All jobs, and where they stand."""
        return Rows(self._ask("jobs")["jobs"])

    def job(self, job: str) -> dict[str, Any]:
        """All that the server knows of one job: summary, ranks, constraints, events."""
        return self._ask("job", job)

    def ranks(self, job: str) -> Rows:
        """The ranks of a job with their newest reports."""
        return Rows(
            {**{key: value for key, value in rank.items() if key != "last_report"}, **rank.get("last_report", {})}
            for rank in self.job(job)["ranks"]
        )

    def plans(self, job: str) -> Rows:
        """The plans of a job that are kept, newest first, without their blocks."""
        return Rows({key: value for key, value in plan.items() if key != "blocks"} for plan in self._ask("plans", job)["plans"])

    def plan(self, job: str, generation: int | None = None) -> dict[str, Any]:
        """The committed plan of a job, or an older one."""
        return self._ask("plan", job, *_option("generation", generation))["plan"]

    def blocks(self, job: str, generation: int | None = None) -> Rows:
        """The plan, a row a block."""
        return Rows(self.plan(job, generation)["blocks"])

    def frontier(self, job: str, block: int | None = None) -> Frontier:
        """Replay time against memory, of the step or of the block at this position."""
        answer = self._ask("frontier", job, *_option("block", block))
        points = Rows({"bytes": point["bytes"], "replay_seconds": point["replay_seconds"]} for point in answer["points"])
        return Frontier(job, block, points, answer.get("current"), answer["memory_limit_bytes"])

    def memory(self, job: str) -> StepMemory:
        """Memory through the step, predicted and measured."""
        answer = self._ask("memory", job)
        parts = Rows(
            {
                "phase": part["place"]["phase"].removeprefix("PHASE_").lower(),
                "block": part["place"]["block"],
                "name": part["place"]["name"],
                "predicted_peak_bytes": part["predicted_peak_bytes"],
                "measured_begin_bytes": part.get("measured_begin_bytes"),
                "measured_end_bytes": part.get("measured_end_bytes"),
            }
            for part in answer["intervals"]
        )
        rank = answer.get("measured_rank")
        peak = None if rank is None else answer["measured_step_peak_bytes"]
        return StepMemory(job, parts, answer["predicted_step_peak_bytes"], peak, rank)

    def explain(self, job: str, block: int | None = None) -> Rows:
        """Why each value is kept or replayed, a row a value."""
        blocks = self._ask("explain", job, *_option("block", block))["blocks"]
        return Rows({"block": entry["block"], "name": entry["name"], **value} for entry in blocks for value in entry["values"])

    def simulate(self, job: str, memory_limit: str | int | None = None, additional_base: str | int = 0) -> dict[str, Any]:
        """The plan under another limit (bytes, "3.5GiB", "min", "max") or with more memory in use; changes nothing."""
        return self._ask("simulate", job, *_option("memory-limit", memory_limit), f"--additional-base={additional_base}")["plan"]

    def policies(self, job: str, memory_limit: str | int | None = None, effort: int = 0) -> Rows:
        """What other ways to choose would give, a row each, beside the planner's own time at the same step peak."""
        answer = self._ask("policies", job, *_option("memory-limit", memory_limit), f"--effort={effort}")
        return Rows(answer["policies"])

    def price(
        self,
        job: str,
        save: Sequence[str] = (),
        replay: Sequence[str] = (),
        memory_limit: str | int | None = None,
        effort: int = 0,
    ) -> Price:
        """What pins would cost; changes nothing.

        Each names labels, and after an @ blocks, as patterns of a shell ("aten::mm*@model.layers.1?").
        """
        wishes = [f"--save={wish}" for wish in save] + [f"--replay={wish}" for wish in replay]
        answer = self._ask("price", job, *wishes, *_option("memory-limit", memory_limit), f"--effort={effort}")
        return Price(answer["with"], answer["without"], answer["pinned_values"])

    def block_plan(self, job: str, block: int, within: str | int, effort: int = 0) -> dict[str, Any]:
        """The fastest plan of one block that saves at most so much (bytes, "40MiB"): `point` and `lower_bound_seconds`."""
        return self._ask("frontier", job, f"--block={block}", f"--within={within}", f"--effort={effort}")

    def largest(self, job: str, of: str | None = None, memory_limit: str | int | None = None) -> LargestSize:
        """The largest batch (or sequence, or rows: `of`) that fits, and its time a token.

        PlannerError with reason ONE_SIZE where the job's blocks were seen at one size only.
        """
        answer = self._ask("largest", job, *_option("of", of), *_option("memory-limit", memory_limit))
        residuals = (answer.get("bytes_residual_ratio"), answer.get("seconds_residual_ratio"))
        return LargestSize(answer["axis"], answer.get("largest"), Rows(answer["measured"]), *residuals, answer["basis"])

    def compare(self, job: str, other: str | None = None) -> dict[str, Any]:
        """What two plans do differently: of a job and the one before it, or of two ("job@3" names generation 3).

        `before` and `after` are the plans, `blocks` those that differ, with labels of what is newly kept and no longer kept.
        """
        return self._ask("compare", job, *([] if other is None else [other]))

    def watch(self, job: str, seconds: float = 60) -> Iterator[dict[str, Any]]:
        """Summaries and events of a job as they come, for so many seconds."""
        command = [*self._command, "watch", job, f"--for={seconds}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                for line in process.stdout:
                    yield _with_integers(json.loads(line))
                if process.wait() != 0:
                    raise _error(process.stderr.read())
            finally:
                process.terminate()

    def _ask(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run([*self._command, *arguments], capture_output=True, text=True)
        if done.returncode != 0:
            raise _error(done.stderr)
        return _with_integers(json.loads(done.stdout))


def _option(name: str, value: object) -> list[str]:
    return [] if value is None else [f"--{name}={value}"]


def _error(text: str) -> PlannerError:
    try:
        error = json.loads(text.splitlines()[-1])["error"]
    except (ValueError, KeyError, IndexError):
        return PlannerError(text.strip() or "tidetapectl failed")
    return PlannerError(error["message"], error["code"], error["reason"], error["metadata"])


def _with_integers(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {name: _with_integers(field, name) for name, field in value.items()}
    if isinstance(value, list):
        return [_with_integers(item, key) for item in value]
    return int(value) if isinstance(value, str) and _INTEGERS.search(key) else value


def _new_axes():
    from matplotlib import pyplot

    return pyplot.subplots()[1]
