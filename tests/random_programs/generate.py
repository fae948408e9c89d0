"""Makes a program from a seed, by running it while it is written: a statement that torch refuses at once is not taken."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import re
import warnings

import torch

from . import parts
from .catalogue import BRANCHES, COPYING_REGIONS, FILLED_LATE, KINDS, REGIONS
from .program import Program, Statement, returned
from .train import Refusal, inputs_of, train_plain

_PLACEHOLDER = re.compile(r"\{([a-z])\}")
_TRIES = 8
# Larger values are not taken, so that few programs end in infinities, where every gradient equals every other.
_LARGEST = 1e3
_MOST_ELEMENTS = 200
# Of 100 programs that plain training refuses in backward, as many are kept as they are.
_PERCENT_REFUSED = 10

# The model has none of a block's parts. Nobody sees a write past the version counter there: it is out of what Tidetape promises.
_BETWEEN_BLOCKS = [kind.without("self.").without(".data.") for kind in KINDS]


def generate(seed: int) -> Program:
    """The program of a seed: 2 to 4 calls of up to 3 blocks."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = _Author(rng).program()
    if rng.randrange(100) < _PERCENT_REFUSED:
        return program
    return _accepted(program, rng)


def _accepted(program: Program, rng: random.Random) -> Program:
    """The program with so few of its in-place statements that plain training accepts it."""
    if not _is_refused(program):
        return program
    in_place = [path for path, statement in program.paths() if statement.in_place]
    rng.shuffle(in_place)
    removed = set(in_place)
    for path in in_place:
        if not _is_refused(program.without(removed - {path})):
            removed.remove(path)
    return program.without(removed)


def _is_refused(program: Program) -> bool:
    return any(isinstance(step, Refusal) for step in train_plain(program.load(), steps=2))


class _Author:
    """Writes one program. Holds the live values of the function that is being written."""

    def __init__(self, rng: random.Random):
        self._rng = rng
        self._values: dict = {}
        self._names: list[str] = []
        self._made = 0

    def program(self) -> Program:
        rng = self._rng
        calls = [rng.randrange(min(3, number + 1)) for number in range(rng.randint(2, 4))]
        # Blocks are numbered in the order of their first call.
        numbers = {block: number for number, block in enumerate(dict.fromkeys(calls))}
        calls = [numbers[block] for block in calls]
        count = max(calls) + 1
        shared = tuple((number, number - 1) for number in range(1, count) if rng.random() < 0.2)
        frozen = tuple(number for number in range(count) if rng.random() < 0.1)
        self._blocks = [parts.Parts(number) for number in range(count)]
        forwards: dict[int, tuple[Statement, ...]] = {}
        model = self._model(calls, forwards)
        return Program((*(forwards[number] for number in range(count)), model), shared, frozen)

    def _model(self, calls: list[int], forwards: dict[int, tuple[Statement, ...]]) -> tuple[Statement, ...]:
        """The model's forward; a block's forward is written at its first call."""
        rng = self._rng
        x, y, n = inputs_of(0)
        model: list[Statement] = []
        self._begin({"x": x, "y": y, "n": n})
        if rng.random() < 0.7:
            model.append(self._taken(Statement("{0} * 1", ("x",), ("x",))))
        z = "y"
        for number in calls:
            given = ("x", "y", z, "n")
            outer = self._values, self._names, self._made
            if number not in forwards:
                forwards[number] = self._forward(number, *(outer[0][name] for name in given))
            self._values, self._names, self._made = outer
            z = f"z{len(model)}"
            call = Statement(f"self.blocks[{number}]({{0}}, {{1}}, {{2}}, {{3}})", given, ("x", z))
            # What the call will make is of the hidden shape, whatever its values.
            self._values |= {name: 1 * torch.randn(parts.ROWS, parts.WIDTH, requires_grad=True) for name in ("x", z)}
            self._names.append(z)
            model.append(call)
            if rng.random() < 0.3:
                model += self._statements(rng.randint(1, 2), kinds=_BETWEEN_BLOCKS)
        return (*model, Statement("return {0}, {1}", ("x", z)))

    def _begin(self, values: dict) -> None:
        self._values, self._names, self._made = values, list(values), 0

    def _forward(self, number: int, x, y, z, n) -> tuple[Statement, ...]:
        self._begin({"x": x, "y": y, "z": z, "n": n})
        self._values["self"] = self._blocks[number]
        statements = self._statements(self._rng.randint(5, 25))
        return (*statements, self._return())

    def _return(self) -> Statement:
        """Of two values of the hidden shape: the first made of several recent ones, so that few statements are in vain."""
        recent = [name for name in reversed(self._names) if self._is_float(name)][:8]
        hidden = [name for name in self._names if self._is_hidden(name)] or ["x"]
        return returned(hidden[-1], tuple(recent), self._rng.choice(hidden))

    def _statements(self, count: int, depth: int = 0, kinds=KINDS) -> list[Statement]:
        statements = []
        for _ in range(count):
            draw = self._rng.random()
            if depth < 2 and draw < 0.06:
                statements += self._region(depth, kinds)
            elif depth < 2 and draw < 0.12:
                statements += self._branch(depth, kinds)
            else:
                statements += self._op(kinds)
        return statements

    def _op(self, kinds) -> list[Statement]:
        for _ in range(_TRIES):
            (kind,) = self._rng.choices(kinds, [kind.weight if kind.templates else 0 for kind in kinds])
            statement = self._filled(self._rng.choice(kind.templates), kind.makes, kind.in_place)
            if statement is not None and self._taken(statement) is not None:
                return [statement]
        return []

    def _region(self, depth: int, kinds) -> list[Statement]:
        head = self._rng.choice(REGIONS)
        if head in COPYING_REGIONS:
            kinds = [kind.without(FILLED_LATE) for kind in kinds]
        with eval(head.removeprefix("with "), vars(parts)):
            body = self._statements(self._rng.randint(1, 5), depth + 1, kinds)
        return [Statement(head, body=tuple(body))] if body else []

    def _branch(self, depth: int, kinds) -> list[Statement]:
        """Of a body that may or may not run: what it makes stays in it, but for one value that is there before."""
        kept = self._pick(self._is_float)
        if kept is None:
            return []
        before = Statement("{0}", (kept,), (self._new_name(),))
        self._taken(before)
        (result,) = before.makes
        head = self._filled(self._rng.choice(BRANCHES), 0)
        if head is None:
            return [before]
        names = list(self._names)
        body = self._statements(self._rng.randint(1, 4), depth + 1, kinds)
        alike = [name for name in self._names if self._is_float(name) and self._values[name].shape == self._values[result].shape]
        body.append(Statement("{0}", (self._rng.choice(alike[-3:]),), (result,)))
        self._names = names
        return [before, dataclasses.replace(head, body=tuple(body))]

    def _filled(self, template: str, makes: int, in_place: bool = False) -> Statement | None:
        """The template with operands, or None where there are none of a kind."""
        chosen: dict[str, str] = {}
        for letter in dict.fromkeys(_PLACEHOLDER.findall(template)):
            name = self._operand(letter, chosen)
            if name is None:
                return None
            chosen[letter] = name
        reads = tuple(dict.fromkeys(name for letter, name in chosen.items() if letter != "d"))
        slots = {letter: name if letter == "d" else f"{{{reads.index(name)}}}" for letter, name in chosen.items()}
        code = _PLACEHOLDER.sub(lambda match: slots[match[1]], template)
        return Statement(code, reads, tuple(self._new_name() for _ in range(makes)), in_place=in_place)

    def _operand(self, letter: str, chosen: dict[str, str]) -> str | None:
        if letter == "d":
            return self._rng.choice(("0", "-1"))
        if letter == "g":
            shape = self._values[chosen["f"]].shape if "f" in chosen else None
            alike = self._pick(lambda name: self._is_float(name) and self._values[name].shape == shape)
            return alike if alike is not None and self._rng.random() < 0.8 else self._pick(self._is_float)
        kinds = {
            "f": self._is_float,
            "h": self._is_hidden,
            "k": self._is_hidden,
            "i": lambda name: self._values[name].dtype == torch.int64 and self._values[name].shape == (parts.ROWS,),
            "m": lambda name: self._values[name].dtype == torch.bool,
            "c": lambda name: self._values[name].is_complex(),
        }
        return self._pick(kinds[letter])

    def _pick(self, fits) -> str | None:
        """A name, one of the last more often than one of the first."""
        names = [name for name in self._names if fits(name)]
        return names[-1 - int(len(names) * self._rng.random() ** 2)] if names else None

    def _is_float(self, name: str) -> bool:
        return self._values[name].is_floating_point()

    def _is_hidden(self, name: str) -> bool:
        value = self._values[name]
        return value.dtype == torch.float32 and value.shape == (parts.ROWS, parts.WIDTH)

    def _new_name(self) -> str:
        self._made += 1
        return f"v{self._made}"

    def _taken(self, statement: Statement) -> Statement | None:
        """Runs a statement. None where torch refuses it or its values are not fit for further ones."""
        values = dict(self._values)
        with contextlib.suppress(Exception):
            exec("\n".join(statement.lines("")), vars(parts), values)
            made = [values[name] for name in statement.makes]
            if all(
                isinstance(value, torch.Tensor) and _fits(value) for value in (*made, *(values[name] for name in statement.reads))
            ):
                self._values = values
                self._names += [name for name in statement.makes if name not in self._names]
                return statement
        return None


def _fits(value: torch.Tensor) -> bool:
    if value.numel() > _MOST_ELEMENTS or value.is_inference():
        return False
    if not (value.is_floating_point() or value.is_complex()) or value.numel() == 0:
        return True
    return value.detach().abs().max().item() < _LARGEST
