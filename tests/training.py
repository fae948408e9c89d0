"""Trains a model for some steps and keeps everything that two ways of training must have in common."""

import contextlib
import dataclasses
import gc
import hashlib
import time

import torch

# A plan takes a few steps and a fraction of a second; on a busy machine, more.
SECONDS_TO_PLAN = 60


@dataclasses.dataclass
class History:
    """What each step left behind: hashes of bits, so that a history holds no tensor and a step's peak is the training's own."""

    losses: list = dataclasses.field(default_factory=list)
    gradients: list = dataclasses.field(default_factory=list)
    buffers: list = dataclasses.field(default_factory=list)
    random_states: list = dataclasses.field(default_factory=list)


def train(model, inputs, steps, session=None, seed=7, learning_rate=1e-3, planned_steps=0):
    """Forward, backward and AdamW for `steps` steps; `inputs(step)` are the keyword arguments of the forward.

    With `planned_steps` it goes on until a plan was in force in so many, however long the planner takes. The generator is seeded
    once, so that a replay which moves it would show in the next step.
    """
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    history = History()
    deadline = time.monotonic() + SECONDS_TO_PLAN
    step = 0
    while step < steps or planned_steps > 0:
        with session.step() if session else contextlib.nullcontext():
            loss = loss_of(model(**inputs(step)))
            loss.backward()
            keep(history, model, loss)
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        if planned_steps > 0:
            planned_steps -= session.plan.generation > 0
            assert time.monotonic() < deadline, f"no plan within {SECONDS_TO_PLAN} s"
    return history


def loss_of(output):
    """The loss of a Hugging Face model's output, or the output itself."""
    return output if isinstance(output, torch.Tensor) else output.loss


def keep(history, model, loss):
    """Adds a step after its backward."""
    history.losses.append(loss.item())
    history.gradients.append({name: _hash(p.grad) for name, p in model.named_parameters() if p.grad is not None})
    history.buffers.append({name: _hash(buffer) for name, buffer in model.named_buffers()})
    history.random_states.append(_hash(torch.get_rng_state()))


def require_same(got, expected):
    """Fails unless both histories are equal to the bit, and says what differs first."""
    assert len(got.losses) == len(expected.losses)
    for step, (loss, expected_loss) in enumerate(zip(got.losses, expected.losses, strict=True)):
        assert loss == expected_loss, f"step {step}: loss {loss!r}, expected {expected_loss!r}"
        _require_same_tensors(f"step {step}: gradient of", got.gradients[step], expected.gradients[step])
        _require_same_tensors(f"step {step}: buffer", got.buffers[step], expected.buffers[step])
        assert got.random_states[step] == expected.random_states[step], f"step {step}: the generator's state differs"


def limits_between(attach, build, inputs, steps):
    """(least, most) step peak in bytes: of training with nothing saved and with everything saved."""
    peaks = []
    for limit in ("min", "max"):
        gc.collect()
        model = build()
        session = attach(model, memory_limit=limit, planner="none")
        train(model, inputs, steps, session)
        peaks.append(session.stats()["step_peak_bytes"])
        session.detach()
        del model, session
    gc.collect()
    return peaks


def _require_same_tensors(what, got, expected):
    assert got.keys() == expected.keys(), f"{what}: {got.keys() ^ expected.keys()} only once"
    different = [name for name in expected if got[name] != expected[name]]
    assert not different, f"{what} {different[0]} differs, and {len(different) - 1} more of {len(expected)}"


def _hash(tensor):
    """Of shape, dtype and bits: a NaN equals itself, and a zero has a sign."""
    bits = tensor.detach().contiguous().view(-1).view(torch.uint8).numpy()
    return hashlib.sha256(bits, usedforsecurity=False).hexdigest(), tuple(tensor.shape), tensor.dtype
