"""Blocks that run by options instead of with a tape: a user's own policies, and compiled blocks, planned beside taped ones."""

import functools
import gc
import logging
import time

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

import tidetape
from tests.planner_server import PlannerServer
from tests.rank_training import RankTraining
from tests.training import History, keep, require_same, train

ROWS, WIDTH, BLOCKS = 512, 64, 6

POLICIES = {
    "full": functools.partial(checkpoint, use_reentrant=False),
    "matmuls": functools.partial(
        checkpoint,
        use_reentrant=False,
        context_fn=functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default]),
    ),
    "none": None,
}
BUDGETS = ["activation_memory_budget=0", "activation_memory_budget=0.5", "activation_memory_budget=1"]


class Block(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = dropout

    def forward(self, x):
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), self.dropout)


class Model(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, 4 * WIDTH)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x).log_softmax(-1).square().mean()


def build(dropout=0.0):
    torch.manual_seed(0)
    return Model(dropout).train()


def inputs(step):
    return {"x": torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(step))}


def compiled(build, compile_block, blocks=range(BLOCKS)):
    """A model that `build` makes, with these blocks compiled."""
    torch._dynamo.reset()
    model = build()
    for number in blocks:
        model.blocks[number] = compile_block(model.blocks[number])
    return model


def as_wrapper(block, backend="aot_eager_decomp_partition"):
    return torch.compile(block, backend=backend)


def in_place(block, backend="aot_eager_decomp_partition"):
    block.compile(backend=backend)
    return block


def train_until_planned(model, session, above=0, most_steps=80):
    """Steps until a plan above the generation is in force. Returns the optimizer."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(most_steps):
        step_once(model, session, optimizer, step)
        if session.plan.generation > above:
            return optimizer
        # The planner plans beside the training.
        time.sleep(0.01)
    pytest.fail(f"no plan above generation {above} in {most_steps} steps: {session.planner_state()}, {session.passed_through()}")


def step_once(model, session, optimizer, step):
    with session.step():
        model(**inputs(step)).backward()
        optimizer.step()
        optimizer.zero_grad()


def peaks_of_all_or_nothing(attach, build, options):
    """(least, most) step peak: by the leanest options and with nothing saved, and by the most generous ones and everything."""
    peaks = []
    for limit in ("min", "max"):
        gc.collect()
        model = build()
        session = attach(model, memory_limit=limit, planner="none", options=options)
        train(model, inputs, 4, session)
        peaks.append(session.stats()["step_peak_bytes"])
        session.detach()
    return peaks


def require_limits_kept(attach, build, options=None):
    """Under three limits: the peak that the plan predicts is measured, and holds the limit. Returns the plans."""
    least, most = peaks_of_all_or_nothing(attach, build, options)
    assert most > 1.5 * least
    plans = []
    for share in (0.25, 0.5, 0.75):
        gc.collect()
        limit = int(least + share * (most - least))
        model = build()
        session = attach(model, memory_limit=limit, options=options)
        optimizer = train_until_planned(model, session)
        plan = session.plan
        assert plan.feasible and plan.step_peak_bytes <= limit
        peaks = []
        for step in range(4):
            step_once(model, session, optimizer, step)
            peaks.append(session.stats()["step_peak_bytes"])
        if session.plan.generation == plan.generation:
            # The first step by another option compiles.
            assert max(peaks[1:]) <= limit
            assert abs(plan.step_peak_bytes - max(peaks[1:])) <= 0.01 * max(peaks[1:]), (plan, peaks, session.explain())
        plans.append(plan)
        session.detach()
        # What is left of this one would be a base of the next.
        del model, optimizer, session
    return plans


# --- a user's own policies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", POLICIES)
def test_every_policy_gives_plain_trainings_numbers(attach, option):
    model = build(dropout=0.2)
    session = attach(model, options={"blocks.*": POLICIES}, planner="none")
    session.impose({f"blocks.{number}": option for number in range(BLOCKS)})
    require_same(train(model, inputs, 4, session), train(build(dropout=0.2), inputs, 4))


def test_plans_change_nothing_but_memory_and_time(attach):
    model = build(dropout=0.2)
    session = attach(model, options={"blocks.[0-3]": POLICIES}, memory_limit="90%")
    got = train(model, inputs, 30, session)
    require_same(got, train(build(dropout=0.2), inputs, 30))
    assert [block.option for block in session.plan.blocks[:4]] == ["none"] * 4
    assert session.plan.blocks[4].option == ""


def test_policies_are_planned_beside_tapes(attach):
    plans = require_limits_kept(attach, build, {"blocks.[135]": POLICIES})
    assert plans[0].saved_bytes < plans[-1].saved_bytes
    assert any(block.saved for plan in plans for block in plan.blocks if not block.option)


@pytest.mark.parametrize("which", ["blocks.[135]", "blocks.[024]", "blocks.*"])
def test_an_input_that_all_blocks_read(attach, which):
    """Its gradient is there only when all of them have run backward, so that they end with the next one's beginning."""

    class Reader(Block):
        def forward(self, x, shared):
            return super().forward(x * shared.tanh())

    class Readers(Model):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Reader(0.0) for _ in range(BLOCKS))

        def forward(self, x):
            shared = x = self.first(x)
            for block in self.blocks:
                x = block(x, shared)
            return self.head(x).log_softmax(-1).square().mean()

    def build_readers():
        torch.manual_seed(0)
        return Readers()

    require_limits_kept(attach, build_readers, {which: POLICIES})


def test_equal_blocks_are_measured_once(attach):
    """The last of them tries what is not the leanest; before the plan, the others run by that alone."""
    calls = []

    def counted(name):
        def way(forward, *args):
            calls.append((name, forward.args[0]))
            return POLICIES[name](forward, *args) if POLICIES[name] else forward(*args)

        return way

    model = build()
    session = attach(model, options={"blocks.*": {name: counted(name) for name in POLICIES}}, memory_limit="90%")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    while session.plan.generation == 0:
        step_once(model, session, optimizer, step)
        step += 1
        assert step < 60
        time.sleep(0.01)
    names = {block: name for name, block in model.named_modules()}
    assert {names[block] for name, block in calls if name != "full"} == {"blocks.5"}
    # Each once to warm up, and three times to measure.
    assert {name: sum(called == name for called, _ in calls) for name in ("matmuls", "none")} == {"matmuls": 4, "none": 4}


def test_a_policy_that_fails_leaves_its_blocks_as_they_are(attach, caplog):
    def broken(forward, *args):
        forward(*args)
        raise RuntimeError("no such kernel\nand more")

    model = build(dropout=0.2)
    with caplog.at_level(logging.WARNING, "tidetape"):
        session = attach(model, options={"blocks.[0-2]": {"full": POLICIES["full"], "broken": broken}}, memory_limit="90%")
        got = train(model, inputs, 20, session)
    require_same(got, train(build(dropout=0.2), inputs, 20))
    reason = "its option 'broken' failed: RuntimeError: no such kernel"
    assert session.unmanaged == {f"blocks.{number}": reason for number in range(3)}
    assert [reason in record.message for record in caplog.records].count(True) == 1
    assert session.passed_through()[reason] > 0
    # The blocks with tapes are planned.
    assert [block.name for block in session.plan.blocks] == ["blocks.3", "blocks.4", "blocks.5"]


def test_what_the_model_refuses_is_raised_and_no_option_is_blamed(attach):
    model = build()
    session = attach(model, options={"blocks.*": POLICIES}, planner="none")
    with pytest.raises(RuntimeError, match="normalized_shape"):
        model.blocks[0](torch.randn(3, WIDTH + 1, requires_grad=True))
    assert session.unmanaged == {}
    require_same(train(model, inputs, 3, session), train(build(), inputs, 3))


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"blocks.*": {}}, "1 to 64 ways"),
        ({"blocks.*": POLICIES, "blocks.0": POLICIES}, "two entries for the block blocks.0"),
        ({"blocks.*": {"full": "yes"}}, "is a str"),
        ({"blocks.*": {"": None}}, "has the name ''"),
        ({"layers.*": POLICIES}, "matches 'layers"),
    ],
)
def test_bad_options_are_refused(attach, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        attach(build(), options=options)


def test_imposing_an_unknown_option_is_refused(attach):
    session = attach(build(), options={"blocks.0": POLICIES}, planner="none")
    with pytest.raises(ValueError, match=r"blocks\.0 has no option 'half'; it has full, matmuls, none"):
        session.impose({"blocks.0": "half"})


def test_passes_without_gradients_and_abandoned_graphs(attach):
    calls = []

    def counted(forward, *args):
        calls.append(torch.is_grad_enabled())
        return forward(*args)

    model = build()
    session = attach(model, options={"blocks.*": {"counted": counted}}, planner="none")
    live = []
    for step in range(6):
        with torch.no_grad():
            model(**inputs(step))
        loss = model(**inputs(step))
        del loss
        with session.step():
            model(**inputs(step)).backward()
        model.zero_grad()
        gc.collect()
        live.append(tidetape._C.meter_live_bytes())
    assert len(set(live)) == 1
    assert all(calls)


def test_several_forwards_make_one_step(attach):
    def accumulate(model, session=None):
        torch.manual_seed(3)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        history = History()
        for step in range(24):
            for part in range(2):
                loss = model(**inputs(2 * step + part))
                loss.backward()
            keep(history, model, loss)
            optimizer.step()
            optimizer.zero_grad()
        return history

    model = build(dropout=0.2)
    session = attach(model, options={"blocks.[0-3]": POLICIES}, memory_limit="90%")
    require_same(accumulate(model, session), accumulate(build(dropout=0.2)))
    assert len(session.plan.blocks) == BLOCKS


def test_detaching_gives_the_forward_back(attach):
    model = compiled(build, as_wrapper, [0])
    model.blocks[1] = in_place(model.blocks[1])
    before = [block.__dict__.get("forward") for block in model.blocks], model.blocks[1]._compiled_call_impl
    session = attach(model, options={"blocks.2": POLICIES}, planner="none")
    assert session.unmanaged == {}
    model(**inputs(0)).backward()
    session.detach()
    assert ([block.__dict__.get("forward") for block in model.blocks], model.blocks[1]._compiled_call_impl) == before


def test_two_ranks_run_one_plan_of_options_and_tapes(server_program, tidetapectl, tmp_path):
    server = PlannerServer(server_program, tidetapectl)
    server.start()
    try:
        with RankTraining(tmp_path, server.address, "90%", policies=True) as training:
            server.wait_for("the first plan", lambda: training.newest_generation() > 0, 120)
            assert _options(server.ask("plan", training.job)) == ["", "none", "none", ""]
            training.set_limit("min")
            # Peaks that vary may bring other plans first.
            server.wait_for("the plan with the least memory", lambda: "full" in _options(server.ask("plan", training.job)), 60)
            training.finish()
    finally:
        server.stop()
    first_steps = training.activations()
    assert first_steps[0] == first_steps[1], "the ranks switched plans at different steps"


def _options(answer):
    return [block.get("option_label", "") for block in answer["plan"]["blocks"]]


# --- compiled blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("compile_block", [as_wrapper, in_place])
@pytest.mark.parametrize("option", BUDGETS)
def test_every_budget_gives_the_compiled_blocks_numbers(attach, compile_block, option, dropout):
    """Also where a block draws random numbers, which torch's partitioner may draw once more in backward under a budget."""
    expected = train(compiled(lambda: build(dropout), compile_block), inputs, 4)
    model = compiled(lambda: build(dropout), compile_block)
    session = attach(model, planner="none")
    session.impose({f"blocks.{number}": option for number in range(BLOCKS)})
    require_same(train(model, inputs, 4, session), expected)


@pytest.mark.parametrize("compile_block", [as_wrapper, in_place])
def test_budgets_are_kept_apart_and_nothing_compiles_twice(attach, compile_block):
    """Each budget saves less than the next, and once each has run, steps by any of them compile nothing. What one compiles does not
    count towards Dynamo's limit for another."""
    model = compiled(build, compile_block)
    session = attach(model, planner="none")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    saved = {}
    with torch._dynamo.config.patch(recompile_limit=1):
        for _ in range(2):
            before = counters["stats"]["unique_graphs"]
            for option in BUDGETS:
                session.impose({f"blocks.{number}": option for number in range(BLOCKS)})
                step_once(model, session, optimizer, 0)
                saved[option] = session.stats()["saved_bytes"]
    assert counters["stats"]["unique_graphs"] == before
    assert saved[BUDGETS[0]] < 0.5 * saved[BUDGETS[1]] < saved[BUDGETS[1]] < saved[BUDGETS[2]]


@pytest.mark.parametrize("compile_block", [as_wrapper, in_place])
def test_compiled_blocks_are_planned_beside_taped_ones(attach, compile_block):
    plans = require_limits_kept(attach, lambda: compiled(build, compile_block, [0, 2, 4]))
    assert all(block.option in BUDGETS for plan in plans for block in plan.blocks[::2])
    assert plans[0].saved_bytes < plans[-1].saved_bytes
    assert not any(block.option for plan in plans for block in plan.blocks[1::2])


def test_compiled_blocks_with_a_graph_break(attach):
    class Breaking(Block):
        def forward(self, x):
            h = self.up(self.norm(x))
            torch._dynamo.graph_break()
            return x + self.down(F.gelu(h))

    def build_breaking():
        torch.manual_seed(0)
        model = Model()
        model.blocks = nn.ModuleList(Breaking(0.0) for _ in range(BLOCKS))
        return model

    expected = train(compiled(build_breaking, in_place), inputs, 20)
    model = compiled(build_breaking, in_place)
    session = attach(model, memory_limit="90%")
    require_same(train(model, inputs, 20, session), expected)
    assert session.unmanaged == {} and session.plan.generation > 0


def test_attention_without_dropout_is_compiled_under_budgets(attach):
    class Attention(Block):
        def forward(self, x):
            heads = self.up(self.norm(x)).view(1, ROWS, 4, WIDTH).transpose(1, 2)
            return x + F.scaled_dot_product_attention(heads, heads, heads).mean(1).view(ROWS, WIDTH)

    def build_attention():
        torch.manual_seed(0)
        model = Model()
        model.blocks = nn.ModuleList(Attention(0.0) for _ in range(BLOCKS))
        return model

    model = compiled(build_attention, in_place)
    session = attach(model, planner="none")
    saved = []
    for option in (BUDGETS[0], BUDGETS[2]):
        session.impose({f"blocks.{number}": option for number in range(BLOCKS)})
        train(model, inputs, 1, session)
        saved.append(session.stats()["saved_bytes"])
    assert saved[0] < 0.5 * saved[1]


def test_a_budget_that_does_not_compile_leaves_the_blocks_as_they_are(attach, caplog):
    from torch._functorch import config

    def refuses_lean_budgets(graph, example_inputs):
        if config.activation_memory_budget < 1:
            raise RuntimeError("this backend knows no budgets")
        return graph

    def compile_block(block):
        return as_wrapper(block, refuses_lean_budgets)

    expected = train(compiled(build, compile_block), inputs, 4)
    model = compiled(build, compile_block)
    with caplog.at_level(logging.WARNING, "tidetape"):
        session = attach(model)
        require_same(train(model, inputs, 4, session), expected)
    assert list(session.unmanaged) == [f"blocks.{number}" for number in range(BLOCKS)]
    assert "this backend knows no budgets" in session.unmanaged["blocks.0"]
    assert [record.name for record in caplog.records].count("tidetape") == 1


def test_a_block_whose_compilation_is_unknown_is_named(attach):
    model = build()
    model.blocks[1]._compiled_call_impl = model.blocks[1]._call_impl
    session = attach(model, planner="none")
    assert list(session.unmanaged) == ["blocks.1"]
    assert "does not tell how it was compiled" in session.unmanaged["blocks.1"]


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_inductors_budgets_are_planned(attach, dropout):
    """Kernels that are fused in another way may round in another way, so numbers are close and no more."""
    compile_block = functools.partial(in_place, backend="inductor")
    expected = train(compiled(lambda: build(dropout), compile_block), inputs, 30)
    model = compiled(lambda: build(dropout), compile_block)
    session = attach(model, memory_limit="min")
    got = train(model, inputs, 30, session)
    assert got.losses == pytest.approx(expected.losses, rel=1e-5)
    plan = session.plan
    assert plan.generation > 0 and session.unmanaged == {}
    assert abs(plan.step_peak_bytes - session.stats()["step_peak_bytes"]) <= 0.01 * plan.step_peak_bytes
