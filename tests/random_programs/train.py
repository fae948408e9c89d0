"""Trains a model and keeps the bits of everything that two ways of training must have in common."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import re
import warnings
from collections.abc import Callable, Sequence

import torch
from torch import nn

import tidetape

from .parts import ROWS, WIDTH

LEARNING_RATE = 0.05
_ACTIONS = ("save", "save", "replay", "replay", "move", None)
_CHANGED = re.compile("modified (by an )?inplace")


@dataclasses.dataclass(frozen=True)
class Refusal:
    """Training was refused: in which phase, with which error, and whether for a value that was changed after it was saved. What
    the error says may differ."""

    phase: str
    error: str
    changed_in_place: bool
    message: str = dataclasses.field(compare=False)


Step = dict[str, object] | Refusal
"""What a step left behind, by name, or that it was refused."""

Build = Callable[[], nn.Module]
"""Makes a model, the same weights every time."""


@dataclasses.dataclass(frozen=True)
class Way:
    """A way of training: the steps that run with "nothing" or with "everything" saved first, then one random plan after the
    other, each for two steps. `plans` are their seeds."""

    first: str
    plans: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.first} saved" + "".join(f", then plan {plan}" for plan in self.plans)

    @property
    def steps(self) -> int:
        return 2 + 2 * len(self.plans)

    def until(self, step: int) -> Way:
        """The way up to the plan of a step."""
        return dataclasses.replace(self, plans=self.plans[: step // 2])


Train = Callable[[Build, Way], list[Step]]
"""Trains a model in a way."""


@functools.lru_cache(maxsize=16)
def _input_values(step: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1000 + step)
    x, y = torch.randn(2, ROWS, WIDTH, generator=generator)
    return x, y, torch.randint(ROWS, (ROWS,), generator=generator)


def inputs_of(step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Two leaves of ROWS × WIDTH, and indices into the rows."""
    x, y, n = _input_values(step)
    return x.clone().requires_grad_(), y.clone().requires_grad_(), n.clone()


def train_plain(build: Build, steps: int) -> list[Step]:
    return train_with(lambda model: contextlib.nullcontext(), build, steps)


def train_taped(build: Build, way: Way) -> list[Step]:
    """Training with Tidetape attached."""
    limit = {"nothing": "min", "everything": "max"}[way.first]

    def attach(model: nn.Module) -> tidetape.Session:
        return tidetape.attach(model, blocks="blocks.*", memory_limit=limit, planner="none")

    def before_step(session: tidetape.Session, step: int) -> contextlib.AbstractContextManager:
        if step >= 2 and step % 2 == 0:
            impose(session, way.plans[step // 2 - 1])
        return session.step()

    return train_with(attach, build, way.steps, before_step)


def train_with(
    attach: Callable[[nn.Module], contextlib.AbstractContextManager], build: Build, steps: int, step_context=None
) -> list[Step]:
    """Trains in what `attach` puts around the model; `step_context(attached, step)` is what a step runs in. Ends where a step is
    refused."""
    model = build()
    torch.manual_seed(7)
    done: list[Step] = []
    with warnings.catch_warnings(), attach(model) as attached:
        warnings.simplefilter("ignore")
        for number in range(steps):
            with step_context(attached, number) if step_context else contextlib.nullcontext():
                done.append(_step(model, number))
            if isinstance(done[-1], Refusal):
                break
    return done


def impose(session: tidetape.Session, seed: int) -> None:
    """Puts a random plan in force: every site that was seen is saved, replayed, moved or not named; the default is random, too. A
    site's action follows from the seed and the site alone, so that it stays as it is where a program loses other statements."""

    def drawn(*what) -> str | None:
        return random.Random(repr((seed, *what))).choice(_ACTIONS)

    actions = {
        block: {site.site: action for site in sites if (action := drawn(block, site.site)) is not None}
        for block, sites in session.sites().items()
    }
    session.impose(actions, default="save" if seed % 2 else "replay")


def _step(model: nn.Module, number: int) -> Step:
    x, y, n = inputs_of(number % 2)
    phase = "forward"
    try:
        outputs = model(x, y, n)
        loss = sum(output.square().mean() for output in outputs)
        phase = "backward"
        loss.backward()
    except Exception as error:
        return Refusal(phase, type(error).__name__, _CHANGED.search(str(error)) is not None, str(error))
    left = {"loss": bits(loss), "random state": torch.get_rng_state().numpy().tobytes()}
    left |= {f"output {i}": bits(output) for i, output in enumerate(outputs)}
    left |= {f"gradient of input {i}": bits(tensor.grad) for i, tensor in enumerate((x, y))}
    left |= {f"gradient of {name}": bits(parameter.grad) for name, parameter in model.named_parameters()}
    left |= {f"buffer {name}": bits(buffer) for name, buffer in model.named_buffers()}
    left |= {f"generator {i}": block.generator.get_state().numpy().tobytes() for i, block in enumerate(model.blocks)}
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= LEARNING_RATE * parameter.grad.clamp(-1, 1)
                parameter.grad = None
    return left


def bits(tensor: torch.Tensor | None) -> tuple | None:
    """Dtype, shape and bits: a NaN equals itself, and a zero has a sign."""
    if tensor is None:
        return None
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.dtype, tuple(plain.shape), plain.view(-1).view(torch.uint8).numpy().tobytes()


@dataclasses.dataclass(frozen=True)
class Difference:
    """The first difference between training in a way and plainly."""

    way: Way
    step: int
    what: str

    def __str__(self) -> str:
        return f"{self.way}: step {self.step}: {self.what}"

    @property
    def kind(self) -> str:
        """The same for failures that are likely to have one cause."""
        return self.what.split()[0]


def difference(way: Way, got: list[Step], expected: list[Step]) -> Difference | None:
    """The first difference, if any. `expected` may go on for longer."""
    for number, (left, right) in enumerate(zip(got, expected, strict=False)):
        if isinstance(left, Refusal) or isinstance(right, Refusal):
            if left != right:
                return Difference(way, number, f"refused: {_said(left)}, plain {_said(right)}")
            continue
        for name, value in right.items():
            if left.get(name) != value:
                return Difference(way, number, f"{name} differs")
    wanted = min(way.steps, len(expected))
    return None if len(got) == wanted else Difference(way, len(got), f"stopped after {len(got)} steps of {wanted}")


def _said(step: Step) -> str:
    return str(step) if isinstance(step, Refusal) else "trains"


def first_difference(build: Build, ways: Sequence[Way], train: Train = train_taped) -> Difference | None:
    """Trains the model plainly and in each way, and compares."""
    expected = train_plain(build, max(way.steps for way in ways))
    for way in ways:
        found = difference(way, train(build, way), expected)
        if found is not None:
            return found
    return None
