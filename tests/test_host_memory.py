"""Plans that use host memory: the planner hears of it, moves what only a block holds, and predicts what that does."""

import time

import pytest
import torch

from tests.processes import run_program
from tests.small_blocks import WIDTH, stack
from tests.training import History, keep, require_same

ROWS = 4096
VALUE_BYTES = ROWS * WIDTH * 4
BLOCKS = 5
ROOM = 100 * VALUE_BYTES
STEPS_UNDER_A_PLAN = 4
SLOW_SECONDS = 0.01


def body(block, x):
    return block.linear(x).tanh().exp() * x.sin()


class Keeping(torch.nn.Module):
    """A model that keeps its blocks' inputs, as models do that return their hidden states."""

    def __init__(self):
        super().__init__()
        self.blocks = stack(body, BLOCKS).blocks

    def forward(self, x):
        kept = []
        for block in self.blocks:
            kept.append(x)
            x = block(x)
        return x.square().mean() + sum(h.mean() for h in kept)


def batch(step):
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(step))


def run_step(model, step, history):
    loss = model(batch(step))
    loss.backward()
    keep(history, model, loss)


def train_plainly(build, steps):
    model = build()
    history = History()
    for step in range(steps):
        run_step(model, step, history)
        model.zero_grad()
    return history


def train_under_a_plan(model, session):
    """(history, step peaks under the plan): steps until a plan is in force, and some more."""
    history = History()
    peaks = []
    deadline = time.monotonic() + 90
    while len(peaks) < STEPS_UNDER_A_PLAN:
        with session.step():
            run_step(model, len(history.losses), history)
        model.zero_grad()
        if session.stats()["generation"] > 0:
            peaks.append(session.stats()["step_peak_bytes"])
        else:
            time.sleep(0.01)  # the planner is a thread
        assert time.monotonic() < deadline, "no plan"
    return history, peaks


def plan_with(attach, room, build=lambda: stack(body, BLOCKS), limit="min"):
    """(model, session, step peaks under its plan): the peaks are as it predicts, and all steps plain training's to the bit."""
    model = build()
    session = attach(model, blocks="blocks.*", memory_limit=limit, host_memory_limit=room)
    history, peaks = train_under_a_plan(model, session)
    require_same(history, train_plainly(build, len(history.losses)))
    assert session.passed_through() == {}
    assert 0.99 * session.plan.step_peak_bytes <= min(peaks)
    assert max(peaks) <= session.plan.step_peak_bytes
    assert session.stats()["moved_bytes"] == session.plan.moved_bytes
    return model, session, peaks


def plan_of(attach, room, build=lambda: stack(body, BLOCKS), limit="min"):
    """The same plan, for tests that look at several."""
    _, session, _ = plan_with(attach, room, build, limit)
    session.detach()
    return session.plan


def moved_inputs(session):
    """How many block inputs the plan moves."""
    return sum(", input, " in line and "moved to host memory" in line for line in session.explain().splitlines())


def test_inputs_wait_in_host_memory_below_the_least_peak_of_replay(attach):
    without = plan_of(attach, None)
    assert without.moved_bytes == 0
    _, session, _ = plan_with(attach, ROOM)
    plan = session.plan
    assert plan.step_peak_bytes <= without.step_peak_bytes - VALUE_BYTES
    assert plan.moved_bytes == sum(block.moved_bytes for block in plan.blocks) > 0
    assert plan.move_seconds > 0
    assert moved_inputs(session) > 0
    # The first block's input is the caller's, too, and the last one's would have to come back at once.
    assert plan.blocks[0].moved == 0


def test_steps_that_move_are_measured_as_others_are(attach):
    """The profiles of later steps ask for no other plan."""
    model, session, peaks = plan_with(attach, ROOM)
    generation = session.plan.generation
    for step in range(3 * 64):  # the period in which steps are profiled again
        with session.step():
            model(batch(step)).backward()
        model.zero_grad()
        if step > 0:  # to the first one belongs what ran since the last step
            assert session.stats()["step_peak_bytes"] <= max(peaks)
    assert session.plan.generation == generation


def test_the_hosts_limit_holds(attach):
    _, session, _ = plan_with(attach, VALUE_BYTES + 5)
    assert session.plan.moved_bytes == VALUE_BYTES


def test_inputs_that_the_model_keeps_stay(attach):
    _, session, _ = plan_with(attach, ROOM, Keeping)
    assert moved_inputs(session) == 0


@pytest.fixture
def slow():
    """An op that takes far longer than moving what it makes."""
    library = torch.library.Library("tidetape_slow", "DEF")
    library.define("sin(Tensor x) -> Tensor")

    def slow_sin(x):
        time.sleep(SLOW_SECONDS)
        return x.sin()

    library.impl("sin", slow_sin, "CPU")
    yield torch.ops.tidetape_slow.sin
    library._destroy()


def test_values_move_where_replay_takes_longer(attach, slow):
    def slow_body(block, x):
        h = block.linear(x)
        return h * slow(h.detach())

    def build():
        return stack(slow_body, BLOCKS)

    replayed = plan_of(attach, None, build)
    assert replayed.replay_seconds > (BLOCKS - 1) * SLOW_SECONDS
    moving = plan_of(attach, ROOM, build, replayed.step_peak_bytes)
    assert moving.moved_bytes > 0
    assert moving.replay_seconds < SLOW_SECONDS


@pytest.mark.parametrize("value", ["min", "max", 0, -1, "-3GiB", True, 1.5])
def test_bad_limits_are_named(attach, value):
    with pytest.raises(ValueError, match="host_memory_limit"):
        attach(stack(body), blocks="blocks.*", host_memory_limit=value)


def test_without_a_place_nothing_moves_and_it_is_said(tmp_path):
    done = run_program(
        """
        from tests import test_host_memory
        import tidetape

        _, session, _ = test_host_memory.plan_with(tidetape.attach, test_host_memory.ROOM)
        assert session.plan.moved_bytes == 0
        """,
        TIDETAPE_HOST_DIR=str(tmp_path / "missing"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no value is moved to host memory") == 1
