"""Values of every kind reach backward as plain training reads them, whatever is saved."""

import pytest
import torch
import torch.nn.functional as F

from tests.small_blocks import ROWS, WAYS, WIDTH, backward, comparison


@pytest.fixture(params=WAYS)
def same(request, attach):
    """same(body): blocks with this forward train as they do plainly. `build` makes another model."""
    return comparison(attach, request.param)


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
