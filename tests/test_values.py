"""Values of every kind reach backward as plain training reads them, whatever is saved."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tidetape
from tests.small_blocks import ROWS, WAYS, WIDTH, Block, backward, hidden, require_as_plain, stack, ways
from tests.zoo import Stack


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(body): blocks with this forward train as they do plainly. `build` makes another model."""

    def compare(body, program=backward, managed=True, build=None):
        return require_as_plain(attach, request.param, build or (lambda: stack(body)), program, managed)

    return compare


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


# --- buffers -------------------------------------------------------------------------------------------------------------------


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


# --- kinds of tensors ----------------------------------------------------------------------------------------------------------


def test_several_outputs_of_one_op(same):
    def body(block, x):
        h = block.linear(x)
        values, indices = h.topk(3, -1)
        left, right = h.split([2, 4], -1)
        variance, mean = torch.var_mean(h, -1, keepdim=True)
        first, *others = h.unbind(0)
        normal, *_ = torch.native_layer_norm(h, (WIDTH,), None, None, 1e-5)
        scattered = torch.zeros_like(h).scatter(-1, indices, values.exp())
        return scattered + torch.cat([left.sin(), right.cos()], -1) * variance.sqrt() + mean + first.exp() * others[1] + normal

    same(body)


def test_tensors_without_elements(same):
    def body(block, x):
        h = block.linear(x)
        nothing = h[:0].exp()
        return torch.cat([h.exp(), nothing]) + (nothing @ nothing.t()).sum()

    same(body)


def test_tensors_without_dimensions(same):
    same(lambda block, x: (block.linear(x).sum().sin() * block.scale.exp()).tanh() * x)


def test_numbers_keep_their_kind(same):
    """A number makes floats of integers, where a tensor without dimensions would make doubles of them."""

    def body(block, x):
        h = block.linear(x)
        steps = (h > 0).long() * 0.3 + (h < 0.1).int() / 3
        return h.sin() * steps.exp() + (h * steps).exp().clamp(max=3) * 0.7

    same(body)


def test_complex_values(same):
    def body(block, x):
        h = torch.fft.rfft(block.linear(x))
        pairs = torch.view_as_complex(block.linear(x).view(ROWS, -1, 2)).tanh()
        return torch.fft.irfft(h * h.conj()) + torch.view_as_real(pairs * 2j).reshape(ROWS, WIDTH) + (pairs.imag * pairs.real).sum()

    same(body)


def test_values_in_half_precision_and_double(same):
    def body(block, x):
        h = block.linear(x)
        return h.bfloat16().exp().float() * h.half().sin().float() + h.double().tanh().float()

    same(body)


def test_quantised_values(same):
    """Backward of the rounding sees what a quantised weight was in forward."""

    def body(block, x):
        quantised = torch.quantize_per_tensor(block.linear(x).detach(), 0.1, 0, torch.qint8)
        return x.exp() * quantised.dequantize() + block.linear(x)

    same(body)


def test_sparse_values(same):
    def body(block, x):
        mask = (block.linear(x).detach() > 0).float()
        return torch.sparse.mm(mask.t().to_sparse(), x.exp())[:ROWS] + block.linear(x)

    same(body)


def test_nested_values(same):
    def body(block, x):
        h = block.linear(x)
        nested = torch.nested.as_nested_tensor([h[:1], h[1:]], layout=torch.strided)
        return torch.cat(list(F.relu(nested * nested).unbind())) + x

    same(body)


def test_integer_and_boolean_values(same):
    def body(block, x):
        h = block.linear(x)
        order = h.argsort(-1)
        mask = h > h.mean()
        return h.gather(-1, order).exp().masked_fill(mask, 0.5) + h[order[:, 0] % ROWS] * h[mask].square().sum()

    same(body)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: x[:1].expand(ROWS, WIDTH),
        lambda x: torch.cat([x, x], -1)[:, ::2],
        lambda x: x.flip(0)[:, 1:2].expand(-1, WIDTH),
    ],
    ids=["transposed", "expanded", "strided", "expanded column"],
)
def test_inputs_that_are_not_contiguous(same, change):
    same(lambda block, x: (x + 1).exp() * block.linear(x), lambda model, x: backward(model, change(x)))


# --- one tensor, several blocks ------------------------------------------------------------------------------------------------


class Passing(nn.Module):
    """Blocks that hand an intermediate to the next one, which reads it and writes it where `write` says so."""

    def __init__(self, write):
        super().__init__()
        self.blocks = nn.ModuleList(Block(self._body) for _ in range(3))
        self.write = write
        self.passed = None

    def _body(self, block, x):
        h = block.linear(x)
        if self.passed is not None:
            h = h * self.passed
            if self.write:
                self.passed.detach_().add_(1)
        inner = h.view(-1)[: ROWS * WIDTH].view(ROWS, WIDTH)
        self.passed = inner.sin() + 1
        return h.exp().clamp(max=3) + self.passed

    def forward(self, x):
        self.passed = None
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


@ways
def test_a_tensor_passed_from_block_to_block(attach, way):
    def build():
        torch.manual_seed(0)
        return Passing(write=False)

    require_as_plain(attach, way, build)


@ways
def test_a_block_called_several_times_in_one_forward(attach, way):
    def program(model, x):
        first, second = model.blocks
        loss = (first(second(first(first(x)))) * second(x)).sum()
        loss.backward()
        return loss

    require_as_plain(attach, way, lambda: stack(lambda block, x: block.norm(block.linear(x).exp())), program)


@ways
def test_several_forwards_before_one_backward(attach, way):
    def program(model, x):
        loss = model(x) * model(x.exp()) + model(x * 2)
        loss.backward()
        return loss

    require_as_plain(attach, way, lambda: stack(lambda block, x: block.norm(block.linear(x).tanh())), program)


@ways
def test_one_parameter_in_several_blocks(attach, way):
    def build():
        model = stack(lambda block, x: (block.linear(x) @ block.linear.weight).tanh(), count=3)
        for block in model.blocks[1:]:
            block.linear.weight = model.blocks[0].linear.weight
        return model

    require_as_plain(attach, way, build)


class Tied(nn.Module):
    """The embedding's weights are the head's."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, WIDTH)
        self.blocks = nn.ModuleList(Block(self._body) for _ in range(2))
        self.head = nn.Linear(WIDTH, 10, bias=False)
        self.head.weight = self.embed.weight

    def _body(self, block, x):
        return block.linear(x).exp() @ self.embed.weight.t() @ self.embed.weight

    def forward(self, x):
        h = self.embed((x.detach().abs() * 4).long()[:, 0] % 10) + x
        for block in self.blocks:
            h = F.normalize(block(h))
        return self.head(h).logsumexp(-1).mean()


@ways
def test_tied_weights(attach, way):
    def build():
        torch.manual_seed(0)
        return Tied()

    require_as_plain(attach, way, build)
