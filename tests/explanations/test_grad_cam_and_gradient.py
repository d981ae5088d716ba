import gc
import weakref

import pytest
import torch
from torch import nn

from protometry.explanations.explainer import Targets
from protometry.explanations.grad_cam_and_gradient import GradCAM, GraphOutput, InputXGradient
from protometry.explanations.integrated_gradients import IntegratedGradients
from protometry.lightning_modules.bases.geometry import Layer
from protometry.metrics.primitives.upsample import upsample_maps
from tests.explanations.small_models import CellReader, MeanPooled, Weighted, rand, randn

H, W = SIZE = (4, 6)
close = torch.testing.assert_close
EXPLAINERS = {"grad_cam": GradCAM, "ig": lambda: IntegratedGradients(steps=3), "ixg": InputXGradient}


def conv_model(seed=0, size=SIZE):
    torch.manual_seed(seed)
    backbone = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU())
    return MeanPooled(backbone, torch.randn(4, 5), torch.randn(4), (Layer(3, 1, 0),), size)


def linear_model():
    """logits = <weight (2, 3, H, W), x> + bias: a pixel-wise product, mean over cells, linear head."""
    pixel_weight, head = randn(3, *SIZE, seed=1), randn(2, 3, seed=2)
    model = MeanPooled(Weighted(pixel_weight), head, torch.tensor([5.0, -7.0]))
    return model, head[:, :, None, None] * pixel_weight / (H * W)


def every(kind, batch, count):
    return Targets(kind, torch.arange(count).expand(batch, -1).clone())


class Counted(nn.Module):
    """The identity, counting forward and backward passes through it."""

    def __init__(self):
        super().__init__()
        self.forwards, self.backwards = 0, 0

    def forward(self, x):
        self.forwards += 1
        x = x * 1
        if x.requires_grad:
            x.register_hook(self.count)
        return x

    def count(self, gradient):
        self.backwards += 1


class TestGradCAM:
    def test_classes_of_a_mean_pooled_linear_model_have_the_class_activation_map(self):
        """∂y_k/∂A_c = w_kc / (hw) in every cell: the map is ReLU(Σ_c w_kc A_c) / (hw), without the bias."""
        model, images = conv_model(), rand(3, 3, *SIZE)
        latent = model(images).latent
        cam = torch.einsum("kc,bchw->bkhw", model.weight, latent).detach().relu() / (2 * 4)
        maps = GradCAM().attribute(model, images, every("class", 3, 4))
        for label in range(4):
            close(
                maps[:, label],
                upsample_maps(cam[:, label], SIZE, "bilinear", model.geometry.lattice),
                rtol=1e-5,
                atol=1e-7,
            )
        assert maps.gt(0).any()

    def test_units_of_a_mean_pooled_model_have_their_own_channel(self):
        model, images = conv_model(), rand(2, 3, *SIZE)
        maps = GradCAM(mode="nearest").attribute(model, images, every("unit", 2, 5))
        expected = model(images).latent.detach() / 8
        close(
            maps,
            torch.stack([upsample_maps(expected[:, u], SIZE, "nearest", model.geometry.lattice) for u in range(5)], 1),
        )

    def test_by_hand(self):
        """Latent = the two-cell image, w = (1, -2, 0), hw = 2: (A_0 - 2 A_1) / 2 = (0.25, -0.5)."""
        images = torch.tensor([[0.5, 0.0], [0.0, 0.5], [0.9, 0.9]]).view(1, 3, 1, 2)
        model = MeanPooled(nn.Identity(), torch.tensor([[1.0, -2.0, 0.0], [0.0, 0.0, 1.0]]), size=(1, 2))
        targets = Targets("class", torch.tensor([[0]]))
        assert GradCAM().attribute(model, images, targets).flatten().tolist() == [0.25, 0.0]
        assert GradCAM(relu=False).attribute(model, images, targets).flatten().tolist() == [0.25, -0.5]

    def test_relu_acts_on_cells_before_they_are_enlarged(self):
        backbone = nn.Sequential(nn.Conv2d(3, 5, 2, stride=2), nn.ReLU())
        model = MeanPooled(backbone, randn(4, 5, seed=3), randn(4, seed=4), (Layer(2, 2, 0),), SIZE)
        images = rand(2, 3, *SIZE)
        signed = GradCAM(relu=False).attribute(model, images, every("class", 2, 4))
        clipped = GradCAM().attribute(model, images, every("class", 2, 4))
        assert signed.lt(0).any()
        assert not torch.equal(signed.relu(), clipped)
        assert (clipped >= signed.relu() - 1e-6).all()  # relu is convex

    def test_no_gradient_goes_below_the_latent_and_the_forward_is_shared(self):
        counted, images = Counted(), rand(2, 3, *SIZE)
        model = MeanPooled(nn.Sequential(counted, nn.Conv2d(3, 5, 3)), randn(4, 5), layers=(Layer(3, 1, 0),))
        explainer = GradCAM()
        output = explainer.observe(model, images)
        for targets in (every("class", 2, 4), every("unit", 2, 3)):
            explainer.attribute(model, images, targets, output=output)
        assert (counted.forwards, counted.backwards) == (1, 0)

    def test_a_model_without_latent_is_not_supported(self):
        model = conv_model()
        model.has_latent = False
        assert GradCAM().supports(model) == "the model has no latent"
        with pytest.raises(ValueError, match="'grad_cam' supports, but the model has no latent"):
            GradCAM().attribute(model, rand(1, 3, *SIZE), every("class", 1, 1))
        assert GradCAM().supports(conv_model()) is None

    def test_finding_out_leaves_a_training_model_alone(self):
        model = conv_model().train()
        statistics = model.backbone[1].running_mean.clone()
        with pytest.raises(ValueError, match="evaluation mode"):
            GradCAM().supports(model)
        assert torch.equal(statistics, model.backbone[1].running_mean)
        GradCAM().observe(model.eval(), rand(1, 3, *SIZE))
        assert GradCAM().supports(model.train()) is None  # known by now

    def test_models_are_not_kept_alive(self):
        model = conv_model()
        gone = weakref.ref(model)
        GradCAM().attribute(model, rand(1, 3, *SIZE), every("class", 1, 2))
        del model
        gc.collect()
        assert gone() is None

    def test_unknown_mode_is_refused(self):
        with pytest.raises(ValueError, match="`mode`"):
            GradCAM(mode="area")


class TestInputXGradient:
    def test_linear_model(self):
        model, weight = linear_model()
        images = rand(2, 3, *SIZE)
        maps = InputXGradient().attribute(model, images, every("class", 2, 2))
        close(maps, (images[:, None] * weight).sum(2), rtol=1e-5, atol=1e-7)

    def test_units_of_a_linear_model(self):
        model, _ = linear_model()
        images = rand(2, 3, *SIZE)
        maps = InputXGradient().attribute(model, images, every("unit", 2, 3))
        close(maps, images * model.backbone.weight.detach() / (H * W), rtol=1e-5, atol=1e-7)

    def test_one_backward_per_target_and_one_forward(self):
        counted, images = Counted(), rand(2, 3, *SIZE)
        model = MeanPooled(nn.Sequential(counted, nn.Conv2d(3, 5, 3)), randn(4, 5), layers=(Layer(3, 1, 0),))
        InputXGradient().attribute(model, images, every("class", 2, 4))
        assert (counted.forwards, counted.backwards) == (1, 4)


class TestIntegratedGradients:
    @pytest.mark.parametrize(
        ("baseline", "start"),
        [
            ("black", torch.zeros(3, 1, 1)),
            ((0.2, 0.5, 0.9), torch.tensor([0.2, 0.5, 0.9]).view(3, 1, 1)),
            ([0.2, 0.5, 0.9], torch.tensor([0.2, 0.5, 0.9]).view(3, 1, 1)),
            (torch.full((3, 1, 1), 0.5), torch.full((3, 1, 1), 0.5)),
            (rand(3, *SIZE, seed=9), rand(3, *SIZE, seed=9)),
        ],
    )
    def test_linear_model(self, baseline, start):
        model, weight = linear_model()
        images = rand(2, 3, *SIZE)
        explainer = IntegratedGradients(steps=2, baseline=baseline)
        maps = explainer.attribute(model, images, every("class", 2, 2))
        close(maps, ((images - start)[:, None] * weight).sum(2), rtol=1e-5, atol=1e-7)

    def test_midpoint_rule_by_hand(self):
        """y = mean over 1 cell of x_0²; x_0 = 0.8, x0 = 0: one step gives 0.8 · 2 · 0.4 = 0.64, which is exact."""

        class Square(nn.Module):
            def forward(self, x):
                return x**2

        images = torch.tensor([0.8, 0.1, 0.2]).view(1, 3, 1, 1)
        model = MeanPooled(Square(), torch.eye(3), size=(1, 1))
        maps = IntegratedGradients(steps=1).attribute(model, images, Targets("unit", torch.tensor([[0]])))
        close(maps.item(), 0.64)

    @pytest.mark.parametrize(("smooth", "bound"), [(True, 1e-4), (False, 1e-2)])
    def test_gap_falls_with_steps(self, smooth, bound):
        torch.manual_seed(0)
        bend = nn.Softplus() if smooth else nn.ReLU()
        backbone = nn.Sequential(nn.Conv2d(3, 8, 3), bend, nn.Conv2d(8, 4, 2), nn.Tanh() if smooth else nn.ReLU())
        model = MeanPooled(backbone, 3 * torch.randn(3, 4), layers=(Layer(3, 1, 0), Layer(2, 1, 0)))
        images, targets, gaps = rand(4, 3, *SIZE), every("class", 4, 3), []
        difference = (model(images).logits - model(torch.zeros_like(images)).logits)[:, :3].detach()
        for steps in (1, 8, 64):
            explainer = IntegratedGradients(steps=steps)
            maps = explainer.attribute(model, images, targets)
            gaps.append(((maps.sum((2, 3)) - difference).abs().sum() / difference.abs().sum()).item())
        assert gaps[0] > 2 * gaps[1]
        assert gaps[1] > 2 * gaps[2]
        assert gaps[2] < bound

    def test_cost_is_steps_forwards_and_backwards_per_target(self):
        counted, images = Counted(), rand(2, 3, *SIZE)
        model = MeanPooled(nn.Sequential(counted, nn.Conv2d(3, 5, 3)), randn(4, 5), layers=(Layer(3, 1, 0),))
        output = model(images)
        counted.forwards = 0
        IntegratedGradients(steps=7).attribute(model, images, every("class", 2, 3), output=output)
        assert (counted.forwards, counted.backwards) == (21, 21)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"steps": 0}, "`steps` to be at least 1, but got 0"),
            ({"baseline": "white"}, r"`baseline` to be one of \('black',\), but got 'white'"),
            ({"baseline": (0.5, 0.5)}, "`baseline` to be 'black', three numbers"),
            ({"baseline": (0.5, 0.5, 127.0)}, r"all in \[0, 1\]"),
            ({"baseline": torch.full((3, 1, 1), torch.nan)}, r"all in \[0, 1\]"),
            ({"baseline": torch.zeros(1, 3, 4, 6)}, r"a tensor \(3, 1, 1\) or \(3, H, W\)"),
        ],
    )
    def test_bad_arguments(self, options, message):
        with pytest.raises(ValueError, match=message):
            IntegratedGradients(**options)

    def test_baseline_of_another_size(self):
        model, _ = linear_model()
        with pytest.raises(ValueError, match=r"`baseline` to be of the images' size \(4, 6\), but got \(6, 4\)"):
            IntegratedGradients(baseline=torch.zeros(3, 6, 4)).attribute(model, rand(1, 3, *SIZE), every("unit", 1, 1))


class TestLocality:
    """On a backbone with padding and pooling, nothing outside a cell's receptive field explains the cell."""

    LAYERS = (Layer(3, 2, 1), Layer(2, 2, 0), Layer(3, 1, 1))

    def model(self):
        torch.manual_seed(0)
        backbone = nn.Sequential(
            nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.Softplus(), nn.MaxPool2d(2), nn.Conv2d(6, 2, 3, padding=1)
        )
        return CellReader(backbone, torch.ones(2, 40), layers=self.LAYERS, size=(20, 32))

    @pytest.mark.parametrize("explainer", [InputXGradient(), IntegratedGradients(steps=3, baseline=(0.5, 0.5, 0.5))])
    @pytest.mark.parametrize("cell", [(0, 0), (2, 4), (4, 7)])
    def test_zero_outside_the_receptive_field(self, explainer, cell):
        model, images = self.model(), rand(2, 3, 20, 32)
        unit = torch.full((2, 1), cell[0] * 8 + cell[1])
        maps = explainer.attribute(model, images, Targets("unit", unit))[:, 0]
        x0, y0, x1, y1 = model.geometry.cell_box(*cell, size="receptive_field")
        inside = torch.zeros(20, 32, dtype=torch.bool)
        inside[y0 : y1 + 1, x0 : x1 + 1] = True
        assert (maps[:, ~inside] == 0).all()
        assert (maps[:, inside] != 0).float().mean() > 0.2  # max-pooling passes one position in four

    def test_the_field_is_tight_without_pooling(self):
        """Positive weights and pixels: every pixel of the field counts, and none outside it."""
        convolution = nn.Conv2d(3, 1, 5, stride=3)
        nn.init.constant_(convolution.weight, 0.1)
        model = CellReader(convolution, torch.ones(2, 12), layers=(Layer(5, 3, 0),), size=(11, 14))
        maps = InputXGradient().attribute(model, rand(1, 3, 11, 14) + 0.1, Targets("unit", torch.tensor([[5]])))
        rows, columns = maps[0, 0].nonzero().unbind(1)
        assert model.geometry.grid == (3, 4)
        assert (columns.min(), rows.min(), columns.max(), rows.max()) == (3, 3, 7, 7)  # cell (1, 1), not clipped
        assert len(rows) == 25


@pytest.mark.parametrize("explainer", [GradCAM(), InputXGradient()])
class TestSharedForward:
    def test_the_graph_holds_no_parameter(self, explainer):
        model, images = conv_model(), rand(2, 3, *SIZE)
        output = explainer.observe(model, images)
        assert isinstance(output, GraphOutput)
        seen, stack, leaves = set(), [output.graph.logits.grad_fn], []
        while stack:
            node = stack.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            stack += [following for following, _ in node.next_functions]
            leaves += [node.variable] if hasattr(node, "variable") else []
        assert [id(leaf) for leaf in leaves] == [id(output.pixels)]


@pytest.mark.parametrize("name", EXPLAINERS)
class TestModes:
    def test_everything_may_come_from_inference_mode(self, name):
        """Model, images and targets made in inference mode: no graph could save them as they are."""
        explainer, plain, images = EXPLAINERS[name](), conv_model(), rand(2, 3, *SIZE)
        expected = explainer.attribute(plain, images, every("unit", 2, 5))
        with torch.inference_mode():
            model, copies = conv_model(), images.clone()
            maps = explainer.attribute(model, copies, every("unit", 2, 5))
            kept = explainer.observe(model, copies)
            assert torch.equal(explainer.attribute(model, copies, every("unit", 2, 5), output=kept), expected)
        assert model.weight.is_inference()
        assert torch.equal(maps, expected)

    def test_gradients_switched_on_outside_are_left_alone(self, name):
        model, images = conv_model(), rand(2, 3, *SIZE).requires_grad_()
        maps = EXPLAINERS[name]().attribute(model, images, every("class", 2, 4))
        assert not maps.requires_grad
        assert images.grad is None
        assert all(p.grad is None and p.requires_grad for p in model.parameters())

    def test_frozen_models_are_explained_alike(self, name):
        model, images = conv_model(), rand(2, 3, *SIZE)
        expected = EXPLAINERS[name]().attribute(model, images, every("class", 2, 4))
        maps = EXPLAINERS[name]().attribute(model.requires_grad_(False), images, every("class", 2, 4))
        assert torch.equal(maps, expected)
