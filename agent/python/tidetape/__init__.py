"""Tidetape trains a PyTorch model under a memory limit, as fast as that limit allows, without editing the model.

`import tidetape` puts a metering allocator in front of libtorch's, so import it before the model is made where memory is to be
exact from the start. `attach(model)` does the rest.
"""

from ._native import _C, intercept_status
from .attach import attach
from .explain import explain
from .fsdp.options import CollectiveOptions
from .session import Session

__version__ = "0.1.0"

__all__ = ["_C", "CollectiveOptions", "Session", "__version__", "attach", "explain", "intercept_status"]
