"""The ops of random programs: templates whose operands are chosen by kind.

`{f}` is any floating-point tensor and `{g}` another, of the same shape if there is one; `{h}` and `{k}` are of ROWS × WIDTH; `{i}`
holds indices into the rows; `{m}` is a mask, `{c}` complex, `{d}` a dimension. Templates need not fit every operand: the generator
tries.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Kind:
    """Templates of one kind, chosen `weight` times as often as one of weight 1. Each makes `makes` values."""

    name: str
    weight: float
    templates: tuple[str, ...]
    makes: int = 1
    in_place: bool = False

    def without(self, word: str) -> Kind:
        """The kind without the templates that contain a word."""
        templates = tuple(template for template in self.templates if word not in template)
        return dataclasses.replace(self, templates=templates)


POINTWISE = Kind(
    "pointwise",
    3,
    (
        "{f}.sin()",
        "torch.tanh({f})",
        "torch.sigmoid({f})",
        "F.gelu({f})",
        "F.silu({f})",
        "F.relu({f})",
        "F.leaky_relu({f}, 0.2)",
        "F.elu({f})",
        "F.softplus({f})",
        "{f}.abs()",
        "{f}.square()",
        "{f}.clamp(-0.5, 0.5)",
        "{f}.exp().clamp(max=3)",
        "({f}.abs() + 1).log()",
        "({f}.abs() + 0.1).rsqrt()",
        "{f}.pow(3).tanh()",
        "1 - {f}",
        "{f} * 0.5",
        "{f}.to(torch.bfloat16).float()",
        "{f}.double().sin().float()",
        "F.softmax({f}, {d})",
        "F.log_softmax({f}, {d})",
        "{f}.cumsum({d})",
        "{f}.cumprod({d})",
        "{f}.logsumexp({d})",
        "{f}.sum()",
        "{f}.mean({d})",
        "{f}.amax({d})",
        "{f}.prod({d})",
        "{f}.norm()",
        "{f}.std({d})",
        "torch.nan_to_num({f})",
        "{f}.triu()",
        "{f}.flip({d})",
        "{f}.roll(1, {d})",
        "{f}.repeat(2, *[1] * ({f}.dim() - 1))",
        "F.glu({f}, {d})",
    ),
)

BINARY = Kind(
    "binary",
    3,
    (
        "{f} + {g}",
        "{f} * {g}",
        "{f} - {g}",
        "{f} / ({g}.abs() + 1)",
        "torch.maximum({f}, {g})",
        "torch.atan2({f}, {g}.abs() + 1)",
        "torch.lerp({f}, {g}, 0.3)",
        "torch.addcmul({f}, {g}, {g}, value=0.5)",
        "torch.where({f} > 0, {f}, {g})",
        "torch.hypot({f}, {g} + 3)",
        "torch.cat([{f}, {g}], {d})",
        "torch.stack([{f}, {g}])",
        "{f} @ {g}",
        "{f} @ {g}.transpose(0, -1)",
        "torch.outer({f}.flatten()[:3], {g}.flatten()[:3])",
        "F.mse_loss({f}, {g})",
        "F.smooth_l1_loss({f}, {g})",
        "torch.cdist({f}, {g} + 1)",
        "F.cosine_similarity({f}, {g}, {d})",
        "torch.einsum('ij,kj->ik', {h}, {k})",
    ),
)

LAYERS = Kind(
    "layer",
    2,
    (
        "F.linear({f}, self.weight, self.bias)",
        "F.linear({f}, self.weight)",
        "torch.addmm(self.bias, {h}, self.weight)",
        "{f} * self.scale",
        "{f} + self.bias",
        "{f} @ self.weight.t()",
        "torch.cat([self.empty, {h}])",
        "{f} @ self.empty.t()",
        "self.norm({h})",
        "F.batch_norm({h}, self.mean, self.variance, self.bias, training=True)",
        "F.layer_norm({f}, {f}.shape[-1:])",
        "F.layer_norm({h}, (6,), self.bias, self.bias)",
        "F.group_norm({h}, 2)",
        "F.instance_norm({h}.unsqueeze(0))",
        "F.rms_norm({f}, {f}.shape[-1:])",
        "F.normalize({f}, dim={d})",
        "F.embedding({i}, self.weight)",
        "F.embedding_bag({i}.view(2, -1), self.weight)",
        "F.conv1d({h}.unsqueeze(0), self.weight[:4, :4].unsqueeze(-1))[0]",
        "F.conv1d({h}.unsqueeze(0), {k}.unsqueeze(-1)[:, :4])[0]",
        "F.max_pool1d({h}, 2)",
        "F.avg_pool1d({h}, 2)",
        "F.interpolate({h}.unsqueeze(0), scale_factor=2.0)[0]",
        "F.pad({f}, (1, 1))",
        "F.cross_entropy({h}, {i})",
        "F.bilinear({h}, {k}, self.weight.view(1, 6, 6))",
        "F.scaled_dot_product_attention({h}.view(1, 2, 2, 6), {k}.view(1, 2, 2, 6), {h}.view(1, 2, 2, 6)).view(4, 6)",
        "F.scaled_dot_product_attention({h}[None, None], {k}[None, None], {k}[None, None], dropout_p=0.2)[0, 0]",
        "F.scaled_dot_product_attention({h}[None, None], {h}[None, None], {k}[None, None], is_causal=True)[0, 0]",
    ),
)

VIEWS = Kind(
    "view",
    4,
    (
        "{f}.view(-1)",
        "{f}.view(-1, 2)",
        "{f}.view(2, -1)",
        "{f}.view(2, 2, 6)",
        "{f}.view(4, 6)",
        "{f}.t()",
        "{f}.transpose(0, -1)",
        "{f}.reshape(-1, 3)",
        "{f}.reshape(4, 6)",
        "{f}[1:]",
        "{f}[:-1]",
        "{f}[..., ::2]",
        "{f}[..., 1:]",
        "{f}[0]",
        "{f}[:, 1]",
        "{f}[None]",
        "{f}[:0]",
        "{f}.unsqueeze({d})",
        "{f}.squeeze()",
        "{f}.expand(2, *{f}.shape)",
        "{f}.movedim(0, -1)",
        "{f}.diagonal()",
        "{f}.unfold(0, 2, 1)",
        "{f}.flatten()",
        "{h}.contiguous().as_strided((2, 3), (1, 2))",
        "{f}.narrow({d}, 1, 2)",
        "{f}.view_as({g})",
        "{f}.contiguous()",
        "{f}.clone()",
        "{f}.detach()",
        "{f}.detach().clone()",
        "{f}.new_zeros({f}.shape)",
        "torch.empty_like({f}).copy_({f})",
        "torch.zeros_like({f})",
        "{h}.view(torch.int32).view(torch.float32)",
        "torch.narrow_copy({f}, {d}, 0, 2)",
    ),
)

IN_PLACE = Kind(
    "in-place",
    4,
    (
        "{f}.mul_(0.5)",
        "{f}.mul_({g})",
        "{f}.add_({g})",
        "{f}.sub_({g}, alpha=0.5)",
        "{f}.div_({g}.abs() + 1)",
        "{f}.sigmoid_()",
        "{f}.tanh_()",
        "{f}.sin_()",
        "{f}.exp_().clamp_(max=3)",
        "{f}.clamp_(-1, 1)",
        "{f}.relu_()",
        "F.elu_({f})",
        "torch.selu_({f})",
        "F.hardtanh_({f})",
        "F.leaky_relu({f}, 0.1, inplace=True)",
        "F.silu({f}, inplace=True)",
        "{f}.zero_()",
        "{f}.fill_(0.3)",
        "{f}.copy_({g})",
        "{f}.t_()",
        "{f}.lerp_({g}, 0.5)",
        "{f}.addcmul_({g}, {g})",
        "{f}.cumsum_({d})",
        "{f}.masked_fill_({f} > 0, 0.1)",
        "{f}.index_fill_(0, {i}, 0.2)",
        "{f}.index_add_(0, {i}, {g})",
        "{f}.index_copy_(0, {i}, {g})",
        "{f}.index_put_(({i},), {f}.detach()[0], accumulate=True)",
        "{f}.scatter_(0, {i}[:, None], 0.5)",
        "{f}.scatter_add_(0, {i}[:, None].expand(4, 6), {k})",
        "{f}.normal_()",
        "{f}.uniform_(-1, 1)",
        "{f}.bernoulli_(0.5)",
        "{f}.exponential_().clamp_(max=2)",
        "F.dropout({f}, 0.3, inplace=True)",
        "F.rrelu({f}, training=True, inplace=True)",
        "{f}.addmm_({g}, self.weight)",
        "{f}.detach().mul_(0.5)",
        "{f}.data.mul_(0.5)",
        "{f}.requires_grad_()",
        "torch._foreach_mul_([{f}, {g}], 0.5)",
    ),
    makes=0,
    in_place=True,
)

IN_PLACE_ITEMS = Kind(
    "item",
    2,
    (
        "{f}[0] = 0.5",
        "{f}[-1] = {g}[0]",
        "{f}[..., 1] = {g}[..., 0]",
        "{f}[{f} > 0.5] = 0.5",
        "{f}[{i}] = {f}.detach()[{i}]",
        "{f}[1:] += 1",
        "{f}[:, ::2] *= {g}[:, 1::2]",
        "{f} += {g}",
        "{f} *= 0.7",
    ),
    makes=0,
    in_place=True,
)

IN_PLACE_VALUES = Kind(
    "in-place with a result",
    1,
    ("{f}.mul_(0.5)", "{f}.tanh_()", "F.relu({f}, inplace=True)", "MarksDirty.apply({f})", "{f}.add_({g}).view(-1)"),
    in_place=True,
)

RANDOM = Kind(
    "random",
    2,
    (
        "F.dropout({f}, 0.3)",
        "F.alpha_dropout({f}, 0.2, training=True)",
        "F.dropout1d({h}, 0.3)",
        "torch.bernoulli(torch.sigmoid({f}))",
        "{f} * torch.rand_like({f})",
        "{f} + torch.randn({f}.shape)",
        "F.rrelu({f}, training=True)",
        "F.gumbel_softmax({f})",
        "torch.normal({f}.detach(), 0.1)",
        "torch.empty_like({f}).uniform_(-1, 1)",
        "torch.empty(4, 6).exponential_().clamp(max=2)",
        "torch.empty_like({f}).normal_(generator=self.generator)",
        "{f} * torch.rand({f}.shape, generator=self.generator)",
        "{f} * (torch.rand_like({f}) > 0.4) / 0.6",
        "torch.poisson({f}.abs())",
        "torch.binomial(torch.full_like({f}, 4.0), torch.sigmoid({f}).detach())",
    ),
)

RANDOM_INTEGERS = Kind(
    "random integers",
    0.5,
    (
        "torch.randint(0, 4, (4,))",
        "torch.randperm(4)",
        "torch.randperm(4, generator=self.generator)",
        "torch.multinomial(F.softmax({h}, -1)[:, :4], 1).view(-1)",
    ),
)

PAIRS = Kind(
    "two outputs",
    2,
    (
        "{f}.topk(2, {d})",
        "{f}.sort({d})",
        "{f}.max({d})",
        # In memory of its own: of an expanded tensor the median is wrong, and differs from run to run.
        "{f}.contiguous().median({d})",
        "{f}.kthvalue(1, {d})",
        "{f}.cummax({d})",
        "torch.var_mean({f}, {d})",
        "torch.aminmax({f})",
        "{f}.chunk(2, {d})",
        "{f}[:2].unbind(0)",
        "{f}.split(2)",
        "{h}.split([4, 2], -1)",
        "torch.frexp({f})",
        "TwoOutputs.apply({f})",
        "F.max_pool1d({h}, 2, return_indices=True)",
        "torch.sort({h}, stable=True, dim=0)",
    ),
    makes=2,
)

TRIPLES = Kind(
    "three outputs",
    1,
    (
        "{h}.chunk(3, -1)",
        "torch.native_layer_norm({h}, (6,), self.bias, None, 1e-5)",
        "{h}.view(3, -1).unbind(0)",
        "torch.native_batch_norm({h}, self.bias, None, None, None, True, 0.1, 1e-5)",
        "torch.tensor_split({f}, 3)",
        "torch.unique({i}, return_inverse=True, return_counts=True)",
    ),
    makes=3,
)

INDEXING = Kind(
    "indexing",
    2,
    (
        "{f}[{i}]",
        "{f}[{i}, {i}]",
        "{f}.index_select(0, {i})",
        "{f}.gather(0, {i}[:, None].expand(4, 6))",
        "{f}.gather({d}, {f}.argsort({d}))",
        "{f}.take({i})",
        "{f}.scatter(0, {i}[:, None].expand(4, 6), {k})",
        "{f}.scatter_reduce(0, {i}[:, None].expand(4, 6), {k}, 'amax')",
        "{f}.index_add(0, {i}, {g})",
        "{f}.index_put(({i},), {g}, accumulate=True)",
        "{f}.masked_fill({m}, 0.1)",
        "{f}.masked_fill({f} > 0, 0.1)",
        "{f}.masked_select({f} > 0).sum()",
        "{f}[{f} > 0].square().sum()",
        "torch.zeros_like({f}).masked_scatter({f} > 0, {g})",
        "torch.where({m}, {f}, {g})",
        "torch.take_along_dim({f}, {f}.argmax({d}, keepdim=True), {d})",
        "torch.nonzero({f} > 0).float().sum()",
        "{i}.float()",
        "F.one_hot({i}, 6).float()",
        "torch.bincount({i}, minlength=4).float()",
        "{m}.float()",
    ),
)

INTEGERS = Kind("integers", 0.7, ("({i} * 3 + 1) % 4", "{h}.argmax(-1) % 4", "{i}.flip(0)", "{i}.clone()", "{i}.cumsum(0) % 4"))

MASKS = Kind("masks", 0.7, ("{f} > 0", "{f} <= {g}", "~{m}", "{f}.abs() < 0.5", "torch.isfinite({f})"))

COMPLEX = Kind(
    "complex",
    0.7,
    (
        "torch.complex({f}, {g})",
        "torch.fft.rfft({f})",
        "torch.view_as_complex({f}.reshape(-1, 2))",
        "torch.polar({f}.abs() + 0.1, {g})",
        "{c} * {c}.conj()",
        "{c} * 0.5j",
        "{c}[..., 1:]",
        "{c}.tanh()",
    ),
)

FROM_COMPLEX = Kind(
    "from complex",
    0.7,
    (
        "{c}.real",
        "{c}.imag",
        "{c}.abs()",
        "torch.view_as_real({c})",
        "torch.fft.irfft({c})",
        "({c} * {c}.conj()).real",
        "{c}.conj().imag.sin()",
    ),
)

FUNCTIONS = Kind(
    "functions",
    1.2,
    (
        "SavesInput.apply({f}, 0.5)",
        "SavesOutput.apply({f})",
        "KeepsOnContext.apply({f})",
        "ReadsTwice.apply({f}, {g})",
        "hooked({f})",
        "checkpoint(lambda t: t.sin().tanh(), {f}, use_reentrant=False)",
        "checkpoint(lambda t: F.dropout(t, 0.3).square(), {f}, use_reentrant=False)",
        "torch.vmap(lambda t: t * t.sin())({f})",
        "torch.func.jvp(torch.sin, ({f},), ({g},))[1]",
    ),
)

BUFFERS = Kind(
    "buffer",
    1.5,
    (
        "self.mean.mul_(0.9).add_({h}.detach().mean(0), alpha=0.1)",
        "self.mean = self.mean * 0.9 + {h}.detach().mean(0)",
        "self.count += 1",
        "self.count.add_((({f}.detach() > 0).sum()) % 2)",
        "self.cache.copy_({h}.detach())",
        "self.cache[self.count % 4] = {h}.detach()[0]",
        "self.cache.mul_(0.5)",
        "self.cache.lerp_({h}.detach(), 0.5)",
        "self.cache = {h}.detach()",
    ),
    makes=0,
)

FROM_BUFFERS = Kind(
    "from buffers",
    1,
    (
        "{h} + self.mean",
        "{h} * self.cache",
        "{f} * (self.count % 3)",
        "self.cache.clone()",
        "self.cache[{i}]",
        "{h} - self.variance",
    ),
)

KINDS = (
    POINTWISE,
    BINARY,
    LAYERS,
    VIEWS,
    IN_PLACE,
    IN_PLACE_ITEMS,
    IN_PLACE_VALUES,
    RANDOM,
    RANDOM_INTEGERS,
    PAIRS,
    TRIPLES,
    INDEXING,
    INTEGERS,
    MASKS,
    COMPLEX,
    FROM_COMPLEX,
    FUNCTIONS,
    BUFFERS,
    FROM_BUFFERS,
)

# rrelu fills its noise after saving it, so a hook that copies what is saved copies memory that nobody has written yet.
FILLED_LATE = "rrelu"
COPYING_REGIONS = (
    "with torch.autograd.graph.save_on_cpu()",
    "with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t)",
)
REGIONS = (
    *COPYING_REGIONS,
    "with torch.no_grad()",
    "with torch.enable_grad()",
    'with torch.autocast("cpu", torch.bfloat16)',
    'with torch.autocast("cpu", torch.bfloat16, cache_enabled=False)',
    "with torch.random.fork_rng(devices=[])",
    "with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)",
)

BRANCHES = (
    "if {h}.sum() > 0",
    "if {f}.numel() % 2 == 0",
    "if torch.rand(()) > 0.5",
    "if {i}[0] > 1",
    "for _ in range(int({i}.sum()) % 3)",
    "for _ in range(2)",
)
