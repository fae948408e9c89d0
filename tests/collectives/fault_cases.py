"""What may go wrong in a run of tests/collectives/random_faults.py, by chance, and what one rank does in it."""

import ctypes
import os
import random
import signal
import threading
import time
from dataclasses import dataclass

WAIT_SECONDS = 6.0
JOIN_SECONDS = 12.0
STEPS = 3
# Calls into the collectives of one rank in a run, about.
CALLS = 75
FAULTS = ("kill", "stop", "late", "behind", "full", "fill", "cut", "none")
CLONE_NEWNS = 0x20000


@dataclass(frozen=True)
class Case:
    """One run; the seed makes the same one again.

    fault: "kill" and "stop" end or stop the victim (SIGKILL, SIGSTOP), "late" makes it sleep past the deadline, "behind" for less
        than that, "full" starts it with too little room in /dev/shm, "fill" fills /dev/shm up meanwhile, "cut" takes the cable
        between the two hosts away.
    call: the victim's call into the collectives at which it happens; `seconds` later where it can happen at any time.
    """

    seed: int
    fault: str
    ranks: int
    per_host: int
    victim: int
    call: int
    seconds: float

    @staticmethod
    def draw(seed: int, two_hosts: bool) -> "Case":
        chance = random.Random(seed)
        fault = chance.choice([name for name in FAULTS if name not in ("none", "cut") or (name == "cut" and two_hosts)])
        if fault == "cut" or (two_hosts and chance.random() < 0.2):
            per_host = chance.choice((1, 2))
            ranks = 2 * per_host
        else:
            ranks = per_host = chance.choice((2, 3, 4))
        seconds = chance.choice((0.0, chance.random() * 0.2)) if fault in ("kill", "stop", "fill", "cut") else 0.0
        return Case(seed, fault, ranks, per_host, chance.randrange(ranks), chance.randrange(CALLS), seconds)

    def without_fault(self) -> "Case":
        return Case(0, "none", self.ranks, self.per_host, 0, 0, 0.0)


class Fault:
    """Counts this rank's calls into the collectives, and does what the case says at its call. `say`: tells the parent before."""

    def __init__(self, case: Case, say):
        self._case = case
        self._say = say
        self._calls = 0

    def install(self) -> None:
        from tidetape.fsdp.roll_call import RollCall
        from tidetape.fsdp.unit_gather import UnitGather
        from tidetape.fsdp.unit_reduction import UnitReduction

        for owner, name in ((RollCall, "say"), (UnitGather, "send"), (UnitGather, "finish"), (UnitReduction, "reduce")):
            setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, function):
        def counted(*args, **kwargs):
            if self._calls == self._case.call:
                self._happen()
            self._calls += 1
            return function(*args, **kwargs)

        return counted

    def _happen(self) -> None:
        case = self._case
        if case.fault == "late":
            self._say("fault")
            time.sleep(2.5 * WAIT_SECONDS)
        elif case.fault == "behind":
            self._say("fault")
            time.sleep(0.3 * WAIT_SECONDS)
        elif case.seconds > 0:
            timer = threading.Timer(case.seconds, self._act)
            timer.daemon = True
            timer.start()
        else:
            self._act()

    def _act(self) -> None:
        self._say("fault")
        if self._case.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._case.fault == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._case.fault == "fill":
            fill("/dev/shm/filling")


def fill(path: str) -> None:
    """Takes all that is left of the file system."""
    try:
        with open(path, "wb", buffering=0) as file:
            while file.write(bytes(1 << 20)):
                pass
    except OSError:
        pass


def private_tmpfs(mebibytes: int) -> None:
    """A /dev/shm of this process and its children alone. Raises OSError without the right to make one."""
    libc = ctypes.CDLL(None, use_errno=True)
    private = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC
    if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(None, b"/", None, private, None) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a mount namespace")
    if libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, f"size={mebibytes}m".encode()) != 0:
        raise OSError(ctypes.get_errno(), "cannot mount a tmpfs")


def train(case: Case, rank: int, meeting: str, enter, pipe) -> None:
    """Tells through `pipe`: ("fault", when), and at the end ("end", when, numbers by step, error)."""
    import torch
    import torch.distributed as dist

    import tidetape
    from tests.collectives import training
    from tests.collectives.features import MIXED, shard_blocks
    from tests.collectives.shapes import Model

    if enter is not None:
        enter(rank)
    if case.fault == "full" and rank == case.victim:
        private_tmpfs(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=case.ranks)
    torch.manual_seed(3)
    model = Model(inner=13)
    shard_blocks(model, mp_policy=MIXED)
    if rank == case.victim and case.fault not in ("none", "full"):
        Fault(case, lambda what: pipe.send((what, time.monotonic()))).install()
    options = tidetape.CollectiveOptions(
        "tide", wait_seconds=WAIT_SECONDS, join_seconds=JOIN_SECONDS, staging_bytes=1 << 20, verify_schedules=case.seed % 5 == 0
    )
    session = tidetape.attach(model, blocks="blocks.*", memory_limit="max", planner="none", collectives=options)
    optimizer = training.optimizer_of(model)
    numbers, error = [], ""
    try:
        for step in range(STEPS):
            loss = model(training.batch(step, rank))
            loss.backward()
            numbers.append([training.array(loss), *training.gradients(model)])
            optimizer.step()
            optimizer.zero_grad()
    except RuntimeError as problem:
        error = str(problem)
    pipe.send(("end", time.monotonic(), numbers, error))
    session.detach()
    # Without waiting for anything of torch's: its own group may be broken, too.
    os._exit(0)
