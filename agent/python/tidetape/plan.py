"""Plans as people read them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlannedBlock:
    """What a plan does in one block: numbers of saved and moved storages and of replayed ops, and what they cost."""

    name: str
    saved: int
    replayed: int
    moved: int
    saved_bytes: int
    moved_bytes: int
    replay_seconds: float
    own_peak_bytes: int
    option: str = ""
    """Which of its options a block without a tape runs by."""


@dataclass(frozen=True)
class Plan:
    """The plan in force. Generation 0: no plan yet, and nothing is saved (or everything, with memory_limit="max")."""

    generation: int = 0
    memory_limit_bytes: int = 0
    step_peak_bytes: int = 0
    """What the step's peak is expected to be."""
    headroom_bytes: int = 0
    """Held free on top, for steps that need more than those that were measured: the limit holds with it."""
    replay_seconds: float = 0.0
    saved_bytes: int = 0
    moved_bytes: int = 0
    move_seconds: float = 0.0
    lower_bound_seconds: float = 0.0
    gap_ratio: float = 0.0
    feasible: bool = True
    least_peak_bytes: int = 0
    least_peak_holder: str = ""
    peak_holder: str = ""
    reason: str = ""
    etag: str = ""
    pacing: dict | None = None
    """How the collectives pace themselves: algorithm, chunk_bytes, puts_in_flight, chunk_gap_seconds, prefetch_depth,
    staging_slots, slot_reuse, gather_seconds. None: the plan says nothing of them."""
    blocks: tuple[PlannedBlock, ...] = field(default=())


@dataclass(frozen=True)
class Site:
    """A value on the tape of a block, by the name that plans know it by; bytes are the most seen."""

    site: int
    label: str
    bytes: int
    consumed: bool
    must_save: bool
