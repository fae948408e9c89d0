"""FSDP2 units inside a block.

A replay may run before such a unit is gathered again, and gathering it then could reorder collectives between ranks. So its
gathering is no part of the tape, and what is computed from its parameters is kept.
"""

from __future__ import annotations

import sys
import weakref

from torch import nn

from .block_forward import plain_tensors


def find_inner_units(block: nn.Module) -> list[tuple[str, nn.Module]]:
    """The FSDP2 units below `block`, by name, without the block itself."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is None:
        return []
    return [(name, module) for name, module in block.named_modules() if name and isinstance(module, fsdp.FSDPModule)]


def watch_inner_units(block: nn.Module, number: int, session) -> list:
    """Pauses recording around the unit's own hooks, and names its whole parameters after each gathering. Returns hook handles."""
    handles = []
    own = weakref.ref(session)

    def pause(*_):
        if (session := own()) is not None:
            session.native.pause()

    def resume(*_):
        if (session := own()) is not None:
            session.native.resume()

    def resume_with(name):
        def gathered(unit, *_):
            if (session := own()) is not None:
                session.native.add_inner_unit(number, plain_tensors(unit.named_parameters(prefix=name)))
                session.native.resume()

        return gathered

    for name, unit in find_inner_units(block):
        # First of all hooks and last of all: the unit's own lie between.
        handles.append(unit.register_forward_pre_hook(pause, prepend=True))
        handles.append(unit.register_forward_pre_hook(resume_with(name)))
        handles.append(unit.register_forward_hook(pause, prepend=True))
        handles.append(unit.register_forward_hook(resume, always_call=True))
    return handles
