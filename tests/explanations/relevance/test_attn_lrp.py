"""AttnLRP: each rule by its formula, a block of a transformer by loops, CNNs by zennit, networks by their sums."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from zennit.composites import LayerMapComposite
from zennit.rules import Gamma, Pass
from zennit.types import Activation

from protometry.explanations import LRP, PRP, AttnLRP, Targets, Upsample, choose_explainer
from protometry.explanations.relevance.attn_lrp_rules import GradientRules, quotient
from protometry.lightning_modules import ProtoPNet
from tests.explanations.backbones import moved_statistics
from tests.explanations.small_models import MeanPooled, rand, randn
from tests.lightning_modules.backbones.test_libraries import SWIN, Patches

K = 3


def explained(function, *inputs, start=None, gamma=(0.0, 0.0)):
    """Relevance of the output, given or random, and of the inputs."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    rules = GradientRules(torch.zeros(0), *gamma)
    rules.known.update(dict.fromkeys(leaves, True))
    with rules:
        output = function(*[leaf * 1 for leaf in leaves])
    torch.testing.assert_close(output, function(*[x.clone() for x in inputs]), rtol=0, atol=1e-15)
    start = randn(*output.shape, seed=9).to(output) if start is None else start
    gradients = torch.autograd.grad(output, leaves, quotient(start, output))
    return start, *[(leaf * gradient).detach() for leaf, gradient in zip(leaves, gradients, strict=True)]


def shared(terms, start, rest=0):
    """The ε-rule: terms ``(J, I)`` of sums of ``(J,)``, with a rest that absorbs, to relevance ``(I,)``."""
    result = torch.zeros(terms.shape[1], dtype=terms.dtype)
    totals = terms.sum(1) + rest
    for j in range(len(terms)):
        for i in range(terms.shape[1]):
            result[i] += terms[j, i] / totals[j] * start[j]
    return result


def double(*shape, seed=0):
    return randn(*shape, seed=seed).double()


# -- single rules ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "function",
    [F.gelu, F.silu, F.relu6, torch.sigmoid, torch.tanh, F.hardswish, F.elu, lambda x: x**2, lambda x: x.clamp(-2, 2),
     lambda x: x.softmax(1), lambda x: F.silu(x, inplace=True), lambda x: x.sigmoid_(), F.normalize, lambda x: x / 3],
)  # fmt: skip
def test_identity(function):
    """Relevance stays where it is, except where the output is 0 whatever happens."""
    x = double(2, 3, 4, 4)
    start, got = explained(function, x)
    torch.testing.assert_close(got, start * (function(x.clone()) != 0))


def test_softmax_by_proposition_3_1():
    x = double(2, 5)
    start, got = explained(lambda x: x.softmax(-1), x)
    for n in range(2):
        s = x[n].exp() / x[n].exp().sum()
        for i in range(5):
            torch.testing.assert_close(got[n, i], x[n, i] * (start[n, i] - s[i] * start[n].sum()))


@pytest.mark.parametrize("product", [lambda a, b: a @ b, lambda a, b: torch.einsum("ij,jp->ip", a, b)])
def test_matrix_product_by_proposition_3_3(product):
    a, b = double(3, 4), double(4, 2, seed=1)
    start, of_a, of_b = explained(product, a, b)
    for j in range(4):
        shares = [[a[i, j] * b[j, p] * start[i, p] / (2 * (a @ b)[i, p]) for p in range(2)] for i in range(3)]
        torch.testing.assert_close(of_a[:, j], torch.stack([sum(row) for row in shares]))
        torch.testing.assert_close(of_b[j], torch.stack([sum(column) for column in zip(*shares, strict=True)]))


@pytest.mark.parametrize("function", [lambda x, gate: x * gate, lambda x, gate: x.mul_(gate)])
def test_gates_get_half(function):
    start, of_x, of_gate = explained(function, double(2, 3, 4), double(2, 3, 1, seed=1))
    torch.testing.assert_close(of_x, start / 2)
    torch.testing.assert_close(of_gate, start.sum(2, keepdim=True) / 2)


@pytest.mark.parametrize("function", [lambda x, d: x / d, lambda x, d: x * d.reciprocal(), lambda x, d: x * (1 / d)])
def test_divisors_get_nothing(function):
    start, of_x, _ = explained(lambda x, d: function(x, d) + 0 * d, double(2, 3), 1 + rand(2, 3).double())
    torch.testing.assert_close(of_x, start)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("kind", ["layer", "group", "rms"])
def test_normalisation_by_proposition_3_4(kind, centred):
    x, weight, bias = double(1, 6), double(6, seed=1), double(6, seed=2)
    functions = {
        "layer": lambda x: F.layer_norm(x, (6,), weight, bias, 0.1),
        "group": lambda x: F.group_norm(x, 1, weight, bias, 0.1),
        "rms": lambda x: F.rms_norm(x, (6,), weight, 0.1),
    }
    start, got = explained(functions[kind], x)
    centre = torch.eye(6) - 1 / 6 if kind != "rms" else torch.eye(6)
    inverse = ((centre.double() @ x[0]).square().mean() + 0.1).rsqrt()
    expected = shared(centre * x[0] * inverse * weight[:, None], start[0], 0 if kind == "rms" else bias)
    torch.testing.assert_close(got[0], expected)


@pytest.mark.parametrize("mask", [None, torch.eye(3, dtype=torch.bool), double(3, 3, seed=5)])
def test_fused_attention_is_its_parts(mask):
    q, k, v = (double(2, 4, 3, 5, seed=seed) for seed in range(3))

    def parts(q, k, v):
        scores = q @ k.mT * 5**-0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
        return scores.softmax(-1) @ v

    start = double(2, 4, 3, 5, seed=3)
    fused = explained(lambda *qkv: F.scaled_dot_product_attention(*qkv, attn_mask=mask) + 0, q, k, v, start=start)
    torch.testing.assert_close(fused, explained(parts, q, k, v, start=start))


@pytest.mark.parametrize("layer", [
    nn.Linear(5, 3), nn.Conv2d(5, 4, 3, stride=2, padding=1), nn.Conv2d(4, 6, 3, groups=2, bias=False),
    nn.Sequential(nn.Conv2d(5, 4, 3), nn.BatchNorm2d(4)), nn.Conv1d(3, 4, 2),
])  # fmt: skip
def test_gamma_rule_of_zennit(layer):
    """A BatchNorm is part of its convolution: zennit is given both as one."""
    layer = layer.double().requires_grad_(False).eval()
    merged = layer
    if isinstance(layer, nn.Sequential):
        moved_statistics(layer)
        merged = torch.nn.utils.fuse_conv_bn_eval(*layer)
    shape = {nn.Linear: (2, 5), nn.Conv1d: (2, 3, 7)}.get(type(layer), (2, getattr(layer, "in_channels", 5), 7, 6))
    x = double(*shape)
    start, got = explained(layer, x, gamma=(0.25, 0.25))
    with LayerMapComposite([(type(merged), Gamma(0.25, stabilizer=1e-30))]).context(merged) as modified:
        x = x.requires_grad_()
        (expected,) = torch.autograd.grad(modified(x), x, start)
    torch.testing.assert_close(got, expected)


def test_zennit_agrees_on_a_network():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 6, 3), nn.SiLU(), nn.Conv2d(6, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 1), nn.Sigmoid()
    network = nn.Sequential(*layers).double().requires_grad_(False)
    x = double(2, 3, 8, 8)
    start, got = explained(network, x, gamma=(0.3, 0))
    composite = LayerMapComposite([(nn.Conv2d, Gamma(0.3, stabilizer=1e-30)), (Activation, Pass())])
    with composite.context(network) as modified:
        x = x.requires_grad_()
        (expected,) = torch.autograd.grad(modified(x), x, start)
    torch.testing.assert_close(got, expected)


# -- a block of a transformer ------------------------------------------------------------------------------------------
class Block(nn.Module):
    """Attention with one head, and a layer with GELU; each behind a norm and beside a residual connection."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        for parameter in self.parameters():
            nn.init.normal_(parameter)

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.out(F.scaled_dot_product_attention(self.q(y), self.k(y), self.v(y)))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def back_linear(layer, x, start):
    return torch.stack([shared(layer.weight * x[n], start[n], layer.bias) for n in range(len(x))])


def back_norm(norm, x, start):
    centre = torch.eye(x.shape[1]).to(x) - 1 / x.shape[1]
    rows = []
    for n in range(len(x)):
        inverse = ((x[n] - x[n].mean()).square().mean() + norm.eps) ** -0.5
        rows.append(shared(centre * x[n] * inverse * norm.weight[:, None], start[n], norm.bias))
    return torch.stack(rows)


def back_product(a, b, start):
    """Proposition 3.3 with loops, for a @ b."""
    of_a, of_b = torch.zeros_like(a), torch.zeros_like(b)
    for i in range(len(a)):
        for p in range(b.shape[1]):
            for j in range(a.shape[1]):
                share = a[i, j] * b[j, p] / (2 * (a[i] @ b[:, p])) * start[i, p]
                of_a[i, j] += share
                of_b[j, p] += share
    return of_a, of_b


def back_block(block, x, start):
    """Relevance of the input of ``Block``, ``(N, D)``: operation by operation, no gradient."""
    y = block.norm1(x)
    q, k, v = block.q(y), block.k(y), block.v(y)
    scores = q @ k.T / x.shape[1] ** 0.5
    attention = scores.softmax(1)
    mixed = attention @ v
    added = block.out(mixed)
    middle = x + added
    z = block.norm2(middle)
    hidden = block.up(z)
    more = block.down(F.gelu(hidden))
    total = middle + more

    to_more = start * more / total
    to_hidden = back_linear(block.down, F.gelu(hidden), to_more)
    to_middle = start * middle / total + back_norm(block.norm2, middle, back_linear(block.up, z, to_hidden))
    to_mixed = back_linear(block.out, mixed, to_middle * added / middle)
    to_attention, to_v = back_product(attention, v, to_mixed)
    to_scores = scores * (to_attention - attention * to_attention.sum(1, keepdim=True))
    to_q, to_k = back_product(q, k.T, to_scores)
    to_y = back_linear(block.q, y, to_q) + back_linear(block.k, y, to_k.T) + back_linear(block.v, y, to_v)
    return to_middle * x / middle + back_norm(block.norm1, x, to_y)


@pytest.mark.parametrize("seed", range(3))
def test_a_block_rule_by_rule(seed):
    torch.manual_seed(seed)
    block, x = Block().double().requires_grad_(False), double(3, 4, seed=seed)
    start, got = explained(block, x)
    torch.testing.assert_close(got, back_block(block, x, start))


def test_multihead_attention_is_its_parts():
    torch.manual_seed(0)
    module, x = nn.MultiheadAttention(6, 2, batch_first=True).double().requires_grad_(False).eval(), double(2, 3, 6)

    def parts(x):
        q, k, v = F.linear(x, module.in_proj_weight, module.in_proj_bias).unflatten(2, (3, 2, 3)).permute(2, 0, 3, 1, 4)
        return module.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    start = double(2, 3, 6, seed=1)
    for weights in (True, False):
        _, whole = explained(lambda x, w=weights: module(x, x, x, need_weights=w)[0], x, start=start)
        torch.testing.assert_close(whole, explained(parts, x, start=start)[1])


# -- whole networks ----------------------------------------------------------------------------------------------------
NETWORKS = {  # the default explainer last
    "ViT": ({"name": "timm/test_vit", "init_args": {"reg_tokens": 4}}, (64, 64), AttnLRP),
    "Swin": ({"name": "timm/swin_tiny_patch4_window7_224", "init_args": SWIN}, (112, 112), AttnLRP),
    "ConvNeXt": ({"name": "timm/test_convnext"}, (96, 64), Upsample),
    "squeeze-and-excite": ({"name": "timm/test_efficientnet"}, (96, 64), Upsample),
    "own": (Patches(), (64, 48), PRP),
    "our ConvNeXt": ({"name": "convnext_tiny", "until": "features.3"}, (64, 64), Upsample),
}
UNITS = Targets("unit", torch.tensor([[0, 3], [5, 1]]))


@pytest.fixture(scope="module", params=NETWORKS)
def network(request):
    """A ProtoPNet without biases, two images and the default explainer; only to be read."""
    backbone, size, default = NETWORKS[request.param]
    torch.manual_seed(0)
    model = ProtoPNet(num_classes=K, image_size=size, backbone=backbone, prototypes_per_class=2).eval()
    for name, parameter in model.backbone.named_parameters():
        if any(word in name for word in ("bias", "pos_embed", "cls_token", "reg_token")):
            nn.init.zeros_(parameter)
    return model, rand(2, 3, *size), default


def test_relevance_is_conserved_but_for_softmax(network, monkeypatch):
    model, images, _ = network
    lost, softmax = [], torch.Tensor.softmax

    def watched(scores, dim):
        attention = softmax(scores, dim)
        attention.register_hook(lambda gradient: lost.append((gradient * attention).sum().item()))
        scores.register_hook(lambda gradient: lost.append(-(gradient * scores).sum().item()))
        return attention

    explainer = AttnLRP()
    assert explainer.supports(model) is None
    monkeypatch.setattr(torch.Tensor, "softmax", watched)
    total = explainer.attribute(model, images, UNITS).sum().item()
    assert total + sum(lost) == pytest.approx(4, abs=1e-3)
    assert explainer.absorbed == pytest.approx(1 - total / 4, abs=1e-6)
    assert abs(explainer.absorbed) < 0.05
    classes = Targets("class", torch.tensor([[2], [0]]))
    lost.clear()
    arrived = explainer.attribute(model, images, classes).sum().item() + sum(lost)
    contributions = model.contributions(model(images), classes.ids[:, 0])
    assert arrived == pytest.approx(contributions.sum().item(), abs=1e-3 * contributions.abs().sum().item())


def test_values_and_order(network):
    """The model computes what it did, image by image."""
    model, images, _ = network
    explainer = AttnLRP()
    observed = explainer.observe(model, images)
    with torch.no_grad():
        assert torch.equal(observed.latent, model(images).latent)
    maps = explainer.attribute(model, images, UNITS, output=observed)
    for n in range(2):
        alone = explainer.attribute(model, images[n : n + 1], Targets("unit", UNITS.ids[n : n + 1]))
        torch.testing.assert_close(alone[0], maps[n], rtol=1e-3, atol=1e-4 * maps[n].abs().max().item())


def test_the_default_explainer(network):
    model, _, default = network
    with torch.inference_mode():  # as in an evaluation
        assert type(choose_explainer(None, model)) is default


def test_pixels_are_normalised_ones():
    """A black pixel counts, as it does for the first layer."""
    model = MeanPooled(nn.Conv2d(3, 2, 1, bias=False), torch.ones(2, 2))
    model.backbone = nn.Sequential(Normalize(), model.backbone)
    images, targets = rand(1, 3, 4, 6), Targets("unit", torch.tensor([[0]]))
    weight = model.backbone[1].weight[0].detach()
    terms = (weight * (images[0] - 0.4) / 0.2).sum(0)
    share = terms.clamp(min=0) / terms.clamp(min=0).sum()
    torch.testing.assert_close(AttnLRP(0, 0).attribute(model, images, targets)[0, 0], share)


class Normalize(nn.Module):
    def forward(self, images):
        return (images.to(torch.float32) - 0.4) / 0.2


# -- what is refused ---------------------------------------------------------------------------------------------------
class Doubled(torch.autograd.Function):
    """An operation that no mode sees."""

    @staticmethod
    def forward(context, x):
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        return 2 * gradient


@pytest.mark.parametrize(("function", "reason"), [
    (lambda x: x.exp(), r"cannot pass 'backbone' \(Lambda, operation 'exp'\)"),
    (lambda x: x + x.sin_(), "operation 'sin'"),
    (lambda x: Doubled.apply(x) + 1, "operation 'unseen, before add'"),
    (Doubled.apply, "its latent is not computed from the images"),
    (lambda x: x.detach() + 1, "its latent is not computed from the images"),
    (lambda x: x.clamp(min=x.mean()), "operation 'clamp'"),
    (lambda x: F.conv2d(x, x[:1].expand(3, 3, -1, -1), padding=2)[:, :, :4, :6], "operation 'conv2d'"),
    (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), "operation 'scaled_dot_product_attention'"),
    (lambda x: F.batch_norm(x, None, None, training=True), "operation 'batch_norm'"),
    (lambda x: (x @ x.mT).sum() + x.mul_(2), "it has no gradient: .*modified by an inplace operation"),
])  # fmt: skip
def test_what_has_no_rule(function, reason):
    class Lambda(nn.Module):
        def forward(self, images):
            return function(images * 1 + 0.5 * images.flip(3))

    model = MeanPooled(Lambda(), torch.ones(2, 3))
    with pytest.raises(ValueError, match=reason):
        AttnLRP().attribute(model, rand(1, 3, 4, 6), Targets("unit", torch.tensor([[0]])))


def test_explainers_of_convolutions_refuse_attention():
    model = ProtoPNet(num_classes=K, image_size=(64, 64), backbone={"name": "timm/test_vit"}).eval()
    for explainer in (PRP(), LRP()):
        assert "relevance cannot pass" in explainer.supports(model)
        with pytest.raises(ValueError, match="AttnLRP"):
            choose_explainer(explainer, model)


@pytest.mark.parametrize("name", ["gamma_conv", "gamma_linear"])
def test_negative_gamma(name):
    with pytest.raises(ValueError, match=f"`{name}` to be >= 0, but got -1"):
        AttnLRP(**{name: -1})


def test_maps_of_other_gamma_are_not_reused():
    torch.manual_seed(0)
    model, images = ProtoPNet(num_classes=K, image_size=(32, 32)).eval(), rand(2, 3, 32, 32)
    output = AttnLRP(1, 1).observe(model, images)
    given = AttnLRP().attribute(model, images, UNITS, output=output)
    assert torch.equal(given, AttnLRP().attribute(model, images, UNITS))
    assert not torch.equal(given, AttnLRP(1, 1).attribute(model, images, UNITS))
