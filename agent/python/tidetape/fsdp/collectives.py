"""The collectives of one attached model: they start with its first all-gather, when FSDP2's units are final."""

from __future__ import annotations

import itertools
import logging
import os
import socket
import weakref
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import _native
from . import hook, proof
from .layout_draft import LayoutDraft, host_ranks_of, parameters_after_forward, parameters_of
from .options import CollectiveOptions
from .pacing import Pacing
from .roll_call import RollCall
from .slot_plan import least_slots
from .unit_collectives import UnitCollectives
from .unit_gather import MainShards, UnitGather, shards_after_forward
from .unit_reduction import UnitReduction
from .units import Unit, find_units

_log = logging.getLogger("tidetape")

# Every start has a name of its own in the job's store; all ranks start the same groups in the same order.
_starts = itertools.count()


class Collectives:
    """Takes over the collectives of `model` until detach(). All methods are called on the training thread."""

    def __init__(self, model: nn.Module, options: CollectiveOptions, probes: bool = False):
        """Nothing happens on other ranks before the model's first all-gather. probes: measure the links then, for a planner; where
        not all ranks want it, none does."""
        self._model = weakref.ref(model)
        self.options = options
        self._probes = probes
        self.reasons: dict[str, str] = {}
        """Units that go the stock way, and why. Filled with the first all-gather, which never comes where one rank holds all units
        whole; what shows later is added."""
        self.covered_share = 0.0
        """Share of the gathered bytes that goes the zero-copy way."""
        self.layout_hash = ""
        self.proved_schedules: list[str] = []
        """In debug mode, one line a unit with the hashes of the schedules that were proved and are run."""
        self.arena_bytes: dict[str, int] = {}
        """Mapped bytes: "private" for this rank alone, "shared" once a host."""
        self.training_step = 0
        self._started = False
        self._units: list[UnitCollectives] = []
        self._plane = None
        self._pacing: Pacing | None = None
        # What the step peak counts of the arena: the rank's own part, and its share of the host's.
        self._counted_bytes = 0
        own = weakref.ref(self)
        self._step_hook = register_optimizer_step_post_hook(lambda *_: own() and own()._count_step())
        hook.install(self)

    @property
    def units(self) -> list[str]:
        """Names of the units that go the zero-copy way."""
        return [unit.name for unit in self._units]

    @property
    def pacing_generation(self) -> int:
        """Of the plan whose pacing is in force; 0: that of the start."""
        return self._pacing.generation if self._pacing is not None else 0

    @property
    def network_link(self) -> dict | None:
        """What the link to other hosts was measured to do: bytes_per_second, latency_seconds, put_seconds, windows (bytes in
        flight, 0 for no bound, and the rate with them). None where it was not measured."""
        return self._plane.network_link if self._plane is not None else None

    def arm(self, generation: int, pacing: dict) -> None:
        """This rank is willing to switch to the pacing of a plan; the ranks switch together, or not at all."""
        if self._pacing is not None:
            self._pacing.arm(generation, pacing)

    def figures(self):
        """What the collectives took since the last call, as the session's link takes it; None before they start."""
        return self._pacing.figures() if self._pacing is not None else None

    def say_reason(self, unit: str, reason: str) -> None:
        """Notes why a unit goes the stock way, once."""
        if unit not in self.reasons:
            self.reasons[unit] = reason
            _log.warning("tidetape: collectives of unit %s stay FSDP2's own: %s", unit, reason)

    def detach(self) -> None:
        """Leaves all later collectives to FSDP2. Parameters that are unsharded stay as they are. Called again it does nothing."""
        hook.remove(self)
        self._step_hook.remove()
        for unit in self._units:
            unit.unit.group.reduce_scatter_unused_params = unit.wants_zeros
            for param in unit.unit.params:
                hook.forget(param)
        self._units = []
        self._plane = None
        self._pacing = None
        _native._C.meter_count(-self._counted_bytes)
        self._counted_bytes = 0

    def start_with(self, params: Sequence) -> None:
        """Called with each all-gather of a unit that nobody knows. Starts where the unit is the model's."""
        model = self._model()
        if self._started or model is None:
            return
        units = find_units(model)
        if not any(unit.params is params for unit in units):
            return
        self._started = True
        try:
            self._start(units)
        except (RuntimeError, ValueError, OSError, TimeoutError) as error:
            if self.options.mode == "tide":
                raise RuntimeError(f"tidetape: collectives could not start: {error}") from error
            _log.warning("tidetape: collectives stay FSDP2's own: %s", error)
            self.reasons = {unit.name: f"collectives could not start: {error}" for unit in units}

    # --- start ---------------------------------------------------------------------------------------------------------------

    def _start(self, units: list[Unit]) -> None:
        members = max((unit.mesh.everybody for unit in units if not unit.reason), key=len, default=frozenset())
        for unit in units:
            if not unit.reason and not unit.mesh.everybody <= members:
                unit.reason = "its ranks are not all among those of the largest unit mesh"
        if members:
            with torch.inference_mode(False):
                self._join(units, sorted(members))
        for unit in units:
            if unit.reason:
                self.reasons[unit.name] = unit.reason
        for reason in sorted(set(self.reasons.values())):
            names = [name for name, why in self.reasons.items() if why == reason]
            _log.warning("tidetape: collectives of %d unit(s) stay FSDP2's own, from %s on: %s", len(names), names[0], reason)
        total = sum(unit.gathered_bytes for unit in units)
        self.covered_share = sum(unit.gathered_bytes for unit in units if not unit.reason) / total if total else 1.0
        if self._pacing is not None:
            self._pacing.covered_ratio = self.covered_share

    def _join(self, units: list[Unit], members: list[int]) -> None:
        """Makes the plane with all ranks of `members`, or raises on all of them."""
        # Pipeline stages start groups of their own, at the same count.
        name = f"tidetape-collectives/{next(_starts)}/{members[0]}-{members[-1]}-{len(members)}"
        roll = RollCall(name, members.index(dist.get_rank()), len(members), self.options.join_seconds)
        try:
            self._join_after(roll, units, members)
        except Exception:
            roll.part()
            raise

    def _join_after(self, roll: RollCall, units: list[Unit], members: list[int]) -> None:
        native = _native.collectives()
        hosts = roll.say("host", native.host_id())
        # Transport ranks of a host follow each other.
        order = sorted(range(len(members)), key=lambda member: (hosts.index(hosts[member]), member))
        ranks = {members[member]: rank for rank, member in enumerate(order)}
        host_of = {members[member]: hosts[member] for member in range(len(members))}
        error, layout, groups = "", None, []
        try:
            layout, groups = self._layout(units, ranks, host_of)
        except ValueError as problem:
            error = str(problem)
        self._agree_on_layout(roll, members, layout, error)
        if not groups:
            return
        options = native.JoinOptions()
        options.rank, options.size, options.name = ranks[dist.get_rank()], len(members), "transport"
        options.token = os.environ.get("TIDETAPE_GROUP_TOKEN", "")
        options.address = self._address() if len(set(hosts)) > 1 else ""
        options.join_seconds, options.wait_seconds = self.options.join_seconds, self.options.wait_seconds
        options.chunk_bytes = self.options.chunk_bytes
        per_host = host_ranks_of(list(host_of.values()))
        if all(said == "yes" for said in roll.say("probe", "yes" if self._probes else "no")):
            options.probe_per_host = per_host
        proves = "yes" in roll.say("proof-wanted", "yes" if proof.wanted(self.options.verify_schedules) else "no")
        if proves:
            options.groups_to_prove = proof.groups_of_all(roll, groups)
        plane, error = None, ""
        try:
            plane = native.DataPlane.join(layout, groups, roll.set, roll.wait, options)
        except (RuntimeError, ValueError) as problem:
            error = str(problem)
        for member, problem in enumerate(roll.say("verdict", error)):
            if problem:
                raise RuntimeError(f"rank {members[member]}: {problem}")
        covered = [unit for unit in units if not unit.reason]
        if proves:
            names = [unit.name for unit in covered]
            names += [f"{unit.name} after forward" for unit in covered if unit.mesh_after_forward is not None]
            self.proved_schedules = proof.compare(roll, plane, names)
            for line in self.proved_schedules:
                _log.info("tidetape: %s", line)
        self._adopt(plane, layout, covered)
        self._pacing = Pacing(plane, len(members), len(members) // per_host if per_host else 0, covered)
        self._counted_bytes = plane.private_bytes + plane.shared_bytes // hosts.count(native.host_id())
        _native._C.meter_count(self._counted_bytes)

    def _adopt(self, plane, layout, units: list[Unit]) -> None:
        self._plane = plane
        self.layout_hash = layout.hash
        self.arena_bytes = {"private": plane.private_bytes, "shared": plane.shared_bytes}
        after_forward = itertools.count(len(units))
        for index, unit in enumerate(units):
            smaller = None
            if unit.mesh_after_forward is not None:
                smaller = UnitGather(plane, next(after_forward), unit.params, shards_after_forward)
            collectives = UnitCollectives(
                unit,
                UnitGather(plane, index, unit.params, MainShards()),
                smaller,
                UnitReduction(plane, index, unit.params),
                unit.group.reduce_scatter_unused_params,
            )
            self._units.append(collectives)
            # A rank without a gradient must take part: the others wait for it.
            unit.group.reduce_scatter_unused_params = True
            for param in unit.params:
                hook.remember(param, self, collectives)
        _log.info(
            "tidetape: collectives of %d unit(s), layout %s, %d bytes of arena a rank and %d a host",
            len(units), layout.hash, plane.private_bytes, plane.shared_bytes,
        )  # fmt: skip

    def _layout(self, units: list[Unit], ranks: dict[int, int], host_of: dict[int, str]) -> tuple[object, list]:
        """The layout of the units that it covers, and their groups. Units that it does not cover get their reason."""
        host_ranks = host_ranks_of(list(host_of.values()))
        # Units that turn out to go the stock way only make it more than enough.
        slots = self.options.rotating_slots or least_slots([unit.residence for unit in units])
        while True:
            candidates = [unit for unit in units if not unit.reason]
            draft = LayoutDraft(ranks, host_of)
            for unit in candidates:
                draft.add(unit.name, unit.mesh, parameters_of(unit), keeps_slot=not unit.residence.takes_turns)
            for unit in candidates:
                if unit.mesh_after_forward is not None:
                    name = f"{unit.name} after forward"
                    draft.add(name, unit.mesh_after_forward, parameters_after_forward(unit), keeps_slot=True)
            layout = draft.layout(slots, host_ranks, self.options.staging_bytes)
            uncovered: dict[int, str] = {}
            for index, position, reason in layout.uncovered:
                uncovered.setdefault(index, f"'{candidates[index].names[position]}': {reason}")
            if not uncovered:
                return layout, draft.groups
            for index, reason in uncovered.items():
                candidates[index].reason = reason

    def _agree_on_layout(self, roll: RollCall, members: list[int], layout, error: str) -> None:
        """Raises on all ranks where one has no layout, or another than the first."""
        texts = roll.say("layout", f"error {error}" if error else f"hash {layout.hash}")
        roll.set(f"description/{members.index(dist.get_rank())}", b"" if layout is None else layout.description.encode())
        for member, text in enumerate(texts):
            if text.startswith("error "):
                raise RuntimeError(f"rank {members[member]}: {text.removeprefix('error ')}")
        for member, text in enumerate(texts):
            if text != texts[0]:
                first, other = (roll.wait(f"description/{who}", 10) or b"" for who in (0, member))
                raise RuntimeError(
                    _native.collectives().compare_layouts(first.decode(), other.decode(), members[0], members[member])
                )

    def _address(self) -> str:
        if self.options.address is not None:
            return self.options.address
        master = socket.gethostbyname(os.environ.get("MASTER_ADDR", "127.0.0.1"))
        return _native.collectives().address_towards(master)

    def _count_step(self) -> None:
        self.training_step += 1
