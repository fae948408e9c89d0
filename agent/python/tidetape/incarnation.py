"""Names a job and this start of it, the same on all ranks."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import socket
import time
import uuid
from dataclasses import dataclass

import torch.distributed as dist

# How long a rank waits for rank 0 to publish, seconds.
_TIMEOUT_SECONDS = 300.0

# Counts the incarnations that this process took part in: a process may attach, detach and attach again over one store.
_published = itertools.count()
_latest_order = 0


@dataclass(frozen=True)
class Incarnation:
    """One start of a job. `order` is rank 0's time in microseconds since the Unix epoch; it orders incarnations of one job."""

    job: str
    id: str
    order: int


def job_name(job: str | None = None) -> str:
    """The argument, else TIDETAPE_JOB, else Slurm's job id, else torchrun's run id, else a name made of host and process id."""
    for name in (job, os.environ.get("TIDETAPE_JOB"), os.environ.get("SLURM_JOB_ID"), os.environ.get("TORCHELASTIC_RUN_ID")):
        # torchrun calls its run "none" where nobody named it, which would mix up all such jobs.
        if name and name != "none":
            return name
    return f"{socket.gethostname()}-{os.getpid()}"


def new_incarnation(job: str | None = None, timeout_seconds: float = _TIMEOUT_SECONDS) -> Incarnation:
    """Makes an incarnation; with torch.distributed initialised, rank 0 makes it and all ranks return the same one.

    Collective: every rank calls it the same number of times. Raises RuntimeError where rank 0 does not publish in time.
    """
    number = next(_published)
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return _make(job)
    store = dist.PrefixStore("tidetape/incarnation", dist.distributed_c10d._get_default_store())
    key = str(number)
    if dist.get_rank() == 0:
        incarnation = _make(job)
        store.set(key, json.dumps(incarnation.__dict__))
        return incarnation
    try:
        store.wait([key], datetime.timedelta(seconds=timeout_seconds))
    except Exception as error:
        raise RuntimeError(
            f"rank {dist.get_rank()}: rank 0 published no incarnation within {timeout_seconds:g} s; every rank has to call "
            f"tidetape.attach ({error})"
        ) from error
    return Incarnation(**json.loads(store.get(key)))


def _make(job: str | None) -> Incarnation:
    global _latest_order
    # Two starts within one process differ even where the clock stands still.
    _latest_order = max(time.time_ns() // 1000, _latest_order + 1)
    return Incarnation(job=job_name(job), id=uuid.uuid4().hex, order=_latest_order)
