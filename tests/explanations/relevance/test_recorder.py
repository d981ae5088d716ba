from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision import models

from protometry.explanations.relevance.convolution_rules import Weighted
from protometry.explanations.relevance.recorder import OverwrittenError, record
from protometry.explanations.relevance.tape import _states
from tests.explanations.backbones import DenseBlock, Residual, UnitReader, moved_statistics, taped
from tests.explanations.small_models import rand

close = torch.testing.assert_close
IMAGES = rand(2, 3, 8, 10)


def spread(backbone, images=IMAGES, seed=1, **options):
    """Pixel relevance and its sum at the latent, for a random start in proportion to the latent."""
    latent, tape = taped(backbone, images, **options)
    start = rand(*latent.shape, seed=seed) * latent.abs()
    return tape.backward(start.clone())[0], start.sum((1, 2, 3))


def layers(tape):
    return [node.rule for node in tape.nodes if isinstance(node.rule, Weighted)]


class Lambda(nn.Module):
    """A backbone written as a function of the images and one convolution."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return self.function(self.conv, x)


def vgg(norm=False):
    return models.vgg.make_layers([8, 8, "M", 16, 16, "M", 16], batch_norm=norm)


def squeezenet():
    return models.squeezenet1_1(num_classes=2).features


class TestConservation:
    """Σ pixels = Σ start to 1e-4, with BatchNorm statistics that are not the identity."""

    @pytest.mark.parametrize(
        "more",
        [
            lambda: (nn.MaxPool2d(2), nn.Conv2d(6, 4, 3, padding=1), nn.ReLU()),
            lambda: (nn.MaxPool2d(3, 2, ceil_mode=True), nn.Conv2d(6, 4, 1), nn.Sigmoid()),
            lambda: (nn.AvgPool2d(3, 2, 1), nn.Conv2d(6, 4, 1), nn.Softmax(dim=1)),
            lambda: (nn.AdaptiveAvgPool2d(2), nn.Dropout2d(), nn.Identity(), nn.Conv2d(6, 4, 1), nn.Tanh()),
            lambda: (nn.Conv2d(6, 6, 3, groups=6), nn.ReLU6(), nn.Conv2d(6, 4, 3, dilation=2)),
            lambda: (nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 8), nn.ReLU(), nn.Unflatten(1, (2, 2, 2))),
        ],
        ids=["max", "ceil", "average", "adaptive", "depthwise", "linear"],
    )
    def test_every_rule(self, more):
        torch.manual_seed(0)
        backbone = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(inplace=True), *more())
        pixels, expected = spread(moved_statistics(backbone))
        close(pixels.sum((1, 2)), expected, rtol=1e-4, atol=0)

    @pytest.mark.parametrize("build", [vgg, partial(vgg, norm=True), squeezenet], ids=["vgg", "vgg_bn", "squeezenet"])
    def test_torchvision(self, build):
        torch.manual_seed(0)
        pixels, expected = spread(moved_statistics(build()), rand(1, 3, 32, 40))
        close(pixels.sum((1, 2)), expected, rtol=1e-4, atol=0)

    def test_densenet_folds_what_one_layer_reads_and_passes_the_rest(self):
        torch.manual_seed(0)
        backbone = moved_statistics(models.DenseNet(8, (2, 2), 16, num_classes=2).features)
        latent, tape = taped(backbone, rand(1, 3, 32, 40))
        close(tape.backward(torch.ones_like(latent))[0].sum(), latent.new_tensor(latent.numel()), rtol=1e-4, atol=0)
        folded = sum(rule.filters.scale is not None for rule in layers(tape))
        passed = sum(node.operation == "batch_norm" for node in tape.nodes) - folded
        # conv0 -> norm0 and 4 conv1 -> norm2; 4 norm1, one transition norm and norm5 follow a concatenation
        assert (folded, passed) == (5, 6)


class TestFolding:
    def test_relevance_is_that_of_the_folded_layers(self):
        torch.manual_seed(0)
        backbone = nn.Sequential(
            nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Conv2d(5, 4, 3), nn.BatchNorm2d(4)
        )
        moved_statistics(backbone)
        parts = [
            nn.utils.fuse_conv_bn_eval(backbone[0], backbone[1]),
            backbone[2],
            nn.utils.fuse_conv_bn_eval(backbone[3], backbone[4]),
        ]
        close(spread(backbone)[0], spread(nn.Sequential(*parts))[0], rtol=1e-4, atol=1e-6)

    def test_a_normalization_read_beside_another_reader_is_passed(self):
        """BatchNorm(conv) + conv: the convolution feeds both, so that folding would change what the sum reads."""
        torch.manual_seed(0)
        norm = moved_statistics(nn.BatchNorm2d(3))
        with torch.no_grad():
            norm.weight.fill_(-1.0)

        def function(conv, x):
            seen = conv(x)
            return norm(seen) + seen

        backbone = Lambda(function)
        backbone.norm = norm
        _, tape = taped(backbone, IMAGES)
        (rule,) = layers(tape)
        assert rule.filters.scale is None
        assert torch.equal(rule.filters.folded, backbone.conv.weight)

    def test_a_weight_read_twice_is_folded_with_each_of_its_normalizations(self):
        torch.manual_seed(0)
        first, second = (moved_statistics(nn.BatchNorm2d(3), seed) for seed in (1, 2))
        backbone = Lambda(lambda conv, x: second(conv(first(conv(x)).relu())))
        backbone.norms = nn.ModuleList([first, second])
        _, tape = taped(backbone, IMAGES)
        scales = [(rule.filters.folded / backbone.conv.weight)[:, 0, 0, 0] for rule in layers(tape)]
        for scale, norm in zip(scales, (first, second), strict=True):
            close(scale, norm.weight / (norm.running_var + norm.eps).sqrt())


class TestFlow:
    def test_relevance_of_a_tensor_is_the_sum_over_its_uses(self):
        weight = torch.eye(3).view(3, 3, 1, 1)

        def function(conv, x):
            seen = conv(x)
            return torch.cat([seen, F.max_pool2d(seen, 1), seen], dim=1)

        _, tape = taped(Lambda(function), IMAGES)
        layers(tape)[0].filters = type(layers(tape)[0].filters)(weight)
        tape.nodes[0].rule.operator = type(tape.nodes[0].rule.operator)((1, 1), (0, 0), (1, 1), 1)
        pixels, _ = tape.backward(torch.ones(2, 9, 8, 10))
        close(pixels, torch.full((2, 8, 10), 9.0))

    def test_a_sum_of_a_tensor_with_itself(self):
        pixels, expected = spread(Lambda(lambda conv, x: (lambda y: y + y)(conv(x).relu())))
        close(pixels.sum((1, 2)), expected, rtol=1e-4, atol=0)

    def test_pixels_may_be_read_by_several_layers_and_reach_the_latent_by_themselves(self):
        backbone = Lambda(lambda conv, x: torch.cat([conv(x), conv((x - 0.5) / 0.25), x], dim=1))
        latent, tape = taped(backbone, IMAGES)
        bounds = [rule.bounds[:, 0].flatten().tolist() for rule in layers(tape)]
        assert bounds == [[0, 1], [-2, 2]]
        start = torch.zeros_like(latent)
        start[:, 6:] = IMAGES
        close(tape.backward(start)[0], IMAGES.sum(1))
        pixels, expected = spread(backbone)
        close(pixels.sum((1, 2)), expected, rtol=1e-4, atol=0)

    def test_scalar_bounds(self):
        _, tape = taped(Lambda(lambda conv, x: conv(conv(x))), IMAGES, scheme="scalar")
        first, second = layers(tape)
        close(first.bounds[:, :, 0, 0], torch.tensor([[-2.118] * 3, [2.640] * 3]))
        assert second.bounds is None
        assert not first.ladder
        assert not second.ladder

    def test_relevance_stays_in_the_receptive_field(self):
        """3x3 convolution, pool by 2, 3x3 convolution: cell (2, 1) sees rows 1 to 8 and columns -1 to 6."""
        torch.manual_seed(0)
        backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1)
        )
        latent, tape = taped(moved_statistics(backbone), rand(1, 3, 12, 12))
        start = torch.zeros_like(latent)
        start[:, :, 2, 1] = 1
        pixels = tape.backward(start)[0][0]
        assert pixels[1:9, :7].sum() == pytest.approx(8, rel=1e-4)
        pixels[1:9, :7] = 0
        assert not pixels.any()

    @pytest.mark.parametrize(
        ("function", "non_negative"),
        [
            (F.relu, True), (F.relu6, True), (torch.sigmoid, True), (lambda x: x.softmax(1), True), (torch.tanh, False),
            (F.hardtanh, False), (lambda x: F.max_pool2d(x.relu(), 2), True), (lambda x: F.avg_pool2d(x, 2), False),
            (lambda x: x.relu() + x.sigmoid(), True), (lambda x: x.relu() + x, False), (lambda x: x.relu() - 1, False),
            (lambda x: torch.cat([x.relu(), x], 1), False), (lambda x: F.dropout(x.relu(), 0.5, False), True),
            (lambda x: x.relu().contiguous(memory_format=torch.channels_last), True),
        ],
    )  # fmt: skip
    def test_what_cannot_be_negative_is_known_beforehand(self, function, non_negative):
        _, tape = taped(Lambda(lambda conv, x: function(conv(x))), IMAGES)
        assert tape.latent.non_negative == non_negative


class TestRecording:
    @pytest.mark.parametrize("block", [DenseBlock, Residual])
    def test_the_output_is_that_of_the_plain_forward(self, block):
        torch.manual_seed(0)
        backbone = moved_statistics(block())
        latent, _ = taped(backbone, IMAGES)
        with torch.no_grad():
            assert torch.equal(latent, backbone(IMAGES))
        assert not latent.requires_grad

    def test_what_the_rules_saw_is_not_overwritten(self):
        torch.manual_seed(0)
        backbone = moved_statistics(Residual())
        _, tape = taped(backbone, IMAGES)
        with torch.no_grad():
            seen = backbone.stem(IMAGES).relu()
            body = backbone.body(seen)
        rule = tape.nodes[-2].rule
        assert torch.equal(rule.a, body)
        assert torch.equal(rule.b, seen)

    def test_no_hook_stays(self):
        reader = UnitReader(moved_statistics(DenseBlock()), 12)
        record(reader, IMAGES, places=True)
        assert not any(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in reader.modules())

    def test_nothing_is_kept_alive(self):
        reader = UnitReader(moved_statistics(DenseBlock()), 12)
        output, tape = record(reader, IMAGES)
        tape.backward(torch.ones_like(output.latent))
        gone = [weakref.ref(thing) for thing in (tape, output.latent, tape.nodes[0].rule.x, reader)]
        gc.disable()  # by reference counts alone: a batch's activations must not wait for the collector
        try:
            del output, tape
            assert [thing() is None for thing in gone[:3]] == [True, True, False]  # the last is IMAGES
        finally:
            gc.enable()
        del reader
        gc.collect()
        assert gone[3]() is None

    def test_a_tape_fits_only_what_it_recorded(self):
        reader = UnitReader(moved_statistics(DenseBlock()), 12)
        _, tape = record(reader, IMAGES)
        assert tape.fits(reader, IMAGES, "channel")
        assert not tape.fits(reader, IMAGES.clone(), "channel")
        assert not tape.fits(reader, IMAGES, "scalar")
        assert not tape.fits(UnitReader(DenseBlock(), 12), IMAGES, "channel")

    @pytest.mark.parametrize("change", ["step", "replace", "data", "buffer", "load"])
    def test_changed_weights_are_noticed(self, change):
        torch.manual_seed(0)
        backbone = moved_statistics(nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU()))
        reader = UnitReader(backbone, 5)
        _, tape = record(reader, IMAGES)
        _, same = record(reader, IMAGES)
        assert layers(tape)[0].filters is layers(same)[0].filters
        before = same.backward(torch.ones(2, 5, 6, 8))[0]
        with torch.inference_mode():
            if change == "step":
                backbone[0].weight.sub_(0.5)
            elif change == "buffer":
                backbone[1].running_var.copy_(torch.linspace(0.01, 5, 5))
            elif change == "load":
                backbone.load_state_dict({name: value * -0.5 for name, value in backbone.state_dict().items()})
        if change == "data":
            backbone[0].weight.data = backbone[0].weight.data - 0.5
        elif change == "replace":
            backbone[0].weight = nn.Parameter(backbone[0].weight.detach() - 0.5)
        assert not tape.fits(reader, IMAGES, "channel")
        _, after = record(reader, IMAGES)
        weight, norm = backbone[0].weight, backbone[1]
        expected = weight * (norm.weight / (norm.running_var + norm.eps).sqrt())[:, None, None, None]
        torch.testing.assert_close(layers(after)[0].filters.folded, expected.detach(), equal_nan=True)
        if change != "buffer":  # a positive factor per output does not change shares
            assert not torch.allclose(after.backward(torch.ones(2, 5, 6, 8))[0], before)

    def test_tensors_made_in_inference_mode_cannot_be_trusted_to_stay(self):
        reader = UnitReader(nn.Conv2d(3, 2, 1), 2)
        with torch.inference_mode():
            reader.backbone.weight.data = reader.backbone.weight.data * 1  # no version counter
            _, tape = record(reader, IMAGES)
            assert not tape.fits(reader, IMAGES, "channel")

    def test_computed_weights_are_not_kept(self):
        def function(conv, x):
            return F.conv2d(x, conv.weight / conv.weight.norm(), padding=1)

        reader = UnitReader(Lambda(function), 3)
        first, second = (layers(record(reader, IMAGES)[1])[0].filters for _ in range(2))
        assert first is not second
        assert not _states[reader].filters


class Scaled(nn.Module):
    """Squeeze and excitation."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.mean((2, 3), keepdim=True).sigmoid()


class TestObstacles:
    @pytest.mark.parametrize(
        ("module", "kind", "operation"),
        [
            (nn.LayerNorm([3, 8, 10]), "LayerNorm", "layer_norm"),
            (nn.GroupNorm(1, 3), "GroupNorm", "group_norm"),
            (nn.BatchNorm2d(3, track_running_stats=False), "BatchNorm2d", "batch_norm"),
            (nn.GELU(), "GELU", "gelu"),
            (nn.Softmax(dim=2), "Softmax", "softmax"),
            (nn.Conv2d(3, 3, 3, padding="same"), "Conv2d", "conv2d"),
            (nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect"), "Conv2d", "pad"),
            (nn.ConvTranspose2d(3, 3, 3), "ConvTranspose2d", "conv_transpose2d"),
            (nn.AdaptiveMaxPool2d(2), "AdaptiveMaxPool2d", "adaptive_max_pool2d"),
            (Scaled(), "Scaled", "mean"),
        ],
    )
    def test_are_named_with_their_place(self, module, kind, operation):
        backbone = nn.Sequential(nn.Conv2d(3, 3, 1), nn.Sequential(nn.ReLU(), module))
        _, tape = taped(backbone, IMAGES, places=True)
        assert tape.obstacle is not None
        assert (tape.obstacle.place, tape.obstacle.operation) == (("backbone.1.1", kind), operation)

    @pytest.mark.parametrize(
        "function",
        [
            lambda conv, x: conv(x) - x,
            lambda conv, x: torch.add(conv(x), x, alpha=2),
            lambda conv, x: conv(x) * torch.ones(5, 1, 1, 1, 1),
            lambda conv, x: 1 / conv(x),
            lambda conv, x: conv(x).sub_(1),
            lambda conv, x: F.conv2d(x, conv.weight[:, :1], groups=3),  # pixels by groups
            lambda conv, x: F.conv2d(torch.ones(1, 3, 8, 8), x[:, :, :3, :3]),  # a kernel that is an image
            lambda conv, x: torch.cat([conv(x), torch.ones_like(x)], 1),
            lambda conv, x: F.max_pool2d(conv(x), 2, return_indices=True)[0],
            lambda conv, x: conv(x).split(1, 1)[0],
        ],
    )
    def test_arguments_that_no_rule_covers(self, function):
        backbone = Lambda(function)
        with torch.no_grad():
            latent = backbone(IMAGES)
        _, tape = record(
            UnitReader(nn.Sequential(backbone, nn.Flatten(2), nn.Unflatten(2, (1, -1))), latent.shape[1]), IMAGES
        )
        assert tape.obstacle is not None

    def test_off_the_way_to_the_latent_anything_goes(self):
        def function(conv, x):
            seen = conv(x)
            F.gelu(seen).mean()
            return seen

        assert taped(Lambda(function), IMAGES)[1].obstacle is None

    def test_reading_what_was_changed_in_place_is_an_error(self):
        def function(conv, x):
            seen = conv(x)
            F.relu(seen, inplace=True)
            return seen * 2

        with pytest.raises(OverwrittenError, match=r"after changing it in place, but 'mul' in 'backbone' does"):
            record(UnitReader(Lambda(function), 3), IMAGES, places=True)
