"""How the ranks of a group tell each other something at the start, through the store that torch.distributed was started with."""

from __future__ import annotations

import contextlib
import datetime
import time

import torch.distributed as dist

_PART_SECONDS = 3.0


@contextlib.contextmanager
def _saying_who_holds_the_store():
    try:
        yield
    except dist.DistNetworkError as error:
        raise RuntimeError(
            f"the job's store cannot be reached, rank 0, which holds it, may have ended: {error}"
        ) from error


class RollCall:
    """Rounds in which each rank says something and hears all others. All ranks must call the same rounds in the same order."""

    def __init__(self, name: str, rank: int, size: int, seconds: float):
        """`name`: of letters, digits, '/', '.', '-' and '_'; unique in the job. `rank` of `size`: in the group. All rounds together
        take at most `seconds`."""
        self.name = name
        self._rank = rank
        self._size = size
        self._deadline = time.monotonic() + seconds
        self._store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())

    def say(self, topic: str, value: str) -> list[str]:
        """What all ranks say, by rank. Raises TimeoutError that names the first rank that says nothing."""
        self.set(f"{topic}/{self._rank}", value.encode())
        said = []
        for rank in range(self._size):
            value = self.wait(f"{topic}/{rank}", self._deadline - time.monotonic())
            if value is None:
                raise TimeoutError(f"rank {rank} of the group did not say its {topic} in time")
            said.append(value.decode())
        return said

    def ask(self, topic: str, rank: int) -> str:
        """What a rank has said in an earlier round."""
        return self.wait(f"{topic}/{rank}", 1.0).decode()

    def part(self) -> None:
        """To be called by all ranks before they raise what all have heard: the rank with the store may end by it, and the others
        would hear nothing more. Waits for a moment at most, and raises nothing."""
        deadline = time.monotonic() + _PART_SECONDS
        try:
            self.set(f"parted/{self._rank}", b"")
            for rank in range(self._size):
                self.wait(f"parted/{rank}", deadline - time.monotonic())
        except RuntimeError:
            pass  # the store is gone already

    def set(self, key: str, value: bytes) -> None:
        with _saying_who_holds_the_store():
            self._store.set(key, value)

    def wait(self, key: str, seconds: float) -> bytes | None:
        """The key's value as soon as it is set, None where nobody does so in time."""
        with _saying_who_holds_the_store():
            try:
                self._store.wait([key], datetime.timedelta(seconds=max(seconds, 0.001)))
            except RuntimeError:
                # DistStoreError; a plain one of the file store's. What is wrong with the store itself is raised again.
                if not self._store.check([key]):
                    return None
            return self._store.get(key)
