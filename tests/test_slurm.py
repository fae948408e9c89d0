"""The Slurm example, run as Slurm would run it on one node."""

import subprocess
import sys

import pytest

from tests.planner_server import PlannerServer
from tests.processes import ROOT, environment

SCRIPT = ROOT / "deploy" / "slurm" / "train.sbatch"
JOB_ID = "4711"
# Reports its last step late enough for a look at the job.
TRAINING = """
import time
import torch

class Block(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32))

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(8):
    model(torch.ones(4, 32)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
time.sleep(1)
torch.distributed.destroy_process_group()
"""


def test_shellcheck_has_nothing_to_say():
    done = subprocess.run(["shellcheck", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def programs(tmp_path):
    """srun, scontrol and torchrun as a node has them: the first runs a command on each of its nodes, here on this one."""
    folder = tmp_path / "programs"
    folder.mkdir()
    bodies = {
        "srun": 'exec "$@"',
        "scontrol": '[ "$*" = "show hostnames localhost" ] && echo localhost',
        "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"',
    }
    for name, body in bodies.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    return folder


def test_the_script_trains_under_the_planner(server_program, tidetapectl, programs, tmp_path):
    server = PlannerServer(server_program, tidetapectl)
    server.start()
    try:
        (tmp_path / "train.py").write_text(TRAINING)
        slurm = {"SLURM_JOB_ID": JOB_ID, "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "localhost", "SLURM_GPUS_ON_NODE": "2"}
        given = environment(TIDETAPE_PLANNER=server.address, HOME=str(tmp_path), **slurm)
        given["PATH"] = f"{programs}:{given['PATH']}"
        done = subprocess.run(
            ["bash", SCRIPT, tmp_path / "train.py"], cwd=tmp_path, env=given, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        (job,) = server.ask("jobs")["jobs"]
        assert (job["job"], job["world_size"]) == (JOB_ID, 2)
        assert int(job["step"]) > 0
    finally:
        server.stop()


def test_without_a_script_it_says_how_to_use_it():
    done = subprocess.run(["bash", SCRIPT], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: sbatch")
