"""Programs as data: statements in the forwards of a few blocks and of the model that calls them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from torch import nn

Path = tuple[int, ...]
"""Where a statement stands: the function (blocks first, then the model), its position there, and positions in nested bodies."""


@dataclasses.dataclass(frozen=True)
class Statement:
    """One statement: `code` with `{0}`, `{1}`, … for the names that it reads, and the names that it makes.

    With a body it is compound: `code` is the head, without the colon.
    """

    code: str
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    body: tuple[Statement, ...] = ()
    in_place: bool = False

    def lines(self, indent: str) -> list[str]:
        targets = ", ".join(self.makes) + " = " if self.makes else ""
        text = targets + self.code.format(*self.reads)
        if not self.body:
            return [indent + text]
        return [f"{indent}{text}:", *(line for inner in self.body for line in inner.lines(indent + "    "))]

    def renamed(self, names: dict[str, str]) -> Statement:
        """The same with other names to read."""
        reads = tuple(names.get(name, name) for name in self.reads)
        return dataclasses.replace(self, reads=reads, body=tuple(inner.renamed(names) for inner in self.body))


@dataclasses.dataclass(frozen=True)
class Program:
    """`functions` are the forwards of the blocks and, last, the model's. `shared` names pairs of blocks, the first of which uses
    the weights of the second; `frozen` names blocks whose weights get no gradient."""

    functions: tuple[tuple[Statement, ...], ...]
    shared: tuple[tuple[int, int], ...] = ()
    frozen: tuple[int, ...] = ()

    @property
    def blocks(self) -> int:
        return len(self.functions) - 1

    def source(self) -> str:
        """The program as Python, complete but for its training."""
        lines = ["import torch", "import torch.nn.functional as F", "", "from tests.random_programs.parts import *", ""]
        for number, statements in enumerate(self.functions):
            is_block = number < self.blocks
            if is_block and not statements:
                lines += ["", f"class Block{number}(Parts): ...", ""]
                continue
            lines += ["", f"class Block{number}(Parts):" if is_block else "class Model(Stack):"]
            if not is_block:
                lines += [f"    makers = [{', '.join(f'Block{i}' for i in range(self.blocks))}]"]
                lines += [f"    shared = {self.shared}", f"    frozen = {self.frozen}", ""]
            lines += [f"    def forward(self, {'x, y, z, n' if is_block else 'x, y, n'}):"]
            lines += [line for statement in statements for line in statement.lines("        ")] or ["        pass"]
            lines += [""]
        return "\n".join(lines)

    def load(self) -> Callable[[], nn.Module]:
        """Makes the model, the same weights every time."""
        namespace: dict = {"__name__": "random_program"}
        exec(compile(self.source(), "<random program>", "exec"), namespace)
        return namespace["Model"]

    def paths(self) -> Iterator[tuple[Path, Statement]]:
        """All statements, outer ones before what is in them."""
        for number, statements in enumerate(self.functions):
            yield from _paths((number,), statements)

    def __len__(self) -> int:
        return sum(1 for _ in self.paths())

    def without(self, removed: set[Path]) -> Program:
        """The program without some statements. What they made is replaced by what they read."""
        functions = tuple(_without((number,), statements, removed) for number, statements in enumerate(self.functions))
        return dataclasses.replace(self, functions=functions)

    def plainer(self) -> Iterator[Program]:
        """Programs with one oddity less: no shared or frozen weights, fewer terms in what a function returns."""
        if self.shared:
            yield dataclasses.replace(self, shared=())
        if self.frozen:
            yield dataclasses.replace(self, frozen=())
        for number, statements in enumerate(self.functions):
            if statements and len(statements[-1].reads) > 2:
                for result in plainer_returns(statements[-1]):
                    yield self._with(number, (*statements[:-1], result))

    def _with(self, number: int, statements: tuple[Statement, ...]) -> Program:
        functions = (*self.functions[:number], statements, *self.functions[number + 1 :])
        return dataclasses.replace(self, functions=functions)

    def unwrapped(self, path: Path) -> Program:
        """The program with the body of one compound statement in the statement's place."""
        functions = tuple(_unwrapped((number,), statements, path) for number, statements in enumerate(self.functions))
        return dataclasses.replace(self, functions=functions)


def returned(hidden: str, summed: tuple[str, ...], side: str) -> Statement:
    """The end of a block's forward: the hidden value, with a number made of others so that these matter, and a side output."""
    total = " + ".join(f"{{{1 + number}}}.sum()" for number in range(len(summed)))
    first = f"{{0}} + 0.1 * ({total})" if summed else "{0}"
    return Statement(f"return {first}, {{{1 + len(summed)}}}", (hidden, *summed, side))


def plainer_returns(statement: Statement) -> Iterator[Statement]:
    hidden, *summed, side = statement.reads
    yield returned(hidden, (), side)
    for number in range(len(summed)):
        yield returned(hidden, (*summed[:number], *summed[number + 1 :]), side)


def _paths(prefix: Path, statements: tuple[Statement, ...]) -> Iterator[tuple[Path, Statement]]:
    for position, statement in enumerate(statements):
        yield (*prefix, position), statement
        yield from _paths((*prefix, position), statement.body)


def _without(
    prefix: Path, statements: tuple[Statement, ...], removed: set[Path], names: dict[str, str] | None = None
) -> tuple[Statement, ...]:
    names = {} if names is None else names
    left = []
    for position, statement in enumerate(statements):
        path = (*prefix, position)
        if path in removed:
            for number, made in enumerate(statement.makes):
                source = statement.reads[min(number, len(statement.reads) - 1)] if statement.reads else "x"
                names[made] = names.get(source, source)
            continue
        head = dataclasses.replace(statement, body=()).renamed(names)
        for made in statement.makes:
            names.pop(made, None)
        body = _without(path, statement.body, removed, names)
        if statement.body and not body:
            continue
        left.append(dataclasses.replace(head, body=body))
    return tuple(left)


def _unwrapped(prefix: Path, statements: tuple[Statement, ...], wanted: Path) -> tuple[Statement, ...]:
    result: list[Statement] = []
    for position, statement in enumerate(statements):
        path = (*prefix, position)
        if path == wanted:
            result += statement.body
        else:
            result.append(dataclasses.replace(statement, body=_unwrapped(path, statement.body, wanted)))
    return tuple(result)
