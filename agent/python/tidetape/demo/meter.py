"""The step peak of a run that Tidetape is not attached to, by the meter that Tidetape itself uses."""

from __future__ import annotations

import torch

from tidetape import _C


def reset_peak(device: torch.device) -> None:
    """Begins a step: the peak is what is alive now."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        _C.meter_reset_peak()


def peak_bytes(device: torch.device) -> int:
    """The most bytes alive since reset_peak()."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _C.meter_peak_bytes()


def live_bytes(device: torch.device) -> int:
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else _C.meter_live_bytes()
