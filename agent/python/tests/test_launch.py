import os
import subprocess
import sys
import textwrap

import pytest

import tidetape
from tidetape import launch
from tidetape.launch import Settings

MODEL = """
import sys
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

class Teacher(Model):
    pass

x = torch.ones(2, 4)
"""


class Session:
    detached = False

    def detach(self):
        self.detached = True


@pytest.fixture
def attached(monkeypatch):
    """What attach() was called with, in a launch without a planner or a tape."""
    calls = []

    def attach(model, **settings):
        session = Session()
        calls.append((model, settings, session))
        return session

    monkeypatch.setattr(tidetape, "attach", attach, raising=False)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    return calls


def run(tmp_path, script, *arguments):
    (tmp_path / "train.py").write_text(MODEL + textwrap.dedent(script))
    launch.main([*arguments, str(tmp_path / "train.py"), "--lr", "3"])


def test_attaches_once_just_before_the_first_forward_for_training(tmp_path, attached):
    run(
        tmp_path,
        """
        model = Model().eval()
        with torch.no_grad():
            model(x)
        model(x)
        import tidetape
        model.train()
        for _ in range(2):
            model(x).sum().backward()
        assert sys.argv[1:] == ["--lr", "3"] and __name__ == "__main__"
        """,
        "--memory-limit=3GiB",
        "--host-memory-limit=1GiB",
        "--blocks=layers.*",
        "--planner=there:50",
    )
    ((model, settings, session),) = attached
    assert type(model).__name__ == "Model"
    assert settings == {
        "blocks": ["layers.*"],
        "memory_limit": "3GiB",
        "host_memory_limit": "1GiB",
        "planner": "there:50",
        "job": None,
        "existing": "replace",
    }
    assert session.detached


def test_the_class_chooses_among_several_models(tmp_path, attached):
    script = "student, teacher = Model(), Teacher(); teacher(x); student(x)"
    run(tmp_path, script)
    run(tmp_path, script, "--model=Teacher")
    run(tmp_path, script, "--model", r"^__main__\.Model$")
    # A subclass fits by its base's name, so the teacher, which runs first, is a Model.
    assert [type(model).__name__ for model, _, _ in attached] == ["Teacher", "Teacher", "Teacher"]


def test_a_frozen_model_is_passed_over(tmp_path, attached):
    run(tmp_path, "frozen = Teacher().requires_grad_(False); frozen(x); Model()(x)")
    assert [type(model).__name__ for model, _, _ in attached] == ["Model"]


def test_ddp_and_fsdp2_are_applied_before(tmp_path, attached):
    run(
        tmp_path,
        """
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        model = Model()
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        model(x).sum().backward()
        dist.destroy_process_group()
        """,
    )
    run(
        tmp_path,
        """
        import torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        nn.parallel.DistributedDataParallel(Model())(x).sum().backward()
        dist.destroy_process_group()
        """,
    )
    assert [type(model).__name__ for model, _, _ in attached] == ["FSDPModel", "DistributedDataParallel"]


def test_dry_run_says_what_it_would_do_and_attaches_nothing(tmp_path, attached, capsys):
    run(tmp_path, "Model()(x)", "--dry-run", "--memory-limit=1GiB")
    assert attached == []
    said = capsys.readouterr().err
    assert "would attach to Model: 3 blocks, layers.0 … layers.2" in said
    assert "memory limit 1GiB (1,073,741,824 bytes), planner local" in said


def test_it_says_why_nothing_was_attached(tmp_path, attached, capsys):
    run(tmp_path, "nn.Linear(4, 4)(x)")
    assert "nothing was attached: no repeated blocks in Linear" in capsys.readouterr().err
    run(tmp_path, "Model()(x)", "--model=Llama")
    assert "nothing was attached: no module that trained fits --model 'Llama'" in capsys.readouterr().err
    run(tmp_path, "")
    assert "nothing was attached: no module ran forward for training" in capsys.readouterr().err


def test_the_scripts_failure_is_its_own_and_detaches(tmp_path, attached):
    with pytest.raises(SystemExit, match="7"):
        run(tmp_path, "Model()(x); sys.exit(7)")
    assert attached[0][2].detached


def test_the_environment_carries_the_same_settings(monkeypatch):
    given = {
        "MODEL": "Qwen",
        "MEMORY_LIMIT": "min",
        "HOST_MEMORY_LIMIT": "1GiB",
        "JOB": "j",
        "EXISTING": "keep",
        "DISABLE": "1",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"TIDETAPE_{name}", value)
    expected = Settings(model="Qwen", memory_limit="min", host_memory_limit="1GiB", job="j", existing="keep", disable=True)
    assert launch.parse_arguments(["train.py"]) == (expected, False, ["train.py"])
    settings, as_module, command = launch.parse_arguments(["--memory-limit=max", "--module", "pkg.train", "--model", "x"])
    assert (settings.memory_limit, settings.model, as_module, command) == ("max", "Qwen", True, ["pkg.train", "--model", "x"])
    monkeypatch.setenv("TIDETAPE_DISABLE", "0")
    assert not Settings.from_environment().disable


def test_disabled_it_only_runs_the_script(tmp_path, attached, monkeypatch, capsys):
    monkeypatch.setenv("TIDETAPE_DISABLE", "1")
    run(tmp_path, "Model()(x)")
    assert (attached, capsys.readouterr().err) == ([], "")


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("--memory-limit=lots", "no amount of memory"),
        ("--planner=there", '"local" or host:port'),
        ("--model=(", "no regular expression"),
        ("--existing=ignore", "invalid choice"),
    ],
)
def test_settings_are_checked_before_the_script_runs(argument, said, capsys):
    with pytest.raises(SystemExit, match="2"):
        launch.main([argument, "absent.py"])
    assert said in capsys.readouterr().err


def test_a_script_of_two_ranks_trains_the_same_attached_and_not(tmp_path):
    (tmp_path / "train.py").write_text(
        MODEL
        + textwrap.dedent(
            """
            import os
            import torch.distributed as dist
            from torch.distributed.fsdp import fully_shard
            dist.init_process_group("gloo")
            torch.manual_seed(0)
            model = Model()
            for layer in model.layers:
                fully_shard(layer)
            fully_shard(model)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            for step in range(6):
                loss = model(x + step + dist.get_rank()).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                with open(f"{sys.argv[1]}.{dist.get_rank()}", "a") as file:
                    print(loss.item().hex(), file=file)
            dist.destroy_process_group()
            """
        )
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]

    def losses(name, *command):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        command = [*torchrun, *command, str(tmp_path / "train.py"), str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        # What a rank said comes before what torchrun says of it.
        assert done.returncode == 0, f"{name}: {done.stderr[:2000]}"
        return [(tmp_path / f"{name}.{rank}").read_text().split() for rank in range(2)], done.stderr

    plain, _ = losses("plain")
    attached, said = losses("attached", "-m", "tidetape.launch", "--memory-limit=min")
    assert [len(steps) for steps in plain] == [6, 6] and attached == plain
    assert "nothing was attached" not in said
