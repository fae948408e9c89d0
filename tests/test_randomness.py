"""A replay draws what the forward drew, and leaves every generator as plain training leaves it."""

import ctypes
import random

import pytest
import torch
import torch.nn.functional as F

from tests.small_blocks import ROWS, WAYS, WIDTH, hidden, require_as_plain, stack, ways

# Bytes of one state of the CPU generator.
STATE_BYTES = len(torch.get_rng_state())


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(body): blocks with this forward train as they do plainly, and leave their own generators alike."""

    def compare(body):
        built = []

        def build():
            built.append(stack(body))
            return built[-1]

        trained = require_as_plain(attach, request.param, build)
        plain, taped = built
        for left, right in zip(taped.blocks, plain.blocks, strict=True):
            assert torch.equal(left.generator.get_state(), right.generator.get_state())
        return trained

    return compare


def test_dropout_everywhere(same):
    def body(block, x):
        h = F.dropout(block.linear(F.dropout(x, 0.1)).exp().clamp(max=3), 0.3)
        scores = F.dropout(F.softmax(h @ x.t(), -1), 0.2)
        return F.dropout(scores @ h, 0.1) + F.alpha_dropout(h, 0.1) + F.dropout1d(h, 0.2)

    same(body)


NOISY = {
    "rand": lambda h: h * torch.rand_like(h),
    "randn": lambda h: h * torch.randn(h.shape),
    "bernoulli": lambda h: h * torch.bernoulli(torch.sigmoid(h)),
    "exponential": lambda h: h * torch.empty_like(h).exponential_().clamp(max=2),
    "uniform": lambda h: h * torch.empty_like(h).uniform_(-1, 1),
    "normal": lambda h: h * torch.normal(h.detach(), 0.1),
    "randperm": lambda h: h[torch.randperm(ROWS)].exp(),
    "randint": lambda h: h.gather(-1, torch.randint(WIDTH, h.shape)).exp(),
    "multinomial": lambda h: h.gather(-1, torch.multinomial(F.softmax(h, -1), WIDTH, replacement=True)).exp(),
    "poisson": lambda h: h * torch.poisson(h.abs()),
    "single normals": lambda h: (
        h * torch.randn(()) * torch.randn(3, 1).sum() * torch.randn(()).exp() * torch.randn(()).double().sin()
    ),
    "rrelu": lambda h: F.rrelu(h, training=True).exp(),
    "gumbel": lambda h: F.gumbel_softmax(h) * h,
    "dropout in place": lambda h: F.dropout(h.clone(), 0.4, inplace=True).exp(),
}


@pytest.mark.parametrize("noisy", NOISY.values(), ids=NOISY)
def test_ops_that_draw(same, noisy):
    same(lambda block, x: noisy(block.linear(x).clamp(-2, 2)) + x)


def test_attention_with_dropout(same):
    def body(block, x):
        heads = block.linear(x).view(1, 2, ROWS, 3)
        return F.scaled_dot_product_attention(heads, heads, heads.sin(), dropout_p=0.3).view(ROWS, WIDTH)

    same(body)


def test_several_generators(same):
    """The block's own generator and the default one, in turns."""

    def body(block, x):
        h = block.linear(x)
        h = h * torch.rand(h.shape, generator=block.generator)
        h = F.dropout(h, 0.3)
        h = h.exp().clamp(max=3) * torch.empty_like(h).normal_(generator=block.generator)
        return h[torch.randperm(ROWS, generator=block.generator)] + torch.randn(h.shape) * h

    same(body)


def test_two_generators_in_the_same_state(same):
    """Each is drawn from, and goes on from there."""

    def body(block, x):
        h = block.linear(x)
        block.generator.set_state(torch.get_rng_state())
        h = h * torch.rand(h.shape, generator=block.generator)
        h = h.sin() * torch.rand(h.shape)
        return h * torch.rand(h.shape, generator=block.generator).exp()

    same(body)


def test_a_generator_that_is_seeded_inside_the_block(same):
    def body(block, x):
        h = F.dropout(block.linear(x), 0.3).exp().clamp(max=3)
        block.generator.manual_seed(11)
        h = h * torch.rand(h.shape, generator=block.generator)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(12)
            h = h * torch.rand_like(h)
        return F.dropout(h, 0.3) * x

    same(body)


def test_branches_on_what_was_drawn(same):
    def body(block, x):
        h = block.linear(x)
        for _ in range(int(torch.randint(3, ()))):
            h = F.dropout(h, 0.2).tanh() + x
        return h.exp().clamp(max=3) if torch.rand(()) > 0.5 else h * torch.rand_like(h)

    same(body)


def test_randomness_of_python(same):
    """Python's generator is drawn from in forward alone: a replay runs no Python."""

    def body(block, x):
        factor = random.Random(int(block.count)).random()
        block.count += 1
        return (block.linear(x) * factor).exp().clamp(max=3)

    same(body)


def test_ops_tagged_random_that_are_not(same):
    """Nothing is drawn at p = 0 or outside training, and a replay draws nothing either."""

    def body(block, x):
        heads = F.dropout(block.linear(x), 0.0).view(1, 2, ROWS, 3)
        attended = F.scaled_dot_product_attention(heads, heads, heads).view(ROWS, WIDTH)
        return F.dropout(attended.exp(), 0.5, training=False) * F.rrelu(x, training=False)

    same(body)


def test_an_op_tagged_random_is_replayed(same):
    """Nothing of it has to be kept, whether it draws or not."""

    def body(block, x):
        heads = block.linear(x).view(1, 2, ROWS, 3)
        attended = F.scaled_dot_product_attention(heads, heads, heads).view(ROWS, WIDTH)
        return F.dropout(attended.exp(), 0.5) * x

    assert same(body).stats["demoted_bytes"] == 0


@ways
def test_generators_are_where_plain_training_leaves_them_between_backwards(attach, way):
    """A draw between two backwards is the same draw."""

    def program(model, x):
        first = model.blocks[0](x)
        second = model.blocks[1](hidden(8))
        first.sum().backward()
        between = torch.rand(())
        loss = second.square().sum() * between
        loss.backward()
        return loss

    require_as_plain(attach, way, lambda: stack(lambda block, x: F.dropout(block.linear(x).exp().clamp(max=3), 0.4)), program)


_HEAP_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _Heap(ctypes.Structure):
    """glibc's mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in _HEAP_FIELDS]


def _allocated_bytes():
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Heap
    heap = mallinfo2()
    return heap.uordblks + heap.hblkhd


@pytest.mark.parametrize("elements", [0, 1], ids=["equal", "near"])
def test_states_are_stored_once(attach, elements):
    """Ops tagged random that draw nothing see one state, and small draws move within one state of the generator."""
    count = 200

    def body(block, x):
        h = block.linear(x)
        return h * sum(h.new_empty(elements).normal_().sum() for _ in range(count)) * h.sin()

    model = stack(body, count=1)
    session = attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    for step in range(2):
        before = _allocated_bytes()
        with session.step():
            loss = model(hidden(step))
            held = _allocated_bytes() - before
            loss.backward()
    assert STATE_BYTES < held < count * STATE_BYTES / 2
