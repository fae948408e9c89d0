"""Ways to train a sharded model, for tests: each returns the numbers that two runs are compared by, as a list of arrays."""

import contextlib

import torch
from torch.distributed.tensor import DTensor

from tests.collectives.shapes import WIDTH

STEPS = 3
ROWS = 4


def batch(step, rank):
    """The rows that a rank trains on in a step."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(ROWS, WIDTH, generator=generator)


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def array(tensor):
    return local(tensor).detach().float().clone().numpy()


def gradients(model):
    """The own shards; None where a parameter has no gradient."""
    return [None if parameter.grad is None else array(parameter.grad) for parameter in model.parameters()]


def optimizer_of(model):
    return torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1, momentum=0.9)


def plainly(model, rank, steps=STEPS):
    numbers = []
    optimizer = optimizer_of(model)
    for step in range(steps):
        loss = model(batch(step, rank))
        loss.backward()
        numbers += [array(loss), *gradients(model)]
        optimizer.step()
        optimizer.zero_grad()
    return numbers + [array(parameter) for parameter in model.parameters()]


def _in_micro_batches(model, rank, sync_all):
    numbers = []
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        for part in range(3):
            model.set_requires_gradient_sync(sync_all or part == 2)
            model(batch(10 * step + part, rank)).backward()
        numbers += gradients(model)
        optimizer.step()
        optimizer.zero_grad()
    return numbers


def without_sync(model, rank):
    """Gradients of two micro-batches stay whole, and are reduced with the third's."""
    return _in_micro_batches(model, rank, sync_all=False)


def with_sync(model, rank):
    """Each micro-batch is reduced, and added to what is there."""
    return _in_micro_batches(model, rank, sync_all=True)


def clipping(model, rank):
    numbers = []
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        model(batch(step, rank)).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        numbers += [norm.full_tensor().numpy(), *gradients(model)]
        optimizer.step()
        optimizer.zero_grad()
    return numbers


def through_state_dicts(model, rank):
    """Saves, changes and loads in between: by copy, then by assignment."""
    numbers = plainly(model, rank)
    for assign in (False, True):
        state = {name: value.detach() * 0.5 for name, value in model.state_dict().items()}
        model.load_state_dict(state, assign=assign)
        numbers += [array(value) for value in model.state_dict().values()]
        numbers += plainly(model, rank)
    return numbers


def looking_in_between(model, rank):
    """Forwards without gradients between the steps."""
    numbers = []
    for step in range(STEPS):
        with torch.no_grad():
            numbers.append(array(model(batch(step + 7, rank))))
        numbers += plainly(model, rank, steps=1)
        with torch.inference_mode():
            numbers.append(array(model(batch(step + 9, rank))))
    return numbers


def unsharding_by_hand(model, rank):
    """Asks for a unit's parameters itself, in time and asynchronously, and lets some of it be for nothing."""
    numbers = []
    for step in range(STEPS):
        handle = model.blocks[0].unshard(async_op=True)
        model.blocks[1].unshard()
        handle.wait()
        numbers += [array(parameter) for parameter in model.blocks[1].parameters()]
        model.blocks[1].reshard()
        numbers += plainly(model, rank, steps=1)
        model.blocks[2].unshard(async_op=True)  # nobody waits
        model.reset_iter_state()
        numbers.append(step * torch.ones(1).numpy())
    return numbers


def freezing_later(model, rank):
    numbers = plainly(model, rank)
    for parameter in model.blocks[1].up.parameters():
        parameter.requires_grad_(False)
    return numbers + plainly(model, rank)


def branching(model, rank):
    """A part of each block is used on even ranks only."""
    for block in model.blocks:
        block.used = rank % 2 == 0
    return plainly(model, rank)


def copies_apart(model, rank):
    """HSDP: shards are summed in each copy, copies only in the second micro-batch."""
    numbers = []
    for step in range(STEPS):
        for part in range(2):
            model.set_requires_all_reduce(part == 1)
            model(batch(10 * step + part, rank)).backward()
        numbers += gradients(model)
        model.zero_grad()
    return numbers


@contextlib.contextmanager
def quiet():
    """No warnings of FSDP2's about tests' own peculiarities."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
