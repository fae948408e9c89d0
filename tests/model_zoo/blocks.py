"""Which modules of a model are its blocks."""

from __future__ import annotations

from collections import Counter

from torch import nn

from tidetape.blocks import find_blocks

from .overrides import BLOCKS


class NoBlocks(Exception):
    """A model without repeated modules: there is nothing to replay block by block."""


def choose_blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Those that overrides name, Tidetape's own choice, or else the outermost children that share a class with a sibling."""
    try:
        return find_blocks(model, BLOCKS.get(model.config.model_type))
    except ValueError:
        found = _repeated_children(model)
    if not found:
        raise NoBlocks("no module class is repeated")
    return found


def _repeated_children(model: nn.Module) -> list[tuple[str, nn.Module]]:
    found = []

    def visit(name: str, module: nn.Module) -> None:
        children = [(f"{name}{key}", child) for key, child in module.named_children()]
        classes = Counter(type(child) for _, child in children)
        for path, child in children:
            if classes[type(child)] > 1 and next(child.children(), None) is not None:
                found.append((path, child))
            else:
                visit(f"{path}.", child)

    visit("", model)
    return found
