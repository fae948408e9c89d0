"""The session of a model that Tidetape leaves alone, because this torch cannot be intercepted."""

from __future__ import annotations

import contextlib

from .plan import Plan


class IdleSession:
    """Answers like a Session and does nothing. `reason` says why."""

    def __init__(self, unmanaged: dict[str, str], reason: str):
        self.unmanaged = unmanaged
        self.reason = reason
        self.plan = Plan()
        self.collectives = None

    def stats(self) -> dict:
        return {}

    def passed_through(self) -> dict[str, int]:
        return {}

    def explain(self) -> str:
        return f"nothing is recorded: {self.reason}"

    def sites(self) -> dict:
        return {}

    def demotions(self) -> dict[str, int]:
        return {}

    def impose(self, actions: dict[str, dict[int, str]], default: str = "replay") -> None:
        """Has no effect."""

    def set_memory_limit(self, limit: int | str) -> None:
        """Has no effect."""

    @contextlib.contextmanager
    def step(self):
        yield self

    def planner_state(self) -> tuple[bool, str]:
        return False, self.reason

    def detach(self) -> None:
        """The model is as it was."""

    def __enter__(self) -> IdleSession:
        return self

    def __exit__(self, *_exception) -> None:
        pass
