"""The table of FSDP2's features: how a model is made, sharded and trained, and which units go the stock way for which reason."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Shard

from tests.collectives import training
from tests.collectives.shapes import BranchingModel, Convolutions, ExpertModel, Model, Tied, TinyShards, Wide

MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
ALL_UNITS = ("blocks.0", "blocks.1", "blocks.2", "root")


def shard_blocks(model, **how):
    """Each block is a unit, and the rest is the root's."""
    for block in model.blocks:
        fully_shard(block, **how)
    fully_shard(model, **how)


def _each(setting, value):
    """Calls a setter of FSDP2's on every unit."""

    def change(model):
        for module in (*model.blocks, model):
            getattr(module, setting)(value)

    return change


def _shard(change=None, **how):
    def shard(model):
        shard_blocks(model, **how)
        if change is not None:
            change(model)

    return shard


def _prefetching(model):
    shard_blocks(model, mp_policy=MIXED)
    first, second, third = model.blocks
    first.set_modules_to_forward_prefetch([second, third])
    second.set_modules_to_forward_prefetch([third])
    third.set_modules_to_backward_prefetch([second, first])


def _copies(model):
    shard_blocks(model, mp_policy=MIXED, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards")))


def _expert_mesh(model):
    pairs = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "experts"))
    for block in model.blocks:
        fully_shard(block.experts, mesh=pairs["experts"], mp_policy=MIXED)
    shard_blocks(model, mp_policy=MIXED)


def _inner_units(model):
    for block in model.blocks:
        fully_shard(block.experts, mp_policy=MIXED)
    shard_blocks(model, mp_policy=MIXED)


def _freeze(names):
    def shard(model):
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not any(part in name for part in names))
        shard_blocks(model, mp_policy=MIXED)

    return shard


def _on_meta(model):
    """The model's parameters come into being after sharding."""
    shard_blocks(model.to("meta"), mp_policy=MIXED)
    model.to_empty(device="cpu")
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.fill_(0.01 * (number + 1))


@dataclass(frozen=True)
class Feature:
    """`stock`: units that go the stock way, each with a part of its reason. `stock_alone`: what the stock run needs to do the same
    at all; it may then have zeros where Tidetape leaves parameters without a gradient. `tolerance`: of numbers, over the largest of
    their array."""

    shard: Callable[[nn.Module], None]
    model: Callable[[], nn.Module] = Model
    train: Callable = training.plainly
    ranks: tuple[int, ...] = (2, 3, 4)
    stock: dict[str, str] = field(default_factory=dict)
    stock_alone: Callable[[nn.Module], None] | None = None
    tolerance: float = 1e-5
    options: dict = field(default_factory=dict)
    memory_limit: str = "max"


def _all(reason, names=ALL_UNITS):
    return dict.fromkeys(names, reason)


FEATURES = {
    "float32": Feature(_shard()),
    "mixed precision": Feature(_shard(mp_policy=MIXED)),
    "bfloat16 parameters": Feature(_shard(mp_policy=MIXED), lambda: Model().bfloat16(), tolerance=0.02),
    "bfloat16 reduction": Feature(_shard(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)), tolerance=0.05),
    "unsharded after forward": Feature(_shard(mp_policy=MIXED, reshard_after_forward=False)),
    "resharded to a number": Feature(_shard(mp_policy=MIXED, reshard_after_forward=2), ranks=(4,)),
    "unsharded after backward": Feature(_shard(lambda model: model.set_reshard_after_backward(False), mp_policy=MIXED)),
    "copies (HSDP)": Feature(_copies, ranks=(4,)),
    "copies summed apart": Feature(
        _copies, train=training.copies_apart, ranks=(4,), stock=_all("its copies are summed in other steps than its shards")
    ),
    "expert mesh": Feature(_expert_mesh, ExpertModel, ranks=(4,)),
    "units in units": Feature(_inner_units, ExpertModel),
    "explicit prefetch": Feature(_prefetching),
    "gradients without sync": Feature(_shard(mp_policy=MIXED), train=training.without_sync),
    "accumulated shards": Feature(_shard(mp_policy=MIXED), train=training.with_sync),
    "gradient clipping": Feature(_shard(mp_policy=MIXED), train=training.clipping),
    "state dicts": Feature(_shard(mp_policy=MIXED), train=training.through_state_dicts),
    "deferred init": Feature(_on_meta),
    "forwards without gradients": Feature(_shard(mp_policy=MIXED), train=training.looking_in_between),
    "unshard by hand": Feature(_shard(mp_policy=MIXED), train=training.unsharding_by_hand),
    "unused on some ranks": Feature(
        _shard(mp_policy=MIXED),
        BranchingModel,
        training.branching,
        stock_alone=_each("set_reduce_scatter_unused_params", True),
    ),
    "unused, and zeros wanted": Feature(
        _shard(_each("set_reduce_scatter_unused_params", True), mp_policy=MIXED),
        BranchingModel,
        training.branching,
    ),
    "frozen": Feature(_freeze(["blocks.0", "up"])),
    "frozen later": Feature(
        _shard(mp_policy=MIXED), train=training.freezing_later, stock={"blocks.1": "frozen or unfrozen after the start"}
    ),
    "tied": Feature(_shard(mp_policy=MIXED), Tied),
    "uneven shards": Feature(_shard(mp_policy=MIXED), lambda: Model(inner=13)),
    "empty shards": Feature(_shard(mp_policy=MIXED), TinyShards),
    # Sums of three ranks round in another order than gloo's, and AdamW divides small gradients by small numbers.
    "convolutions": Feature(_shard(), Convolutions, tolerance=1e-4),
    "Shard(1)": Feature(_shard(shard_placement_fn=lambda parameter: Shard(1)), Wide, ranks=(2, 4)),
    "Shard(1) in small pieces": Feature(
        _shard(shard_placement_fn=lambda parameter: Shard(1) if parameter.ndim == 2 else None),
        ranks=(2, 4),
        stock=_all("Shard(1) scatters it in pieces", ALL_UNITS),
    ),
    "sums only": Feature(_shard(_each("set_force_sum_reduction_for_comms", True), mp_policy=MIXED)),
    "divide factor": Feature(
        _shard(_each("set_gradient_divide_factor", 3.0), mp_policy=MIXED),
        # Over gloo stock FSDP2 can divide by other numbers than the ranks only after the sum.
        stock_alone=_each("set_force_sum_reduction_for_comms", True),
    ),
    "float16": Feature(
        _shard(mp_policy=MixedPrecisionPolicy(param_dtype=torch.float16)), stock=_all("its gradient is float16"), tolerance=0.02
    ),
    "float16 reduction": Feature(
        _shard(mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.float16)), stock=_all("it reduces in float16"), tolerance=0.02
    ),
    "CPU offload": Feature(
        _shard(mp_policy=MIXED, offload_policy=CPUOffloadPolicy(pin_memory=False)), stock=_all("CPUOffloadPolicy")
    ),
    "all-reduce hook": Feature(
        _shard(lambda model: model.blocks[1].set_all_reduce_hook(lambda output: output.mul_(2)), mp_policy=MIXED),
        stock={"blocks.1": "all-reduce hook"},
    ),
    "slots of their own": Feature(_shard(mp_policy=MIXED), options={"rotating_slots": 100}),
    "too few slots": Feature(
        _inner_units,
        ExpertModel,
        options={"rotating_slots": 1},
        stock=_all("its slot held another unit", (*(f"blocks.{n}.experts" for n in range(3)), "blocks.0", "blocks.1")),
    ),
    "tape": Feature(_shard(mp_policy=MIXED), memory_limit="min"),
    "tape over units in units": Feature(_inner_units, ExpertModel, memory_limit="min"),
}
"""By name, as docs/collectives.md lists them."""
