"""Run by torchrun: trains a small language model with FSDP2 and Tidetape until a file appears, one log line a step and rank.

torchrun --nproc-per-node 2 tests/programs/train_ranks.py --planner HOST:PORT --limit BYTES --folder FOLDER --stop FILE
"""

import argparse
import functools
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM

import tidetape

CONFIG = {
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 256,
    "use_cache": False,
}
TOKENS = (2, 64)
POLICIES = {"full": functools.partial(checkpoint, use_reentrant=False), "none": None}


def main():
    options = parse_options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", **CONFIG)).train()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    limit = (options.folder / "limit").read_text()
    policies = {"model.layers.[12]": POLICIES} if options.policies else None
    session = tidetape.attach(model, memory_limit=limit, planner=options.planner, collectives=options.collectives, options=policies)
    generator = torch.Generator().manual_seed(rank)
    with open(options.folder / f"rank{rank}.jsonl", "w", encoding="utf-8", buffering=1) as log:
        while (orders := agreed_orders(options.folder)) != "stop":
            if orders != limit:
                limit = orders
                session.set_memory_limit(limit)
            tokens = torch.randint(CONFIG["vocab_size"], TOKENS, generator=generator)
            cpu = time.process_time()
            with session.step():
                loss = model(input_ids=tokens, labels=tokens).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            cpu = time.process_time() - cpu
            line = session.stats() | {"rank": rank, "time": time.time(), "cpu_seconds": cpu, "loss": loss.item()}
            if session.collectives is not None:
                line["pacing_generation"] = session.collectives.pacing_generation
            log.write(json.dumps(line, default=list) + "\n")
    session.detach()
    dist.destroy_process_group()


def agreed_orders(folder):
    """ "stop" or the memory limit, as rank 0 finds them: all ranks hear the same."""
    orders = ["stop" if (folder / "stop").exists() else (folder / "limit").read_text()] if dist.get_rank() == 0 else [None]
    dist.broadcast_object_list(orders, src=0)
    return orders[0]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--planner", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--collectives", default="stock")
    parser.add_argument("--policies", action="store_true", help="two of the layers run by options")
    return parser.parse_args()


if __name__ == "__main__":
    main()
