"""Random planning problems as tidetapectl reads them: tapes of 50 to 200 ops with every kind of storage and op."""

import random


def random_tape(seed: int, ops: int) -> dict:
    """A tape like a layer's: chains with branches, some ops in place or into slices, some kept, recomputed or never replayed.

    Costs are whole nanoseconds and bytes whole, so that optima can be compared exactly.
    """
    draw = random.Random(seed)
    storages = [{"kind": "KIND_BLOCK_INPUT", "bytes": "4096"}, {"kind": "KIND_PARAMETER", "bytes": "65536"}]
    records = []
    # Kinds that take choices away stay rare, or little would be left to choose.
    for _ in range(ops):
        recent = [len(storages) - 1 - draw.randrange(min(len(storages), 6 if draw.random() < 0.8 else 40)) for _ in range(2)]
        reads = sorted(set(recent[: draw.choice((1, 1, 2))]))
        op = {"name": "op", "cost_seconds": draw.choice((2, 5, 20, 300)) * draw.randrange(500, 1500) * 1e-9, "reads": reads}
        own = [s for s in reads if storages[s]["kind"] == "KIND_INTERMEDIATE"]
        if own and draw.random() < 0.06:
            op["writes"] = [own[0]]
        else:
            op["writes"] = [_add_storage(draw, storages) for _ in range(1 + (draw.random() < 0.1))]
            if storages[-2]["kind"] == "KIND_INTERMEDIATE" and draw.random() < 0.03:
                op["writes"].append(len(storages) - 2)
        op["replayable"] = draw.random() >= 0.02
        records.append(op)
    consumed = [s for s, storage in enumerate(storages) if storage["kind"] == "KIND_INTERMEDIATE" and draw.random() < 0.5]
    return {"name": f"random {seed}", "storages": storages, "ops": records, "consumed": consumed[::-1]}


def _add_storage(draw: random.Random, storages: list) -> int:
    fate = draw.random()
    storages.append(
        {
            "kind": "KIND_INTERMEDIATE",
            "bytes": str(draw.choice((64, 1024, 4096)) * draw.randrange(1, 40)),
            "must_save": fate < 0.02,
            "must_recompute": 0.02 <= fate < 0.04,
            "held_anyway": draw.random() < 0.04,
        }
    )
    return len(storages) - 1


def problem_of(tapes: list[dict]) -> dict:
    """A step of one block a tape, whose peak is what its blocks save: no block's own peak ever binds."""
    nothing = [{"reads": [], "releases": [], "gradient_live_bytes": str(-(1 << 50)), "start_live_bytes": str(-(1 << 50))}]
    return {
        "memory_limit_bytes": "0",
        "tapes": [{**tape, "backward": nothing} for tape in tapes],
        "blocks": [{"name": f"layers.{t}", "tape": t} for t in range(len(tapes))],
    }
