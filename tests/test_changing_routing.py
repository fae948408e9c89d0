"""A plan holds while the routing of a mixture of experts changes at every step and experts go without tokens."""

import contextlib
import dataclasses
import functools
import gc
import time

import pytest
import torch
import transformers

import tidetape
from tests.training import SECONDS_TO_PLAN, History, keep, require_same
from tidetape.plan import Plan

STEPS = 50
# The planner measures first; after so many steps without a plan something is wrong.
MOST_STEPS_TO_PLAN = 20
EXPERTS = 16
LAYERS = 3
VOCABULARY, WORDS = 128, 6
# Sequences and tokens of each: enough for a step's peak to lie in backward, and not in the optimizer.
TOKENS = (2, 48)


@dataclasses.dataclass
class Run:
    """What a training left behind, an entry a step; `routing` names the experts with tokens, by router."""

    history: History = dataclasses.field(default_factory=History)
    routing: list = dataclasses.field(default_factory=list)
    peaks: list = dataclasses.field(default_factory=list)
    generations: list = dataclasses.field(default_factory=list)
    saved_bytes: list = dataclasses.field(default_factory=list)
    limit: int = 0
    plan: Plan | None = None
    passed_through: dict = dataclasses.field(default_factory=dict)


def build():
    torch.manual_seed(0)
    config = transformers.Qwen3MoeConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        moe_intermediate_size=16,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=EXPERTS,
        num_experts_per_tok=2,
        norm_topk_prob=True,
        use_cache=False,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).train()
    # One expert after the other, so that one without tokens has no ops.
    model.set_experts_implementation("eager")
    return model


@functools.cache
def inputs(step):
    """A few different words a step, so that it needs a few of the experts only, and other ones than the step before."""
    generator = torch.Generator().manual_seed(100 + step)
    words = torch.randperm(VOCABULARY, generator=generator)[:WORDS]
    tokens = words[torch.randint(WORDS, TOKENS, generator=generator)]
    return {"input_ids": tokens, "labels": tokens}


def train(memory_limit=None, planner="none"):
    """All steps: plain without a limit, else attached."""
    gc.collect()
    model, run = build(), Run()
    for router in (module for module in model.modules() if type(module).__name__.endswith("Router")):
        router.register_forward_hook(lambda router, args, output: run.routing[-1].append(frozenset(output[2].flatten().tolist())))
    session = None
    if memory_limit is not None:
        session = tidetape.attach(model, memory_limit=memory_limit, planner=planner)
    try:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        for step in range(STEPS):
            run.routing.append([])
            with session.step() if session else contextlib.nullcontext():
                loss = model(**inputs(step)).loss
                loss.backward()
                keep(run.history, model, loss)
                optimizer.step()
                optimizer.zero_grad()
            del loss
            if session is not None:
                stats = session.stats()
                run.peaks.append(stats["step_peak_bytes"])
                run.generations.append(stats["generation"])
                run.saved_bytes.append(stats["saved_bytes"])
        if session is not None:
            run.plan = session.plan
            run.passed_through = session.passed_through()
    finally:
        if session is not None:
            session.detach()
    return run


@pytest.fixture(scope="module")
def plain():
    return train()


@pytest.fixture(scope="module")
def planned():
    """A run under a limit halfway between the peaks of nothing saved and of everything saved, each the largest of all steps."""
    least, most = (max(train(limit).peaks) for limit in ("min", "max"))
    assert least < most
    limit = (least + most) // 2
    run = train(limit, planner="local")
    run.limit = limit
    return run


def test_the_routing_changes_and_leaves_experts_idle(plain):
    by_router = list(zip(*plain.routing, strict=True))
    assert len(by_router) == LAYERS
    for router, steps in enumerate(by_router):
        assert len(set(steps)) > STEPS // 2, f"router {router} chose the same experts in most steps"
        idle_at_times = set(range(EXPERTS)) - frozenset.intersection(*steps)
        busy_at_times = frozenset.union(*steps)
        assert idle_at_times & busy_at_times, f"no expert of router {router} is idle at some steps and busy at others"


def test_losses_gradients_and_routing_equal_plain(plain, planned):
    require_same(planned.history, plain.history)
    assert planned.routing == plain.routing


def test_one_plan_stays_in_force(planned):
    assert any(planned.generations[:MOST_STEPS_TO_PLAN]), f"no plan within {MOST_STEPS_TO_PLAN} steps"
    first = next(step for step, generation in enumerate(planned.generations) if generation > 0)
    changes = [
        (step, planned.generations[step - 1], planned.generations[step])
        for step in range(first + 1, STEPS)
        if planned.generations[step] != planned.generations[step - 1]
    ]
    assert not changes, f"the plan of step {first} was replaced, (step, old, new generation): {changes}"


def test_the_step_peak_keeps_the_limit_at_every_step(planned):
    over = {step: peak - planned.limit for step, peak in enumerate(planned.peaks) if peak > planned.limit}
    assert all(saved > 0 for saved, generation in zip(planned.saved_bytes, planned.generations, strict=True) if generation > 0)
    assert not over, f"limit {planned.limit} bytes, steps above it and by how many bytes: {over}; {planned.generations=}"


def test_the_expected_peak_is_not_that_of_all_largest_batches_at_once(planned):
    """Not the limit either, although the plan holds free what is left of it."""
    peaks = [peak for peak, generation in zip(planned.peaks, planned.generations, strict=True) if generation]
    assert planned.plan.step_peak_bytes == pytest.approx(max(peaks), rel=0.03)
    assert 0 < planned.plan.headroom_bytes <= 0.1 * max(peaks)
    assert planned.plan.step_peak_bytes + planned.plan.headroom_bytes <= planned.limit


def test_no_block_falls_back_to_a_default(planned):
    assert planned.passed_through == {}


def test_the_peak_of_an_optimizer_is_predicted_without_what_blocks_vary_by(attach):
    """What an optimizer takes for a moment is the same at every step, whatever the experts need, and holds the step peak here."""
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    session = attach(model, memory_limit="min", planner="local")
    peaks = []
    step = 0
    deadline = time.monotonic() + SECONDS_TO_PLAN
    while len(peaks) < STEPS and time.monotonic() < deadline:
        step += 1
        with session.step():
            model(**inputs(step % STEPS)).loss.backward()
            torch.empty(16 << 20, dtype=torch.uint8)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
        if session.plan.generation:
            peaks.append(session.stats()["step_peak_bytes"])
    assert peaks, f"no plan within {SECONDS_TO_PLAN} s"
    assert session.plan.step_peak_bytes == pytest.approx(max(peaks), rel=1e-3)
