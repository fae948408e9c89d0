"""What is asked of nothing-saved's memory."""

from __future__ import annotations

_RATIO, _BYTES = 1.01, 4096


def within_bound(record: dict) -> bool:
    """Whether the peak stayed below checkpointing's + 1 % + 4 KiB; true where there is nothing to compare with."""
    ours, theirs = record.get("peak"), record.get("checkpoint_peak")
    return ours is None or theirs is None or ours <= theirs * _RATIO + _BYTES
