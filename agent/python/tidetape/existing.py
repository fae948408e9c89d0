"""Notices checkpointing that is already on in a model, names it, and turns it off or leaves its blocks alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import nn

POLICIES = ("replace", "keep", "error")


@dataclass(frozen=True)
class Checkpointing:
    """One module on which checkpointing is on. `disable()` turns it off, `restore()` turns it on as it was."""

    module: nn.Module
    name: str
    kind: str
    disable: Callable[[], None]
    restore: Callable[[], None]
    # The module checkpoints children that it calls, not its own forward as a whole.
    of_children: bool = False


@dataclass
class ExistingCheckpointing:
    """What was found and done: `managed` blocks are Tidetape's, `unmanaged` ones (name -> reason) keep their checkpointing."""

    found: list[Checkpointing]
    managed: list[tuple[str, nn.Module]]
    unmanaged: dict[str, str] = field(default_factory=dict)
    # One line for people; empty where nothing was found.
    message: str = ""
    _replaced: list[Checkpointing] = field(default_factory=list)

    def restore(self) -> None:
        """Turns on again what was turned off. Called again it does nothing."""
        while self._replaced:
            self._replaced.pop().restore()


def find_checkpointing(model: nn.Module) -> list[Checkpointing]:
    """All checkpointing that is on in `model`: torch's checkpoint_wrapper (also FSDP's and Accelerate's), torch's composable
    checkpoint, and Hugging Face's gradient checkpointing. A call of torch.utils.checkpoint inside a forward shows only when it
    runs, so it is not found here."""
    found = []
    for name, module in model.named_modules():
        for look in (_wrapper, _composable, _hugging_face):
            one = look(name or type(module).__name__, module)
            if one is not None:
                found.append(one)
    return found


def handle_existing(model: nn.Module, blocks: Sequence[tuple[str, nn.Module]], existing: str = "replace") -> ExistingCheckpointing:
    """Applies the policy to the checkpointing of `model` that touches `blocks`.

    "replace" turns it off until restore(), "keep" leaves such blocks unmanaged, "error" raises RuntimeError naming it.
    Raises ValueError for another policy.
    """
    if existing not in POLICIES:
        raise ValueError(f"existing={existing!r}: it takes one of {', '.join(map(repr, POLICIES))}")
    covered: dict[str, Checkpointing] = {}
    touching = []
    for one in find_checkpointing(model):
        names = [name for name, block in blocks if _touches(one, block)]
        if names:
            touching.append(one)
            for name in names:
                covered.setdefault(name, one)
    result = ExistingCheckpointing(found=touching, managed=list(blocks))
    if not touching:
        return result
    text = _describe(touching)
    if existing == "error":
        raise RuntimeError(f'checkpointing is already on: {text}; turn it off, or pass existing="replace" or existing="keep"')
    if existing == "keep":
        result.unmanaged = {name: one.kind for name, one in covered.items()}
        result.managed = [(name, block) for name, block in blocks if name not in covered]
        result.message = f"kept existing checkpointing: {text}; {len(result.unmanaged)} of {len(blocks)} blocks are left to it"
        return result
    for one in touching:
        one.disable()
        result._replaced.append(one)
    result.message = f"turned off existing checkpointing: {text}; detach() turns it on again"
    return result


def _touches(one: Checkpointing, block: nn.Module) -> bool:
    """True where the checkpointing recomputes the block, a part of it, or something around it."""
    if any(inner is block for inner in one.module.modules()):
        # Above layers that checkpoint themselves, the flag of their parent switches nothing: theirs count.
        return block is one.module or not (one.of_children and _checkpoints_itself(block))
    return any(inner is one.module for inner in block.modules())


def _describe(found: Sequence[Checkpointing]) -> str:
    by_kind: dict[str, list[str]] = {}
    for one in found:
        by_kind.setdefault(one.kind, []).append(one.name)
    parts = []
    for kind, names in by_kind.items():
        more = f" … {names[-1]} ({len(names)} modules)" if len(names) > 1 else ""
        parts.append(f"{kind} on {names[0]}{more}")
    return "; ".join(parts)


def _call_directly(function: Callable, *args, **kwargs):
    return function(*args, **kwargs)


def _wrapper(name: str, module: nn.Module) -> Checkpointing | None:
    torch_wrappers = sys.modules.get("torch.distributed.algorithms._checkpoint.checkpoint_wrapper")
    if torch_wrappers is None or not isinstance(module, torch_wrappers.CheckpointWrapper) or module.checkpoint_fn is _call_directly:
        return None
    before = module.checkpoint_fn

    def set_function(function: Callable) -> None:
        module.checkpoint_fn = function

    return Checkpointing(
        module,
        name,
        "torch's checkpoint_wrapper",
        disable=lambda: set_function(_call_directly),
        restore=lambda: set_function(before),
    )


def _composable(name: str, module: nn.Module) -> Checkpointing | None:
    # Not by attribute: the package also exports a function of this name.
    activation = sys.modules.get("torch.distributed._composable.checkpoint_activation")
    contract = sys.modules.get("torch.distributed._composable.contract")
    if activation is None or contract is None or "checkpoint" not in (contract._get_registry(module) or {}):
        return None
    state = activation.checkpoint.state(module)
    if not state.enable_hook:
        return None

    def switch(on: bool) -> None:
        state.enable_hook = on

    return Checkpointing(module, name, "torch's composable checkpoint", disable=lambda: switch(False), restore=lambda: switch(True))


def _checkpoints_itself(module: nn.Module) -> bool:
    layers = sys.modules.get("transformers.modeling_layers")
    return layers is not None and isinstance(module, layers.GradientCheckpointingLayer)


def _hugging_face(name: str, module: nn.Module) -> Checkpointing | None:
    # The flag without the function belongs to a model whose checkpointing was never enabled.
    if getattr(module, "gradient_checkpointing", False) is not True or not hasattr(module, "_gradient_checkpointing_func"):
        return None

    def switch(on: bool) -> None:
        module.gradient_checkpointing = on

    return Checkpointing(
        module,
        name,
        "Hugging Face gradient checkpointing",
        disable=lambda: switch(False),
        restore=lambda: switch(True),
        of_children=not _checkpoints_itself(module),
    )
