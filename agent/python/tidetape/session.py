"""The session of an attached model."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
import weakref
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import _native
from .agreement import Agreement
from .block_forward import BlockForward
from .existing import ExistingCheckpointing
from .incarnation import new_incarnation
from .inner_units import watch_inner_units
from .option_forward import OptionForward
from .plan import Plan, PlannedBlock, Site

if TYPE_CHECKING:
    from .block_options import BlockOptions
    from .fsdp.collectives import Collectives
    from .fsdp.options import CollectiveOptions

_log = logging.getLogger("tidetape")

# How long a closing link may take to send what is queued, seconds.
_CLOSE_SECONDS = 2.0

_current: weakref.ref[Session] | None = None


class Session:
    """An attached model. Made by `tidetape.attach`; all methods are called on the training thread."""

    def __init__(
        self,
        model: nn.Module,
        blocks: list[tuple[str, nn.Module]],
        memory_limit_bytes: int,
        host_limit_bytes: int,
        planner: str,
        job: str | None,
        existing: ExistingCheckpointing,
        options: dict[str, BlockOptions],
    ):
        audit = _audit_mode(os.environ.get("TIDETAPE_AUDIT", ""))
        self.native = _native._C.Session(memory_limit_bytes)
        self.native.set_audit(audit)
        if host_limit_bytes > 0:
            self._use_host_memory(host_limit_bytes)
        self.unmanaged: dict[str, str] = dict(existing.unmanaged)
        """Blocks that run without Tidetape, and why."""
        self._planner = planner
        self._job = job
        # Holds modules, so only where there is something to restore.
        self._existing = existing if existing.found else None
        self._agreement: Agreement | None = None
        # Weak, like the hook below: the model holds its session, and not the other way round.
        self._forwards: list[weakref.ref[BlockForward]] = []
        self._stats: dict = {}
        # CPU time of this thread that the last step boundary took: reports, agreement, a new plan.
        self._boundary_seconds = 0.0
        self._optimizer_stepped = False
        self._explicit_steps = False
        self._in_step = False
        self._started = False
        self._detached = False
        self.collectives: Collectives | None = None
        """What Tidetape does of FSDP2's collectives; None where they are FSDP2's own."""
        self._said_infeasible = 0
        self._hooks = []
        # Labels of the options of blocks that have no tape.
        self._options = {name: list(given.options) for name, given in options.items()}
        for name, module in blocks:
            number = self.native.add_block(name)
            if name in options:
                forward = OptionForward(module, number, self, name, options[name])
            else:
                forward = BlockForward(module, number, self)
                self._hooks += watch_inner_units(module, number, self)
            forward.install()
            self._forwards.append(weakref.ref(forward))
        self._model = weakref.ref(model)
        own = weakref.ref(self)
        self._hooks.append(register_optimizer_step_post_hook(lambda *_: own() and own()._on_optimizer_step()))
        self._block_names = [name for name, _ in blocks]

    def _use_host_memory(self, limit_bytes: int) -> None:
        self.native.set_host_limit(limit_bytes)
        if self.native.host_bytes_per_second() == 0:
            _log.warning(
                "tidetape: no value is moved to host memory, there is nowhere to put it; set TIDETAPE_HOST_DIR to a directory that "
                "can be written"
            )

    def take_over_collectives(self, options: CollectiveOptions) -> None:
        """Replaces FSDP2's collectives from the model's next all-gather on. On all ranks, or on none."""
        # FSDP2's own modules are heavy, and private to torch: loaded only where they are used.
        from .fsdp.collectives import Collectives

        self.collectives = Collectives(self._model(), options, probes=self._planner not in ("local", "none"))

    # --- what people ask -----------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        given = self.native.plan()
        if given is None:
            return Plan()
        blocks = tuple(self._planned_block(**block) for block in given.pop("blocks"))
        return Plan(**given, blocks=blocks)

    def _planned_block(self, name: str, option: int, **figures) -> PlannedBlock:
        labels = self._options.get(name, [])
        return PlannedBlock(name=name, option=labels[option] if 0 <= option < len(labels) else "", **figures)

    def stats(self) -> dict:
        """The last finished step: step, generation, step_seconds, step_peak_bytes, replay_seconds, saved_bytes, replayed_ops,
        demoted_ops, demoted_bytes, consumed_bytes, moved_bytes, recorded_ops, bookkeeping_bytes, agent_seconds, live_bytes.
        Empty before the first."""
        self._finish_if_stepped()
        return dict(self._stats)

    def passed_through(self) -> dict[str, int]:
        """Why block executions ran without a tape, with their counts."""
        return dict(self.native.passed_through())

    @property
    def model(self) -> nn.Module | None:
        """The attached model, while it lives."""
        return self._model()

    def explain(self) -> str:
        """The tapes as text, see tidetape.explain."""
        return self.native.explain()

    def sites(self) -> dict[str, list[Site]]:
        """By block, the values on its tape that a plan may decide about. Empty until a step was measured."""
        return {block: [Site(**site) for site in sites] for block, sites in self.native.sites().items()}

    def demotions(self) -> dict[str, int]:
        """Values that are kept because they cannot be reproduced: block and op, with their bytes."""
        return dict(self.native.demotions())

    def impose(self, actions: dict[str, dict[int, str] | str], default: str = "replay") -> None:
        """Puts a plan made by hand in force, from the next forward on.

        actions: by block, "save", "replay" or "move" (to host memory and back) for each site; for a block with options the name of
        one, the first where it is left out. default: "save" or "replay", for what
        backward reads and is not named, in all blocks. Raises ValueError on another word, block or option.
        """
        if unknown := actions.keys() - set(self._block_names):
            raise ValueError(f"no such block: {', '.join(sorted(unknown))}; the blocks are {', '.join(self._block_names)}")
        if default not in ("save", "replay"):
            raise ValueError(f'default is {default!r}; it must be "save" or "replay"')
        numbers = {action: getattr(_native._C, f"ACTION_{action.upper()}") for action in ("save", "replay", "move")}
        chosen = {name: self._option_number(name, actions.get(name, labels[0])) for name, labels in self._options.items()}
        actions = {name: sites for name, sites in actions.items() if name not in chosen}
        words = {word for sites in actions.values() for word in sites.values()}
        if words - numbers.keys():
            raise ValueError(f'an action is {min(words - numbers.keys())!r}; it must be "save", "replay" or "move"')
        self.native.impose(
            [
                (name, [(site, numbers[word]) for site, word in actions.get(name, {}).items()], chosen.get(name, -1))
                for name in self._block_names
            ],
            default == "save",
        )

    def _option_number(self, block: str, option: str) -> int:
        if option not in self._options[block]:
            raise ValueError(f"{block} has no option {option!r}; it has {', '.join(self._options[block])}")
        return self._options[block].index(option)

    def set_memory_limit(self, limit: int | str) -> None:
        """Changes the limit; a new plan follows."""
        from .memory_limit import parse_memory_limit

        self.native.set_memory_limit(parse_memory_limit(limit))

    # --- steps ---------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def step(self):
        """One training step, for loops whose steps cannot be seen by themselves (no torch.optim optimizer)."""
        self._finish_if_stepped()
        self._explicit_steps = True
        self._start()
        self._in_step = True
        try:
            yield self
        finally:
            self._in_step = False
            self._finish()

    def before_block(self) -> None:
        """A block's forward is about to begin: a step that is over ends here."""
        if not self._started:
            self._start()
        if self._optimizer_stepped and not self._in_step:
            self._finish()

    def leave_alone(self, failed: OptionForward, reason: str) -> None:
        """An option of the block failed: it and those of its kind run as they are without Tidetape from now on."""
        alike = [failed]
        for reference in self._forwards:
            forward = reference()
            if isinstance(forward, OptionForward) and forward is not failed and forward.kind == failed.kind:
                alike.append(forward)
        for forward in alike:
            forward.left_alone = reason
            self.native.drop_options(forward.number)
            self.unmanaged[forward.name] = reason
        _log.warning(
            "tidetape: %d block(s) run without Tidetape from now on, %s and those of its kind: %s", len(alike), failed.name, reason
        )

    def _on_optimizer_step(self) -> None:
        self._optimizer_stepped = True
        self.native.note_optimizer_step()

    def _finish_if_stepped(self) -> None:
        if self._optimizer_stepped and not self._explicit_steps:
            self._finish()

    def _finish(self) -> None:
        self._optimizer_stepped = False
        if self._detached:
            return
        start = time.thread_time()
        if self.collectives is not None and (figures := self.collectives.figures()) is not None:
            self.native.note_collectives(figures)
        self._stats = self.native.finish_step(self._boundary_seconds)
        held, active = self.native.held_generation(), self.native.active_generation()
        if self._agreement is None:
            agreed = held if held > active else None
        else:
            agreed = self._agreement.step(self._stats["step"], held, active)
        if agreed is not None and self.native.activate(agreed):
            self._say_activated()
            self._arm_pacing()
        self._boundary_seconds = time.thread_time() - start

    def _say_activated(self) -> None:
        plan = self.plan
        rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
        _log.info(
            "tidetape: rank %d runs plan %d from step %d on: peak %d bytes, %.3f ms of replay",
            rank,
            plan.generation,
            self._stats["step"] + 1,
            plan.step_peak_bytes,
            plan.replay_seconds * 1e3,
        )
        if not plan.feasible and self._said_infeasible != plan.memory_limit_bytes:
            self._said_infeasible = plan.memory_limit_bytes
            _log.warning(
                "tidetape: no plan keeps the step peak below %d bytes; the least possible is %d bytes, held by %s. Training goes "
                "on with the least-memory plan.",
                plan.memory_limit_bytes,
                plan.least_peak_bytes,
                plan.least_peak_holder,
            )

    def _arm_pacing(self) -> None:
        """The plan's pacing needs more than the plan: the collectives switch where every rank has come here."""
        plan = self.plan
        if self.collectives is not None and plan.pacing is not None and self._agreement is not None:
            self.collectives.arm(plan.generation, plan.pacing)

    # --- life ----------------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Connects, once, when the first step begins: torch.distributed is initialised by then in any script."""
        if self._started:
            return
        self._started = True
        if self._planner == "none":
            return
        distributed = dist.is_available() and dist.is_initialized()
        try:
            incarnation = new_incarnation(self._job)
            if distributed and self._planner != "local":
                self._agreement = Agreement()
            options = _native._C.LinkOptions()
            options.library = _native.library_path()
            options.planner = self._planner
            options.job, options.incarnation, options.incarnation_order = incarnation.job, incarnation.id, incarnation.order
            # An embedded planner plans for its own rank.
            shared = distributed and self._planner != "local"
            options.rank = dist.get_rank() if shared else 0
            options.world_size = dist.get_world_size() if shared else 1
            options.node = socket.gethostname()
            options.torch_version = torch.__version__
            options.device = "cpu"
            from . import __version__

            options.agent_version = __version__
            self.native.connect(options)
        except (RuntimeError, ImportError, OSError) as error:
            _log.warning("tidetape: no planner (%s); training goes on with nothing saved", error)

    def planner_state(self) -> tuple[bool, str]:
        """Whether the planner is connected, and the last error of the link."""
        return self.native.planner_state()

    def detach(self) -> None:
        """Leaves the model as it was. Graphs that are still alive can be run backward. Called again it does nothing."""
        if self._detached:
            return
        self._finish_if_stepped()
        self._detached = True
        for hook in self._hooks:
            hook.remove()
        for reference in self._forwards:
            forward = reference()
            if forward is not None:
                forward.remove()
        self._forwards.clear()
        if self._existing is not None:
            self._existing.restore()
        if self.collectives is not None:
            self.collectives.detach()
        if self._agreement is not None:
            self._agreement.close()
        self.native.disconnect(_CLOSE_SECONDS)
        _set_current(None)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_exception) -> None:
        self.detach()


def _audit_mode(setting: str):
    """TIDETAPE_AUDIT as the agent's audit mode. Raises ValueError on a word that it does not know."""
    modes = {"": "NEW_STRUCTURES", "1": "NEW_STRUCTURES", "0": "NEVER", "every-step": "EVERY_RECORDING"}
    if setting not in modes:
        raise ValueError(f'TIDETAPE_AUDIT is {setting!r}; it must be "every-step", "0" or empty')
    return getattr(_native._C.Audit, modes[setting])


def current() -> Session | None:
    """The session of this process, if one is attached: the allocator's counters are the process's, so there is at most one."""
    session = _current() if _current is not None else None
    return session if session is not None and not session._detached else None


def _set_current(session: Session | None) -> None:
    global _current
    _current = None if session is None else weakref.ref(session)
