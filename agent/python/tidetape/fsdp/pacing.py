"""How the collectives of one plane pace themselves: what the planner hears of them, and what it asks of them."""

from __future__ import annotations

import collections
import logging
from collections.abc import Sequence

from .. import _native
from .units import Unit

_log = logging.getLogger("tidetape")


class Pacing:
    """One rank's side. Called on the training thread."""

    def __init__(self, plane, ranks: int, nodes: int, units: Sequence[Unit]):
        """`nodes`: hosts of the plane's ranks; 0 where they have different numbers of them."""
        self._plane = plane
        self._ranks = ranks
        self._nodes = nodes
        # By size, so that ranks of one model say the same.
        self._units = sorted(collections.Counter(unit.gathered_bytes for unit in units).items())
        self._said = ""
        self.covered_ratio = 1.0
        """Share of the model's gathered bytes that goes the zero-copy way."""

    @property
    def generation(self) -> int:
        return self._plane.pacing_generation

    def arm(self, generation: int, pacing: dict) -> None:
        """`pacing`: as in Plan.pacing. Where no sound schedule can be made of it, the ranks keep the one that they have;
        said once."""
        try:
            self._plane.arm(
                generation,
                pacing["chunk_bytes"],
                pacing["puts_in_flight"],
                pacing["chunk_gap_seconds"],
                pacing["algorithm"] == "ring",
                pacing["staging_slots"],
            )
        except (RuntimeError, ValueError) as error:
            if self._said != str(error):
                self._said = str(error)
                _log.warning("tidetape: the collectives keep their pacing; plan %d cannot be followed: %s", generation, error)

    def figures(self):
        """What the collectives took since the last call, and what the links can do: a _C.CollectiveFigures."""
        counts = self._plane.take_counts()
        figures = _native._C.CollectiveFigures()
        figures.gather_seconds, figures.reduce_seconds = counts.gather_seconds, counts.reduce_seconds
        figures.covered_bytes, figures.network_bytes = counts.gathered_bytes, counts.network_bytes
        figures.covered_ratio = self.covered_ratio
        figures.pacing_generation = self.generation
        figures.ranks, figures.nodes = self._ranks, self._nodes
        figures.local, figures.network = _figures_of(self._plane.local_link), _figures_of(self._plane.network_link)
        figures.units = self._units
        return figures


def _figures_of(link: dict | None):
    return None if link is None else _native._C.LinkFigures(**link)
