"""Finds the blocks of a model: the modules whose activations Tidetape keeps or replays."""

from __future__ import annotations

import difflib
import fnmatch
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from torch import nn

# Attributes under which torch's wrappers hold the module that they wrap; they are left out of block names.
_WRAPPER_ATTRIBUTES = ("_checkpoint_wrapped_module", "_orig_mod", "_fsdp_wrapped_module")

# A list of repeated modules counts as blocks where it holds at least this share of the parameters of the largest such list.
_LEAST_SHARE_OF_LARGEST_LIST = 0.05


def find_blocks(model: nn.Module, blocks: str | Sequence[str | nn.Module] | None = None) -> list[tuple[str, nn.Module]]:
    """The blocks of `model` as (name, module), in the order in which the model defines them.

    `blocks` is None (found by itself: the FSDP2 units below the root, else the children of the outermost lists of repeated
    modules), a name glob or a list of them ("model.layers.*"; a star stays within one part of the name), or a list of modules.
    Wrappers (checkpoint_wrapper, torch.compile, DDP, FSDP1) are looked through, and their attributes are not part of names.

    Works on the meta device and changes nothing. Raises ValueError where nothing is found, a glob matches nothing, a module is no
    part of the model, or one block lies inside another.
    """
    names = _names(model)
    if blocks is None:
        found = _fsdp_units(model, names) or _repeated(model, names)
        if not found:
            raise ValueError(
                f"no repeated blocks in {type(model).__name__}: it holds no FSDP2 units and no ModuleList with two modules of the "
                'same class; name the blocks, as in blocks="model.layers.*"'
            )
    else:
        chosen = [blocks] if isinstance(blocks, str | nn.Module) else list(blocks)
        if not chosen:
            raise ValueError("blocks is empty: leave it out, or name at least one module")
        found = {}
        for item in chosen:
            found.update(_by_glob(model, names, item) if isinstance(item, str) else _by_identity(model, names, item))
    order = {module: position for position, module in enumerate(names)}
    result = sorted(((names[module], module) for module in found), key=lambda block: order[block[1]])
    _refuse_nested(result)
    return result


def compiled_reason(module: nn.Module) -> str | None:
    """Why a block's own ops cannot be seen because torch.compile has it, or None."""
    if _is_optimized_module(module):
        return "compiled by torch.compile(module)"
    if getattr(module, "_compiled_call_impl", None) is not None:
        return "compiled by module.compile()"
    return None


def compiled_forward(module: nn.Module) -> Callable | None:
    """What torch.compile runs instead of the block, or None where it has not got the block."""
    return module.__dict__.get(forward_attribute(module)) if compiled_reason(module) is not None else None


def forward_attribute(module: nn.Module) -> str:
    """The attribute through which a call of the module reaches its forward."""
    return "_compiled_call_impl" if getattr(module, "_compiled_call_impl", None) is not None else "forward"


def unwrap(module: nn.Module) -> nn.Module:
    """The module inside checkpoint_wrapper and FSDP1 wrappers. A torch.compile wrapper stays: what it holds does not run."""
    while not _is_optimized_module(module):
        inner = next((module._modules[name] for name in _WRAPPER_ATTRIBUTES if name in module._modules), None)
        if inner is None:
            break
        module = inner
    return module


def _is_optimized_module(module: nn.Module) -> bool:
    # Where torch._dynamo was never imported nothing can be compiled, and importing it takes seconds.
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    return dynamo is not None and isinstance(module, dynamo.OptimizedModule)


def _names(model: nn.Module) -> dict[nn.Module, str]:
    """Names of all modules without wrapper attributes, in order of definition."""
    prefix = "module." if isinstance(model, nn.parallel.DistributedDataParallel) else ""
    names = {}
    for name, module in model.named_modules():
        parts = [part for part in name.removeprefix(prefix).split(".") if part not in _WRAPPER_ATTRIBUTES]
        names[module] = ".".join(parts)
    return names


def _parameter_count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _has_children(module: nn.Module) -> bool:
    return next(module.children(), None) is not None


def _fsdp_units(model: nn.Module, names: dict[nn.Module, str]) -> list[nn.Module]:
    """Outermost FSDP2 units below the root; lone layers (an embedding, an output projection) have nothing to replay."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return []
    units = []

    def visit(module: nn.Module) -> None:
        for child in module.children():
            if not isinstance(child, fsdp.FSDPModule):
                visit(child)
            elif _has_children(child):
                units.append(unwrap(child))

    visit(model)
    repeated = _repeated(model, names)
    inside = {inner for block in repeated for inner in block.modules() if inner is not block}
    # Experts that are sharded apart inside a block: the block around them is the better unit of replay.
    return [] if units and all(unit in inside for unit in units) else units


def _repeated(model: nn.Module, names: dict[nn.Module, str]) -> list[nn.Module]:
    """Children of the outermost ModuleLists (ModuleDicts, Sequentials) that repeat a class and hold most of the parameters."""
    lists = []

    def visit(module: nn.Module) -> None:
        if isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential):
            candidates = [unwrap(child) for child in module.children() if _has_children(child)]
            classes = Counter(type(_inside(child)) for child in candidates)
            if classes and max(classes.values()) >= 2:
                lists.append(candidates)
                return
        for child in module.children():
            visit(child)

    visit(model)
    sizes = [sum(map(_parameter_count, candidates)) for candidates in lists]
    return [
        child
        for candidates, size in zip(lists, sizes, strict=True)
        if size >= _LEAST_SHARE_OF_LARGEST_LIST * max(sizes)
        for child in candidates
        if child in names
    ]


def _inside(module: nn.Module) -> nn.Module:
    return module._modules["_orig_mod"] if _is_optimized_module(module) else module


def _by_identity(model: nn.Module, names: dict[nn.Module, str], module: object) -> dict[nn.Module, None]:
    if not isinstance(module, nn.Module):
        raise ValueError(f"blocks holds a {type(module).__name__}; it takes module names, globs or modules")
    if module not in names:
        raise ValueError(f"the block {type(module).__name__} is no part of {type(model).__name__}")
    return {unwrap(module): None}


def _by_glob(model: nn.Module, names: dict[nn.Module, str], glob: str) -> dict[nn.Module, None]:
    # What a torch.compile wrapper holds has the wrapper's name.
    held = {_inside(module) for module in names if _is_optimized_module(module)}
    found = {unwrap(module): None for module, name in names.items() if name and module not in held and _matches(name, glob)}
    if not found:
        raise ValueError(f"no module of {type(model).__name__} matches {glob!r}; {_near(names, glob)}")
    return found


def _matches(name: str, glob: str) -> bool:
    parts, patterns = name.split("."), glob.split(".")
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def _near(names: dict[nn.Module, str], glob: str) -> str:
    # Numbers become stars, so that a hundred layers are one suggestion.
    globs = {".".join("*" if part.isdigit() else part for part in name.split(".")) for name in names.values() if name}
    near = difflib.get_close_matches(glob, sorted(globs), n=4, cutoff=0.4) or sorted(globs, key=len)[:4]
    return "near names: " + ", ".join(near) if near else "it has no modules of its own"


def _refuse_nested(blocks: Iterable[tuple[str, nn.Module]]) -> None:
    owner: dict[nn.Module, str] = {}
    for name, module in blocks:
        if module in owner:
            raise ValueError(f"block {name} lies inside block {owner[module]}; choose one of them")
        for inner in module.modules():
            owner.setdefault(inner, name)
