"""Debug mode: the schedules of all ranks are proved at the start, and those that the ranks run are compared with the proved ones.

Each rank makes and proves the schedules of all ranks of its meshes, and its executor gets the proved object itself. That the other
ranks run theirs is seen by hash: each says what it is about to run.
"""

from __future__ import annotations

import json
import os

from .. import _native
from .roll_call import RollCall

VARIABLE = "TIDETAPE_VERIFY_SCHEDULES"


def wanted(option: bool | None) -> bool:
    """The user's word, or the environment's: 1 where schedules are to be proved."""
    return os.environ.get(VARIABLE, "0") not in ("", "0") if option is None else option


def groups_of_all(roll: RollCall, groups: list) -> list[list]:
    """By unit, the groups of all ranks of its mesh. `groups`: by unit, the own rank's. Collective."""
    own = [[group.shards, group.per_node, group.self, group.replicas, group.replica] for group in groups]
    said = [json.loads(text) for text in roll.say("groups", json.dumps(own))]
    everybody = []
    for unit in range(len(groups)):
        of_rank = {}
        for of_member in said:
            shards, per_node, self, replicas, replica = of_member[unit]
            of_rank[shards[self]] = _native.collectives().Group(shards, per_node, self, replicas, replica)
        everybody.append([of_rank[rank] for rank in sorted(_mesh(of_rank, groups[unit]))])
    return everybody


def compare(roll: RollCall, plane, names: list[str]) -> list[str]:
    """Raises RuntimeError on all ranks where one runs another schedule than was proved for it. Else one line a unit, with the
    hashes of what this rank runs. Collective."""
    own = [plane.schedule_hashes(unit) for unit in range(len(names))]
    said = dict(json.loads(text) for text in roll.say("schedules", json.dumps([plane.rank, own])))
    wrong = [
        f"rank {rank} of the group runs schedules {said[rank][unit]} for unit {name}, and {proved} were proved"
        for unit, name in enumerate(names)
        for rank, proved in plane.proved_hashes(unit).items()
        if said[rank][unit] != proved
    ]
    verdicts = roll.say("proof", wrong[0] if wrong else "")
    if any(verdicts):
        raise RuntimeError(next(filter(None, verdicts)))
    return [
        f"unit {name}: schedules proved, all-gather {hashes.split()[0]}, reduce-scatter {hashes.split()[1]}"
        for name, hashes in zip(names, own, strict=True)
    ]


def _mesh(of_rank: dict, own) -> set[int]:
    """Ranks that share or copy a unit with the own one, and those that do so with them."""
    found: set[int] = set()
    new = {own.shards[own.self]}
    while new:
        found |= new
        new = {other for rank in new for other in (*of_rank[rank].shards, *of_rank[rank].replicas)} - found
    return found
