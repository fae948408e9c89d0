"""Loss, gradients, buffers and the generator's state of real models: with the tape and without, equal to the bit."""

import functools

import pytest
import torch

from tests.training import limits_between, require_same, train
from tests.zoo import MODELS

STEPS = 4
# Under a plan.
PLANNED_STEPS = 8

models = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


def _inputs(model, built, dtype):
    return functools.lru_cache(maxsize=None)(lambda step: model.inputs(built, dtype, step))


def _plain(model, dtype, steps):
    built = model.build(dtype)
    return train(built, _inputs(model, built, dtype), steps)


@models
@dtypes
@pytest.mark.parametrize("limit", ["min", "max"])
def test_gradients_equal_plain_with_nothing_and_with_everything_saved(attach, model, dtype, limit):
    built = model.build(dtype)
    session = attach(built, memory_limit=limit, planner="none")
    require_same(train(built, _inputs(model, built, dtype), STEPS, session), _plain(model, dtype, STEPS))
    replayed = session.stats()["replayed_ops"]
    assert replayed == 0 if limit == "max" else replayed > 0


@models
@dtypes
def test_gradients_equal_plain_while_plans_change(attach, model, dtype):
    batches = _inputs(model, model.build(dtype), dtype)
    # Limits are measured with one model alive at a time, as in the training that they are for.
    batches = [batches(step) for step in range(STEPS + PLANNED_STEPS)]

    def inputs(step):
        return batches[step % len(batches)]

    least, most = limits_between(attach, lambda: model.build(dtype), inputs, STEPS)
    assert least < most
    built = model.build(dtype)
    session = attach(built, memory_limit=(least + most) // 2)
    trained = train(built, inputs, STEPS, session, planned_steps=PLANNED_STEPS)
    require_same(trained, train(model.build(dtype), inputs, len(trained.losses)))
    stats = session.stats()
    assert stats["saved_bytes"] > 0
    assert stats["replayed_ops"] > 0


@models
def test_the_least_memory_plan_keeps_gradients(attach, model):
    built = model.build(torch.float32)
    session = attach(built, memory_limit="min")
    trained = train(built, _inputs(model, built, torch.float32), STEPS, session, planned_steps=PLANNED_STEPS)
    require_same(trained, _plain(model, torch.float32, len(trained.losses)))
