"""Buffers that forward updates: updated once, and replayed from what they were."""

import pytest
import torch

from tests.small_blocks import ROWS, WAYS, comparison, stack


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(body): blocks with this forward train as they do plainly. `build` makes another model."""
    return comparison(attach, request.param)


def test_running_statistics(same):
    same(lambda block, x: block.norm(block.linear(x)).exp())


def test_a_cache_appended_in_forward(same):
    def body(block, x):
        h = block.linear(x)
        block.cache[block.count % ROWS] = h.detach()[0]
        block.count += 1
        return h * block.cache.sum() + (h * block.count).tanh()

    same(body)


def test_a_buffer_read_and_then_written_in_forward(same):
    """What read it before the write is replayed from what it was then."""

    def body(block, x):
        h = (block.linear(x) + block.cache).tanh()
        block.cache.mul_(0.5).add_(h.detach())
        return (h * x + block.cache).exp().clamp(max=3)

    same(body)


def test_a_buffer_that_a_later_block_writes(same):
    def build():
        model = stack(lambda block, x: (block.linear(x) + block.cache).tanh(), count=3)
        shared = model.blocks[0].cache

        def writes(block, x):
            block.cache.mul_(0.5).add_(x.detach())
            return (block.linear(x) + block.cache).tanh()

        model.blocks[1].cache, model.blocks[1].body = shared, writes
        return model

    same(None, build=build)


def test_an_op_that_updates_buffers_and_makes_a_value(same):
    """It is not run twice: what it makes is kept."""

    def body(block, x):
        norm = block.norm
        statistics = norm.running_mean, norm.running_var
        result, *_ = torch.ops.aten._native_batch_norm_legit(block.linear(x), norm.weight, norm.bias, *statistics, True, 0.1, 1e-5)
        return (result + x).tanh() * result.exp()

    same(body)


def test_a_buffer_replaced_in_forward(same):
    def body(block, x):
        h = block.linear(x)
        block.cache = block.cache * 0.9 + h.detach()
        return (h * block.cache).tanh()

    same(body)
