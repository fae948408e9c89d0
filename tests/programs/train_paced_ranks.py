"""One rank that trains a small model with FSDP2 over Tidetape's collectives until a file appears, one log line a step.

    RANK=0 WORLD_SIZE=2 train_paced_ranks.py --planner HOST:PORT --folder FOLDER

Every generation has a pacing of its own here, whatever the planner says: chunks of another size, so another number of messages.
Ranks under two generations could not gather together.
"""

import argparse
import json
import logging
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import tidetape
from tidetape.fsdp.pacing import Pacing

WIDTH = 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


def arm_by_generation(self, generation, pacing, arm=Pacing.arm):
    arm(self, generation, pacing | {"chunk_bytes": 1024 << generation % 6, "staging_slots": 2 + generation % 3})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--planner", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    Pacing.arm = arm_by_generation
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{options.folder}/store", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.ModuleList(Block() for _ in range(4))
    for block in model:
        fully_shard(block)
    model = nn.Sequential(*model)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    limit = "90%"
    session = tidetape.attach(
        model,
        memory_limit=limit,
        planner=options.planner,
        collectives=tidetape.CollectiveOptions("tide", wait_seconds=20.0),
    )
    with open(options.folder / f"rank{rank}.jsonl", "w", encoding="utf-8", buffering=1) as log:
        while (orders := agreed_orders(options.folder)) != "stop":
            if orders != limit:
                limit = orders
                session.set_memory_limit(limit)
            with session.step():
                loss = model(torch.ones(4, WIDTH) * (rank + 1)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            line = {
                "step": session.stats()["step"],
                "generation": session.stats()["generation"],
                "pacing_generation": session.collectives.pacing_generation,
                "loss": loss.item(),
            }
            log.write(json.dumps(line) + "\n")
    session.detach()
    dist.destroy_process_group()


def agreed_orders(folder):
    """ "stop" or the memory limit, as rank 0 finds them: all ranks hear the same."""
    orders = ["stop" if (folder / "stop").exists() else (folder / "limit").read_text()] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(orders, src=0)
    return orders[0]


if __name__ == "__main__":
    main()
