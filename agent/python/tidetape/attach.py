"""attach(): the one call."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from torch import nn

from . import _native, session
from .block_options import choose_blocks, users_options
from .blocks import find_blocks
from .existing import POLICIES, handle_existing
from .fsdp.options import CollectiveOptions
from .idle_session import IdleSession
from .memory_limit import parse_host_memory_limit, parse_memory_limit
from .option_forward import Option

_log = logging.getLogger("tidetape")


def attach(
    model: nn.Module,
    *,
    blocks: str | Sequence[str | nn.Module] | None = None,
    memory_limit: int | str = "90%",
    host_memory_limit: int | str | None = None,
    planner: str = "local",
    job: str | None = None,
    existing: str = "replace",
    collectives: str | CollectiveOptions = "stock",
    options: Mapping[str, Mapping[str, Option]] | None = None,
) -> session.Session | IdleSession:
    """Lets Tidetape manage the activations of `model`, from its next forward on. The model's code, module names and state dict
    keys stay as they are.

    blocks: None (FSDP2 units below the root, or the repeated children of ModuleLists), name globs ("model.layers.*"), or modules.
    memory_limit: on the step peak of this process, everything alive counted: bytes, "3.5GiB", "90%" (of the device; on CPU of the
        cgroup's or the machine's memory, shared among the ranks of the host), "min" (as little as possible) or "max" (keep
        everything).
    host_memory_limit: host memory of this process for values that are moved there after a block's forward and back before its
        backward, where that is faster than replaying them or makes room for blocks' inputs: bytes, "4GiB", "10%" (of the host's
        memory, shared among its ranks), or None (nothing is moved). On CPU such values wait in a file, see TIDETAPE_HOST_DIR.
    planner: "local" (embedded in this process), "host:port" of a tidetape-server (several with commas between where they stand
        by for each other), or "none" (nothing is planned: nothing is
        saved, or everything with memory_limit="max").
    job: name of the job; else TIDETAPE_JOB, SLURM_JOB_ID, torchrun's run id.
    existing: checkpointing that is already on is replaced ("replace"), kept, its blocks left alone ("keep"), or refused ("error").
    collectives: FSDP2's own ("stock"), Tidetape's without layout copies ("tide"), or those where they work ("auto");
        CollectiveOptions for more. The same on all ranks.
    options: by name glob, your own ways to run blocks, by name, from the one that needs the least memory on. A way is called as
        `way(forward, *args, **kwargs)` with the block's own forward, as in functools.partial(checkpoint, use_reentrant=False); None
        stands for the forward as it is. They are measured in the first steps, and the plan picks one for each block.

    Works before or after fully_shard, DDP, meta-device initialisation and torch.compile of blocks (which run under one of three
    activation memory budgets). Raises ValueError on bad arguments. With a torch that cannot be intercepted it says so once and
    leaves training alone.
    """
    if existing not in POLICIES:
        raise ValueError(f"existing is {existing!r}; it must be one of {', '.join(POLICIES)}")
    if planner not in ("local", "none") and ":" not in planner:
        raise ValueError(f'planner is {planner!r}; it must be "local", "none" or "host:port"')
    limit = parse_memory_limit(memory_limit)
    host_limit = parse_host_memory_limit(host_memory_limit)
    collective_options = CollectiveOptions.of(collectives)
    if session.current() is not None:
        raise ValueError(
            "another model is attached in this process; call detach() on its session first, or attach a module that "
            "contains both models"
        )
    given = users_options(model, options)
    found = find_blocks(model, blocks)
    if given:
        # Once more, for the order.
        found = find_blocks(model, [*(module for _, module in found), *given])
    if _native.intercept_problem:
        _log.warning("tidetape: %s", _native.intercept_problem)
        return IdleSession({name: _native.intercept_problem for name, _ in found}, _native.intercept_problem)
    checkpointing = handle_existing(model, found, existing)
    if checkpointing.message:
        _log.warning("tidetape: %s", checkpointing.message)
    chosen = choose_blocks(checkpointing.managed, given)
    checkpointing.unmanaged.update(chosen.unmanaged)
    for reason in sorted(set(checkpointing.unmanaged.values())):
        names = [name for name, why in checkpointing.unmanaged.items() if why == reason]
        _log.warning("tidetape: %d block(s) run without Tidetape, from %s on: %s", len(names), names[0], reason)
    attached = session.Session(model, chosen.managed, limit, host_limit, planner, job, checkpointing, chosen.options)
    if collective_options.mode != "stock":
        attached.take_over_collectives(collective_options)
    session._set_current(attached)
    return attached
