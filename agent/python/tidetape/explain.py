"""explain(): the tapes of an attached model as text."""

from __future__ import annotations

from torch import nn

from . import session


def explain(model: nn.Module) -> str:
    """By block: each op with its replay time, and each value with its site, shape and bytes, what happens to it and why.

    Empty until a step was measured. Raises ValueError where the model is not attached.
    """
    attached = session.current()
    if attached is None or attached.model is not model:
        raise ValueError("this model is not attached; call tidetape.attach(model) first, and explain it after a step")
    return attached.explain()
