"""Which blocks run by options instead of with a tape: those that the user brings options for, and compiled ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import nn

from .blocks import compiled_reason, find_blocks, unwrap
from .option_forward import Option

# As the planner's service takes them.
_MOST_OPTIONS = 64
_LONGEST_NAME = 256


@dataclass(frozen=True)
class BlockOptions:
    """The ways to run a block, by name, from the leanest on."""

    options: dict[str, Option]
    kind: str
    """What equal blocks have in common beside class, parameters and inputs."""


@dataclass
class ManagedBlocks:
    """The blocks that Tidetape manages, of which those in `options` have no tape; and, by name, why others are not managed."""

    managed: list[tuple[str, nn.Module]] = field(default_factory=list)
    options: dict[str, BlockOptions] = field(default_factory=dict)
    unmanaged: dict[str, str] = field(default_factory=dict)


def users_options(model: nn.Module, options: Mapping[str, Mapping[str, Option]] | None) -> dict[nn.Module, BlockOptions]:
    """By block, the options that the user brings. Raises ValueError on what is none, and where two globs name one block."""
    given: dict[nn.Module, BlockOptions] = {}
    for glob, ways in (options or {}).items():
        _check(glob, ways)
        for name, module in find_blocks(model, glob):
            if module in given:
                raise ValueError(f"options has two entries for the block {name}; {glob!r} is the second")
            given[module] = BlockOptions(dict(ways), f"options of {glob}")
    return given


def choose_blocks(blocks: list[tuple[str, nn.Module]], given: dict[nn.Module, BlockOptions]) -> ManagedBlocks:
    """How each block is managed: by the options that are `given` for it, by those of a compiled block, else with a tape."""
    chosen = ManagedBlocks()
    budgets = None
    for name, module in blocks:
        reason = compiled_reason(module)
        try:
            if module in given:
                chosen.options[name] = given[module]
            elif reason is not None:
                # Where nothing is compiled, what this loads is not needed.
                from .compiled_blocks import BudgetOptions

                budgets = budgets or BudgetOptions()
                inner = module._modules.get("_orig_mod", module)
                chosen.options[name] = BlockOptions(budgets.of_block(module), f"compiled {type(inner).__qualname__}")
        except RuntimeError as error:
            chosen.unmanaged[name] = f"{reason}, and {error}"
            continue
        chosen.managed.append((name, module if name in chosen.options else unwrap(module)))
    return chosen


def _check(glob: str, ways: Mapping[str, Option]) -> None:
    if not isinstance(ways, Mapping) or not 1 <= len(ways) <= _MOST_OPTIONS:
        raise ValueError(f"options[{glob!r}] must hold 1 to {_MOST_OPTIONS} ways to run a block, by name")
    for name, way in ways.items():
        if not isinstance(name, str) or not 1 <= len(name.encode()) <= _LONGEST_NAME:
            raise ValueError(f"options[{glob!r}] has the name {name!r}; a name has 1 to {_LONGEST_NAME} bytes")
        if way is not None and not callable(way):
            raise ValueError(f"options[{glob!r}][{name!r}] is a {type(way).__name__}; it takes a function or None")
