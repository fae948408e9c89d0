"""Many programs, and the smallest of each failing one."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Iterator

from . import isolated
from .generate import generate
from .program import Program
from .shrink import shrink
from .train import Build, Difference, Refusal, Train, Way, difference, train_plain, train_taped

# What a random plan does to a smaller program depends on its seed; so many are tried before the program is said to pass.
_PLANS_TRIED = 4


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a seed: whether plain training refuses the program, and where training in another way differs, if it does."""

    seed: int
    refused: bool = False
    difference: Difference | None = None


def ways(seed: int) -> tuple[Way, ...]:
    """How the program of a seed is trained besides plainly."""
    rng = random.Random(seed)
    return Way("nothing", (rng.randrange(1000), rng.randrange(1000))), Way("everything")


def outcomes(seeds: Iterable[int], train: Train = train_taped) -> Iterator[Outcome]:
    for (seed,), found in isolated.each(lambda seed: _outcome(seed, train), [(seed,) for seed in seeds]):
        yield _crashed(seed, found, train) if isinstance(found, isolated.Crash) else found


def _outcome(seed: int, train: Train) -> Outcome:
    expected, found = _compared(generate(seed).load(), ways(seed), train)
    return Outcome(seed, any(isinstance(step, Refusal) for step in expected), found)


def _compared(build: Build, tried: Iterable[Way], train: Train) -> tuple[list, Difference | None]:
    expected = train_plain(build, max(way.steps for way in tried))
    found = (difference(way, train(build, way), expected) for way in tried)
    return expected, next((each for each in found if each is not None), None)


def _crashed(seed: int, crash: isolated.Crash, train: Train) -> Outcome:
    """A process died. Where plain training does that, torch refuses the program in its way."""
    if _plain_crashes(lambda: generate(seed)):
        return Outcome(seed, refused=True)
    for way in ways(seed):
        found = _difference(generate(seed), (way,), train)
        if found is not None:
            return Outcome(seed, difference=found)
    return Outcome(seed, difference=Difference(ways(seed)[0], 0, f"crash: {crash}, once"))


def _plain_crashes(make) -> bool:
    try:
        isolated.call(lambda: bool(train_plain(make().load(), 2)))
    except isolated.Crash:
        return True
    return False


def _difference(program: Program, tried: tuple[Way, ...], train: Train) -> Difference | None:
    try:
        return isolated.call(lambda: _compared(program.load(), tried, train)[1])
    except isolated.Crash as crash:
        return None if _plain_crashes(lambda: program) else Difference(tried[0], 0, f"crash: {crash}")


def smallest(outcome: Outcome, train: Train = train_taped) -> tuple[Program, Difference]:
    """A small program that fails like that of a seed, and how."""
    found = outcome.difference
    way = found.way.until(found.step)
    tried = (way, *(Way(way.first, (seed,) * len(way.plans)) for seed in range(_PLANS_TRIED) if way.plans))
    last = found

    def fails(program: Program) -> bool:
        nonlocal last
        candidate = _difference(program, tried, train)
        if candidate is None or candidate.kind != found.kind:
            return False
        last = candidate
        return True

    return shrink(generate(outcome.seed), fails), last
