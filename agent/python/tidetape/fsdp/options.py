"""What a user may choose about collectives."""

from __future__ import annotations

from dataclasses import dataclass

MODES = ("tide", "stock", "auto")


@dataclass(frozen=True)
class CollectiveOptions:
    """The same on all ranks.

    mode: "stock" leaves FSDP2 alone. "tide" replaces its collectives, and fails on all ranks where the ranks cannot share memory or
        reach each other. "auto" replaces them where that works, else says why and leaves FSDP2 alone.
    """

    mode: str = "stock"
    # Arena memory of each rank for gradient rows that have come and are not yet added, where they cannot wait in the slot that the
    # unit has vacated: it is smaller than this, or it is not vacated.
    staging_bytes: int = 512 << 10
    # The most bytes of one message.
    chunk_bytes: int = 1 << 20
    # Slots that the units that are resharded after forward take in turn; None: as many as FSDP2's order needs (slot_plan.py). A
    # unit whose slot is taken when it is needed goes the stock way that once.
    rotating_slots: int | None = None
    # How long a rank waits for another in a collective before it fails, and at the start for the last one to come.
    wait_seconds: float = 300.0
    join_seconds: float = 120.0
    # Debug mode: proves all ranks' schedules before they run (proof.py). None: where TIDETAPE_VERIFY_SCHEDULES is 1. One rank that
    # wants it is enough.
    verify_schedules: bool | None = None
    # Numeric address of this host as the other hosts reach it. None: the one from which this host reaches the job's master.
    address: str | None = None

    @staticmethod
    def of(given: str | CollectiveOptions) -> CollectiveOptions:
        """The options of a mode's name. Raises ValueError on a word that is none."""
        options = CollectiveOptions(given) if isinstance(given, str) else given
        if not isinstance(options, CollectiveOptions) or options.mode not in MODES:
            raise ValueError(f"collectives is {given!r}; it must be one of {', '.join(MODES)}, or CollectiveOptions")
        return options
