"""The ways of training one model that a benchmark compares.

tidetape is imported where a variant uses it or where bytes are counted, so that plain training and the rivals are timed without it.
"""

import dataclasses
import functools
from collections.abc import Callable

from tests.benchmarks import ideal, rivals


@dataclasses.dataclass(frozen=True)
class Variant:
    """A name, and what to do so that a model trains this way: `prepare(training)` may return a session of Tidetape's."""

    name: str
    prepare: Callable = lambda training: None


PLAIN = Variant("plain")
FULL_CHECKPOINT = Variant("full checkpoint", lambda training: rivals.checkpoint_blocks(training.blocks))
IDEAL = Variant("ideal replay", lambda training: ideal.rerun_consumed_kernels(training.blocks, training.run_step))
NOTHING_SAVED = Variant("tidetape, nothing saved", lambda training: _attach(training, "min", "none"))
ALL_SAVED = Variant("tidetape, all saved", lambda training: _attach(training, "max", "none"))


def planned(name, memory_limit, host_memory_limit=None):
    """Tidetape under a limit on the step peak, with its own planner."""
    return Variant(name, lambda training: _attach(training, memory_limit, "local", host_memory_limit))


def selective_policies(with_experts):
    """torch's selective checkpointing with the lists that people use."""
    titan = functools.partial(rivals.titan_policy, with_experts)
    return (
        Variant(
            "SAC titan w/o topk" if with_experts else "SAC titan",
            lambda training: rivals.checkpoint_blocks_saving(training.blocks, titan),
        ),
        Variant("SAC all mm+attn", lambda training: rivals.checkpoint_blocks_saving(training.blocks, rivals.all_matmuls_policy)),
    )


REMAT_FULL = Variant("remat full", lambda training: rivals.remat_blocks(training.blocks))
REMAT_MATMULS = Variant("remat mm+attn", lambda training: rivals.remat_blocks_saving_matmuls(training.blocks))


def _within(context):
    """Every block's forward runs inside of a `context(tidetape._C)`."""

    def prepare(training):
        import tidetape

        def run(forward, *args, **kwargs):
            with context(tidetape._C):
                return forward(*args, **kwargs)

        for block in training.blocks:
            block.forward = functools.partial(run, block.forward)

    return prepare


BARE_REDISPATCH = Variant("bare redispatch", _within(lambda native: native.BareRedispatch()))
RECORDING_WITHOUT_HOOKS = Variant("recording without saved-tensor hooks", _within(lambda native: native.RecordingWithoutHooks()))


def _attach(training, memory_limit, planner, host_memory_limit=None):
    import tidetape

    return tidetape.attach(
        training.model,
        blocks=training.blocks,
        memory_limit=memory_limit,
        host_memory_limit=host_memory_limit,
        planner=planner,
    )
