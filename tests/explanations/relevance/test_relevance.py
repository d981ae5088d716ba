from __future__ import annotations

import warnings
from functools import cache

import pytest
import torch
from torch import nn

from protometry.explanations.explainer import Targets
from protometry.explanations.relevance.prp_and_lrp import LRP, PRP
from protometry.lightning_modules import Classifier, ProtoPNet
from protometry.lightning_modules.contract import ModelOutput
from tests.explanations.backbones import UnitReader, moved_statistics, protopnet
from tests.explanations.small_models import MeanPooled, rand, randn

close = torch.testing.assert_close
IMAGES = rand(2, 3, 64, 64)
UNITS = torch.tensor([[0, 3], [5, 1]])
BACKBONES = ["sketch", "resnet18", "resnet50", "mobilenet_v2"]


@cache
def shared(backbone):
    """Built once for the tests that only read it."""
    return protopnet(backbone)


def explained(explainer, model, kind="unit", ids=UNITS, images=IMAGES, output=None):
    return explainer.attribute(model, images, Targets(kind, ids), output=output)


class TestConservation:
    @pytest.mark.parametrize("backbone", BACKBONES)
    def test_units(self, backbone):
        """1e-4 of the start, on every backbone, with BatchNorm statistics that are not the identity."""
        explainer = PRP()
        assert explainer.supports(shared(backbone)) is None
        sums = explained(explainer, shared(backbone)).sum((2, 3))
        close(sums, torch.ones(2, 2), rtol=0, atol=1e-4)
        if backbone == "mobilenet_v2":
            assert max(explainer.bypass.values()) > 0.1
            assert all(path.startswith("backbone.net.features.") for path in explainer.bypass)
        else:
            assert explainer.bypass == {}

    def test_a_finer_grid(self):
        torch.manual_seed(0)
        model = Classifier(num_classes=3, image_size=(32, 48), backbone={"name": "resnet18", "strides": "reduced"})
        maps = explained(PRP(), moved_statistics(model), images=rand(2, 3, 32, 48))
        close(maps.sum((2, 3)), torch.ones(2, 2), rtol=0, atol=1e-4)

    def test_without_the_ladder_mobilenet_loses_nearly_all(self):
        maps = explained(PRP(bounds="scalar"), shared("mobilenet_v2"))
        assert maps.sum((2, 3)).max() < 0.1
        assert maps.sum((2, 3)).min() > 0

    @pytest.mark.parametrize("backbone", ["sketch", "resnet18"])
    def test_scores(self, backbone):
        scores = shared(backbone)(IMAGES).scores.gather(1, UNITS)
        close(explained(PRP(start="score"), shared(backbone)).sum((2, 3)), scores.detach(), rtol=1e-4, atol=0)

    @pytest.mark.parametrize("options", [{}, {"similarity": "cosine", "addon": "linear"}])
    def test_classes(self, options):
        """A class map is the sum of the unit maps, weighted by contribution, and sums to the contributions."""
        model = protopnet("sketch", 32, **options)
        model.prune(torch.tensor([True, True, False, True, True, True]))
        images, classes = rand(2, 3, 32, 32), torch.tensor([[2], [0]])
        contributions = model.contributions(model(images), classes[:, 0]).detach()
        units = torch.tensor([[0, 1, 3, 4, 5]]).expand(2, -1)
        weighted = explained(PRP(), model, ids=units, images=images) * contributions.gather(1, units)[:, :, None, None]
        got = explained(LRP(), model, "class", classes, images)[:, 0]
        close(got, weighted.sum(1), rtol=1e-4, atol=1e-6)
        bound = 1e-4 * contributions.abs().sum(1)
        assert ((got.sum((1, 2)) - contributions.sum(1)).abs() < bound).all()

    def test_classes_of_mean_pooled_channels(self):
        torch.manual_seed(0)
        model = moved_statistics(Classifier(num_classes=3, image_size=(32, 32)))
        images, classes = rand(2, 3, 32, 32), torch.tensor([[2, 0], [0, 1]])
        output = model(images)
        expected = (output.logits - model.linear.bias).gather(1, classes).detach()
        bound = 1e-4 * torch.stack([model.contributions(output, column).abs().sum(1) for column in classes.T], 1)
        maps = explained(LRP(), model, "class", classes, images)
        assert ((maps.sum((2, 3)) - expected).abs() < bound).all()


def test_an_identity_backbone_hands_the_start_to_the_pixels():
    images = rand(2, 3, 4, 6)
    maps = explained(PRP(), MeanPooled(nn.Identity(), torch.ones(2, 3)), ids=torch.tensor([[0], [2]]), images=images)
    expected = torch.stack([images[0, 0] / images[0, 0].sum(), images[1, 2] / images[1, 2].sum()])
    close(maps[:, 0], expected)


class TestSharing:
    """What a call may depend on."""

    @pytest.mark.parametrize("backbone", ["sketch", "mobilenet_v2"])
    def test_equal_images_give_equal_bits_whoever_else_is_in_the_batch(self, backbone):
        """Also where another image needs the ladder: black leaves windows empty."""
        others = torch.stack([IMAGES[0], torch.zeros(3, 64, 64)])
        explainer, model = PRP(), shared(backbone)
        assert torch.equal(explained(explainer, model)[0], explained(explainer, model, images=others)[0])

    @pytest.mark.parametrize("explainer", [PRP(), PRP(bounds="scalar"), PRP(start="score")])
    def test_one_forward_serves_every_call(self, explainer):
        model, forwards = protopnet("sketch", 32), []
        images = rand(2, 3, 32, 32)
        assert explainer.supports(model) is None
        handle = model.register_forward_hook(lambda *_: forwards.append(1))
        output = explainer.observe(model, images)
        first = explained(explainer, model, images=images, output=output)
        assert torch.equal(explained(explainer, model, images=images, output=output), first)
        explained(LRP(explainer.bounds), model, "class", torch.tensor([[0], [1]]), images, output)
        assert len(forwards) == 1
        assert torch.equal(explained(explainer, model, images=images), first)
        assert torch.equal(explained(explainer, model, images=images, output=model(images)), first)
        assert len(forwards) == 4
        handle.remove()

    def test_a_map_never_comes_from_changed_weights_or_other_images(self):
        model, explainer = protopnet("sketch", 32), PRP()
        images = rand(2, 3, 32, 32)
        output = explainer.observe(model, images)
        before = explained(explainer, model, images=images, output=output)
        with torch.no_grad():
            model.backbone.net.block1[0].weight.neg_()
        after = explained(explainer, model, images=images, output=output)
        assert not torch.allclose(before, after)
        assert torch.equal(after, explained(explainer, model, images=images))
        other = explained(explainer, model, images=1 - images, output=explainer.observe(model, images))
        assert torch.equal(other, explained(explainer, model, images=1 - images))

    @pytest.mark.parametrize("backbone", ["resnet18", "mobilenet_v2"])
    def test_inference_mode_may_end_or_begin_in_between(self, backbone):
        model, explainer = shared(backbone), PRP()
        expected = explained(explainer, model)
        with torch.inference_mode():
            inside = explainer.observe(model, IMAGES)
        assert torch.equal(explained(explainer, model, output=inside), expected)
        outside = explainer.observe(model, IMAGES)
        with torch.inference_mode():
            assert torch.equal(explained(explainer, model, output=outside), expected)
        assert torch.equal(explained(explainer, model, output=outside), expected)


def with_backbone(*layers):
    return UnitReader(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *layers), 4)


class TestSupport:
    def test_the_module_in_the_way_and_what_to_do_instead_are_named(self):
        model = with_backbone(nn.ReLU(), nn.Sequential(nn.LayerNorm([4, 8, 8])))
        expected = "relevance cannot pass 'backbone.2.0' (LayerNorm, operation 'layer_norm')"
        for explainer, kind in ((PRP(), "unit"), (LRP(), "class")):
            assert explainer.supports(model) == expected
            with pytest.raises(ValueError, match=rf"explainer '{explainer.key}' supports, but .*'backbone\.2\.0'"):
                explained(explainer, model, kind, torch.zeros(2, 1).long(), rand(2, 3, 8, 8))

    def test_an_obstacle_that_came_later_is_found_all_the_same(self):
        model = with_backbone(nn.ReLU())
        assert PRP().supports(model) is None
        model.backbone[1].forward = nn.functional.gelu
        with pytest.raises(ValueError, match=r"cannot pass 'backbone\.1' \(ReLU, operation 'gelu'\)"):
            explained(PRP(), model, ids=torch.zeros(2, 1).long(), images=rand(2, 3, 8, 8))
        model.backbone[1] = nn.Sigmoid()
        assert PRP().supports(model) is None
        model.backbone[1] = nn.GELU()
        assert "GELU" in str(PRP().supports(model))

    def test_overwriting(self):
        class Careless(nn.Module):
            def forward(self, x):
                x.relu_()
                return x.sigmoid()

        assert "changing it in place, but 'sigmoid' in 'backbone.1' does" in str(
            PRP().supports(with_backbone(Careless()))
        )

    def test_models_without_latent(self):
        model = MeanPooled(nn.Identity(), torch.ones(2, 3))
        model.has_latent = False
        assert PRP().supports(model) == "the model has no latent"

    def test_a_latent_from_elsewhere(self):
        model = with_backbone()
        model.backbone = nn.Module()
        model.backbone.forward = lambda images: torch.ones(len(images), 4, 2, 2)
        assert PRP().supports(model) == "its latent is not computed from the images"

    @pytest.mark.parametrize(
        ("vectors", "told", "reason"),
        [
            (randn(2, 4), lambda latent: latent[:, :2], "None"),
            (randn(2, 4, 1, 1), lambda latent: latent[:, :2], "its units are not vectors of one cell with 4 channels"),
            (randn(2, 3), lambda latent: latent[:, :2], "its units are not vectors of one cell with 4 channels"),
            (None, lambda latent: latent[:, :3], "are not the channels of the latent"),
            (None, lambda latent: nn.functional.max_pool2d(latent, 2), "differ in their cells"),
        ],
    )
    def test_units_that_do_not_fit_the_latent(self, vectors, told, reason):
        class Strange(UnitReader):
            def forward(self, images):
                latent = self.backbone(images)
                return ModelOutput(torch.zeros(1, 2), told(latent).amax((2, 3)), told(latent), latent)

        assert reason in str(PRP().supports(Strange(nn.Conv2d(3, 4, 1), 4, vectors)))

    def test_training_mode(self):
        with pytest.raises(ValueError, match="evaluation mode"):
            PRP().supports(with_backbone().train())

    def test_arguments(self):
        with pytest.raises(ValueError, match=r"`bounds` to be one of \('channel', 'scalar'\), but got 'black'"):
            PRP(bounds="black")
        with pytest.raises(ValueError, match=r"`start` to be one of \('one', 'score'\), but got 'two'"):
            PRP(start="two")


class Opposed(nn.Module):
    """The neighbour to the left minus a share of the cell itself."""

    def __init__(self, share):
        super().__init__()
        self.shift = nn.Conv2d(4, 4, (1, 3), padding=(0, 1), bias=False)
        self.share = share
        with torch.no_grad():
            self.shift.weight.zero_()[range(4), range(4), 0, 0] = 1

    def forward(self, x):
        return self.shift(x) + x * -self.share


@pytest.mark.parametrize(("share", "warned"), [(0.5, False), (0.95, True)])
def test_amplification_is_warned_of(share, warned):
    """On a flat image R goes by 1 : -share, over 1 - share: 3 times, or 39 times the start in absolute values."""
    positive = nn.Conv2d(3, 4, 1, bias=False)
    nn.init.constant_(positive.weight, 1.0)
    reader = UnitReader(nn.Sequential(positive, nn.ReLU(), Opposed(share)), 4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        maps = explained(PRP(), reader, ids=torch.zeros(1, 1).long(), images=torch.full((1, 3, 8, 8), 0.5))
    assert maps.abs().sum().item() == pytest.approx((1 + share) / (1 - share), rel=1e-3)
    assert [str(warning.message)[:24] for warning in caught] == ["Sums of opposite signs a"] * warned


@pytest.mark.parametrize("part", ["", "backbone"])
def test_a_compiled_model_is_explained_as_it_is_written(part):
    torch.manual_seed(0)
    model, images = ProtoPNet(num_classes=4, image_size=(16, 16)).eval(), torch.rand(2, 3, 16, 16)
    targets = Targets("unit", torch.tensor([[3, 8], [5, -1]]))
    maps = PRP().attribute(model, images, targets)
    model.get_submodule(part).compile(backend="eager")
    explainer = PRP()
    assert explainer.supports(model) is None
    assert torch.equal(explainer.attribute(model, images, targets).nan_to_num(), maps.nan_to_num())
    assert model(images).scores.shape == (2, 40)
