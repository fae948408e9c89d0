"""What one rank of bench_collectives runs: the same model over stock FSDP2 and over Tidetape's collectives, in turn."""

import functools
import mmap
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState
from torch.distributed.fsdp._fully_shard._fsdp_state import _get_module_fsdp_state

from tests.benchmarks import shapes

WARM_UP_ROUNDS = 2
WAYS = ("stock", "tide")
FUNCTIONS = ("foreach_all_gather", "foreach_all_gather_copy_out", "foreach_reduce")


class CommunicationClock:
    """Wall time inside FSDP2's collective path, conversions and waiting for peers included, whoever does it."""

    def __init__(self):
        self.seconds = 0.0
        for name in FUNCTIONS:
            setattr(_fsdp_param_group, name, self._timed(getattr(_fsdp_param_group, name)))

    def take(self):
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def _timed(self, function):
        @functools.wraps(function)
        def timed(*args, **kwargs):
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - start

        return timed


class Training:
    """A model over one way, and what it takes."""

    def __init__(self, way, shape):
        self.way = way
        self.model = shapes.build_model(shape)
        self.model.zero_grad()
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in self.model.model.layers:
            fully_shard(layer, mp_policy=policy)
        fully_shard(self.model, mp_policy=policy)
        self.batch = shapes.build_batch(shape, self.model)
        self.collectives = None
        if way == "tide":
            from tidetape.fsdp.collectives import Collectives
            from tidetape.fsdp.options import CollectiveOptions

            self.collectives = Collectives(self.model, CollectiveOptions("tide"))

    def groups(self):
        states = (_get_module_fsdp_state(module) for module in self.model.modules())
        return [group for state in states if state is not None for group in state._fsdp_param_groups]

    def step(self):
        """Wall seconds of forward and backward. Gradients are there before, so nothing is allocated for them."""
        dist.barrier()
        start = time.perf_counter()
        self.model(**self.batch).loss.backward()
        return time.perf_counter() - start

    def peak_bytes(self):
        """The most tensor bytes of a step without gradients before it, above what was alive, with the arena where there is one."""
        from tidetape import _C

        self.model.zero_grad()
        before = _C.meter_live_bytes()
        _C.meter_reset_peak()
        self.step()
        arena = 0
        if self.collectives is not None:
            sizes = self.collectives.arena_bytes
            arena = sizes["private"] + sizes["shared"] // dist.get_world_size()
        return _C.meter_peak_bytes() - before + arena

    def collectives_alone(self):
        """Wall seconds of a step's collectives, each between barriers: units are gathered twice and reduced once. After a step."""
        groups = self.groups()
        seconds = 0.0
        for group in groups:
            seconds += _timed_alone(lambda group=group: (group.unshard(), group.wait_for_unshard()))
            group.reshard()
        for group in reversed(groups):
            seconds += _timed_alone(lambda group=group: (group.unshard(), group.wait_for_unshard()))
            for param in group.fsdp_params:
                param.unsharded_param.grad = torch.ones_like(param.unsharded_param)
            seconds += _timed_alone(group.post_backward)
            group.finalize_backward()
            group._training_state = TrainingState.IDLE
        groups[0].comm_ctx.reduce_scatter_states.clear()
        return seconds

    def received_bytes(self):
        """What a rank gets from its peers in a step over Tidetape: shards twice, gradient rows once, both in bfloat16."""
        numbers = sum(param._orig_size.numel() for group in self.groups() for param in group.fsdp_params)
        ranks = dist.get_world_size()
        return 3 * 2 * numbers * (ranks - 1) // ranks


def _timed_alone(function):
    dist.barrier()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def shared_memory_copy(folder, count):
    """Returns a function that copies `count` bytes out of memory that the next rank shares."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    with open(folder / str(rank), "wb") as file:
        file.write(os.urandom(count))
    dist.barrier()
    with open(folder / str((rank + 1) % world_size), "r+b") as file:
        source = torch.frombuffer(mmap.mmap(file.fileno(), count), dtype=torch.uint8)
    target = torch.empty(count, dtype=torch.uint8)
    return lambda: target.copy_(source)


def measure(rounds, folder):
    """{quantity: [seconds a round]} and bytes, of this rank."""
    import tidetape  # noqa: F401  counts bytes from here on

    torch.set_num_threads(1)
    trainings = [Training(way, shapes.COMPUTE_FP32) for way in WAYS]
    clock = None
    seconds = {f"{way}_{what}": [] for way in WAYS for what in ("step", "communication", "alone")} | {"memcpy": []}
    copy = shared_memory_copy(folder, trainings[0].received_bytes())
    for done in range(WARM_UP_ROUNDS + rounds):
        # The other one first in every second round, so that neither always finds the caches of the other.
        for training in trainings if done % 2 else reversed(trainings):
            if clock is not None:
                clock.take()
            seconds[f"{training.way}_step"].append(training.step())
            # From the first step on, Tidetape's functions are where FSDP2 looks for them.
            seconds[f"{training.way}_communication"].append(0.0 if clock is None else clock.take())
            seconds[f"{training.way}_alone"].append(training.collectives_alone())
        if clock is None:
            clock = CommunicationClock()
        dist.barrier()
        start = time.perf_counter()
        copy()
        seconds["memcpy"].append(time.perf_counter() - start)
    peaks = {training.way: training.peak_bytes() for training in trainings}
    return {
        "seconds": {name: values[WARM_UP_ROUNDS:] for name, values in seconds.items()},
        "received_bytes": trainings[0].received_bytes(),
        "peak_bytes": peaks,
        "arena_bytes": trainings[1].collectives.arena_bytes,
        "reasons": trainings[1].collectives.reasons,
    }


def staging_bytes():
    """What the arena maps for this rank alone, with a shard of the same size whatever the number of ranks."""
    from tidetape.fsdp.collectives import Collectives
    from tidetape.fsdp.options import CollectiveOptions

    torch.set_num_threads(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 64 * dist.get_world_size(), bias=False) for _ in range(4)))
    for layer in model:
        fully_shard(layer)
    collectives = Collectives(model, CollectiveOptions("tide"))
    for layer in model:
        layer(torch.ones(2, 256)).sum().backward()
    return collectives.arena_bytes["private"]
