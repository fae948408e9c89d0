"""Views, and writes through them and in place: backward reads what it reads in plain training."""

import pytest
import torch
import torch.nn.functional as F

import tidetape
from tests.small_blocks import ROWS, WAYS, WIDTH, Block, comparison, hidden, require_as_plain, stack, ways
from tests.zoo import Stack


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(body): blocks with this forward train as they do plainly. `build` makes another model."""
    return comparison(attach, request.param)


# --- views and writes through them ---------------------------------------------------------------------------------------------


def test_views_of_views(same):
    def body(block, x):
        h = block.linear(x)
        inner = h.view(2, 2, WIDTH).transpose(0, 1)[:, :, 1:].permute(2, 0, 1)[::2]
        return h + inner.exp().sum() + inner.unfold(0, 2, 1).tanh().mean()

    same(body)


def test_storages_written_through_several_views(same):
    def body(block, x):
        h = block.linear(x)
        rows, columns, flat = h[1:3], h[:, ::2], h.view(-1)
        rows.mul_(0.5)
        columns.add_(1)
        flat[::5].sigmoid_()
        return h.sin() * rows.sum() + columns.cos().sum()

    same(body)


def test_a_view_made_before_a_write_reads_what_was_written(same):
    def body(block, x):
        h = block.linear(x)
        turned = h.t()
        h[:, 0] = x[:, 1]
        return turned.exp().t() + h

    same(body)


def test_an_expanded_value_is_read_with_its_strides(same):
    def body(block, x):
        wide = block.linear(x)[:, :1].exp().expand(ROWS, WIDTH)
        return wide * wide.sin() + x

    same(body)


def test_views_as_another_dtype(same):
    def body(block, x):
        h = block.linear(x)
        signs = h.detach().view(torch.int32) < 0
        return torch.where(signs, h.exp(), h.sin())

    same(body)


# --- in place ------------------------------------------------------------------------------------------------------------------


def test_in_place_before_a_save(same):
    same(lambda block, x: block.linear(x).mul_(2).add_(x).clamp_(-1, 1).exp())


def test_in_place_after_a_save_that_backward_does_not_read(same):
    """Addition saves nothing, so its operand may be written; the op before it is replayed without that write."""

    def body(block, x):
        h = block.linear(x)
        total = h + x
        weight = total.tanh()
        h.mul_(3)
        return weight + h

    same(body)


@pytest.mark.parametrize("activate", [F.relu_, F.elu_, torch.selu_, torch.sigmoid_, torch.tanh_, F.hardtanh_])
def test_in_place_on_a_saved_output(same, activate):
    """An activation that saves its output and writes it over its input."""
    same(lambda block, x: activate(block.linear(x) * 2) * x)


def test_in_place_activation_on_a_view(same):
    def body(block, x):
        h = block.linear(x)
        F.relu(h[:, 2:], inplace=True)
        return h.square() + h

    same(body)


def test_a_saved_value_written_later_is_refused_as_it_is_plainly(same):
    def body(block, x):
        h = block.linear(x).exp()
        h.mul_(0.5)
        return h

    def program(model, x):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            model(x).backward()
        return torch.zeros(())

    same(body, program)


def test_routing_weights_divided_in_place(same):
    """The values of a topk are saved nowhere and divided in place, as in routers of mixtures."""

    def body(block, x):
        weights, indices = F.softmax(block.linear(x), -1).topk(2, -1)
        weights /= weights.sum(-1, keepdim=True)
        return torch.zeros_like(x).scatter(-1, indices, weights) * x

    same(body)


@pytest.mark.parametrize("in_place", [False, True])
def test_ops_that_write_a_tensor_after_it_was_saved(same, in_place):
    same(lambda block, x: F.rrelu(block.linear(x), training=True, inplace=in_place) * x)


def test_a_write_past_the_version_counter_is_read_by_backward(same):
    def body(block, x):
        h = block.linear(x)
        result = h.square()
        h.data.mul_(0.5)
        return result + x

    same(body)


@pytest.mark.parametrize("times", [1, 2])
def test_a_value_that_is_never_replayed_is_read_as_written_past_the_version_counter(same, times):
    """rrelu writes its noise after it was saved, so that its result is kept. The product is replayed from what it read."""

    def body(block, x):
        h = F.rrelu(x, training=True)
        product = block.linear(h)
        for _ in range(times):
            h.data.mul_(0.5)
            product = product + block.linear(h)
        return product.exp() + h

    same(body)


@pytest.mark.parametrize("forwards", [1, 2])
def test_an_input_written_after_the_models_forward_is_replayed_from_what_it_was(same, forwards):
    """A buffer that a loader fills anew while backward is still to come; linear saves its own product, exp saves the result."""

    def program(model, x):
        buffer = x.detach().clone()
        losses = [model.blocks[1](model.blocks[0](buffer)).square().mean() for _ in range(forwards)]
        buffer.fill_(-3)
        buffer.data.add_(1)
        sum(losses).backward()
        return sum(losses)

    same(lambda block, x: (x.abs() + 1).exp() * block.scale, program)


def test_interception_ends_with_the_last_open_tape(attach):
    """Ops after backward, and of evaluation, run as without Tidetape."""
    model = stack(lambda block, x: block.linear(x).exp())
    attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    model(hidden()).backward()
    hidden()  # the first op that finds no tape open
    before = tidetape._C.intercepted_ops()
    with torch.no_grad():
        model(hidden())
    (hidden() * 2).sum()
    assert tidetape._C.intercepted_ops() == before


def test_outside_of_blocks_only_writes_are_intercepted(attach):
    """While a tape is open: the four ops that are looked at without boxing, another one, and what writes to nothing."""
    model = stack(lambda block, x: block.linear(x).exp())
    attach(model, blocks="blocks.*", memory_limit="min", planner="none")
    loss = model(hidden())
    value = torch.ones(4, 4)

    def intercepted(op):
        before = tidetape._C.intercepted_ops()
        op()
        return tidetape._C.intercepted_ops() - before

    assert intercepted(lambda: (value @ value).exp()) == 0
    writes = (lambda: value.add_(value), lambda: value.copy_(value), lambda: value.fill_(1), value.zero_, value.exp_)
    assert [intercepted(write) for write in writes] == [1] * len(writes)
    loss.backward()


def test_an_older_content_is_replayed_before_the_newest_is_read(same):
    """The first pass reads what was made before the write, the second one what was written."""

    def body(block, x):
        h = block.linear(x)
        total = (h + x).tanh()
        h.mul_(x.detach().cos())
        return total, h.sin()

    def program(model, x):
        total, sine = model.blocks[0](x)
        (of_total,) = torch.autograd.grad(total.sum(), x, retain_graph=True)
        loss = sine.square().sum() + total.sum()
        loss.backward()
        return loss + of_total.sum()

    same(body, program)


class WritingData(Stack):
    """Writes the first block's output, which backward reads, past the version counter."""

    def forward(self, x):
        h = self.blocks[0](x)
        h.data.mul_(0.5)
        return self.blocks[1](h).square().mean() + h.sum()


@ways
def test_an_output_written_past_the_version_counter_after_the_block(attach, way):
    def build():
        torch.manual_seed(0)
        return WritingData(lambda: Block(lambda block, x: block.linear(x).exp()), 2)

    require_as_plain(attach, way, build)


class Writing(Stack):
    """Writes the first block's input when the block is done."""

    def forward(self, x):
        h = x * 1
        result = self.blocks[0](h)
        h.detach().mul_(3)
        return self.blocks[1](h).square().mean() + result.sum()


@ways
def test_an_input_written_after_the_block_is_replayed_from_what_it_was(attach, way):
    """Plain training saved what was made of the input, not the input."""

    def build():
        torch.manual_seed(0)
        return Writing(lambda: Block(lambda block, x: (x + 3).tanh() * block.scale), 2)

    require_as_plain(attach, way, build)
