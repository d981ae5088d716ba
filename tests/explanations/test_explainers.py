"""The protocol test: what every explainer must keep to on every model, over both registries."""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass

import pytest
import torch

from protometry.callbacks.phases.pruning import Prunable
from protometry.explanations.explainer import Targets
from protometry.explanations.grad_cam_and_gradient import GradCAM
from protometry.explanations.upsample import Upsample
from tests.explanations.registry import EXPLAINERS
from tests.explanations.small_models import rand
from tests.lightning_modules.registry import NETWORKS
from tests.rounding import terms_of, tolerance

K = 4
SIZE = (32, 48)
KEYS = torch.tensor([7, 2**62 + 1, 0])
CASES = [(name, kind) for name, build in EXPLAINERS.items() for kind in sorted(build().explains)]
# every model and every explainer takes part here; all pairs of them are in tests/slow
PAIRS = [(i % len(NETWORKS), i % len(CASES)) for i in range(max(len(NETWORKS), len(CASES)))]


@functools.cache
def built(name):
    """A model with moved BatchNorm statistics and, where it can be pruned, every third unit inactive."""
    torch.manual_seed(0)
    model = NETWORKS[name](num_classes=K, image_size=SIZE)
    with torch.no_grad():
        model.train()(rand(8, 3, *SIZE))
    if isinstance(model, Prunable):
        model.prune(torch.arange(len(model.units().active)) % 3 > 0)
    return model.eval()


def explained(explainer, model, images, targets, keys=KEYS, output=None):
    return explainer.attribute(model, images, targets, output=output, sample_ids=keys)


@dataclass(frozen=True)
class Pair:
    """An explainer of a model, and what it is asked: three targets per image, others in every image."""

    name: str
    case: str
    kind: str
    images = rand(3, 3, *SIZE, seed=1)

    @property
    def model(self):
        return built(self.name)

    @functools.cached_property
    def explainer(self):
        return EXPLAINERS[self.case]()

    @functools.cached_property
    def targets(self):
        known = self.model.units().active.nonzero().flatten() if self.kind == "unit" else torch.arange(K)
        return Targets(self.kind, known[torch.tensor([[0, 1, 2], [3, 2, 1], [1, 0, 3]])])

    @functools.cached_property
    def whole(self):
        """The maps of all targets in all images; each test compares them with those of a part."""
        return explained(EXPLAINERS[self.case](), self.model, self.images, self.targets)

    def maps(self, rows=slice(None), columns=slice(None)):
        """The maps of some targets in some images."""
        targets = Targets(self.kind, self.targets.ids[rows, columns])
        return explained(self.explainer, self.model, self.images[rows], targets, KEYS[rows])


@functools.cache
def pair_of(name, case, kind):
    """The pair, or why the model cannot be explained."""
    pair = Pair(name, case, kind)
    return pair.explainer.supports(pair.model) or pair


@pytest.fixture(params=PAIRS, ids=lambda pair: "-".join([[*NETWORKS][pair[0]], *CASES[pair[1]]]))
def pair(request):
    row, column = request.param
    if isinstance(pair := pair_of([*NETWORKS][row], *CASES[column]), str):
        pytest.skip(pair)
    return pair


@pytest.fixture
def images():
    return rand(3, 3, *SIZE, seed=1)


def assert_same(first, second, model):
    """Equal but for rounding, in proportion to each map's largest value, on the way forward and back."""
    scale = second.abs().amax((2, 3), keepdim=True).clamp(min=1e-12)
    assert ((first - second).abs() / scale).max() <= tolerance(2 * terms_of(model))


def fingerprint(model):
    """All that must not change in a model: tensors, gradients, flags, modes and hooks."""
    tensors = {
        name: (zlib.crc32(value.detach().contiguous().numpy().tobytes()), value._version, value.requires_grad,
               id(value), value.grad is None)
        for name, value in (*model.named_parameters(), *model.named_buffers())
    }  # fmt: skip
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    modules = {
        name: (module.training, *(len(getattr(module, hook)) for hook in hooks)) for name, module in
        model.named_modules()
    }  # fmt: skip
    return tensors, modules, sorted(vars(model))


class TestProtocol:
    def test_shape_dtype_and_values(self, pair):
        maps = pair.whole
        assert maps.shape == (3, 3, *SIZE)
        assert maps.dtype == torch.float32
        assert maps.isfinite().all()
        assert not maps.requires_grad
        varies = maps.flatten(2).std(dim=2) > 0
        if isinstance(pair.explainer, GradCAM) and pair.explainer.relu:  # flat where no cell is evidence for the target
            signed = explained(GradCAM(relu=False), pair.model, pair.images, pair.targets)
            assert torch.equal(varies, (signed > 0).flatten(2).any(dim=2))
        else:
            assert varies.any(), "every map is flat"

    def test_few_images_few_targets_and_another_size(self, pair):
        assert pair.maps(slice(1), slice(1)).shape == (1, 1, *SIZE)
        assert pair.maps(columns=slice(0)).shape == (3, 0, *SIZE)
        maps = explained(pair.explainer, pair.model, pair.images[..., :40], pair.targets)
        assert maps.shape == (3, 3, 32, 40)
        assert maps.isfinite().all()

    def test_equal_inputs_give_equal_bits_whatever_else_is_asked(self, pair):
        """Of the model, the images and the generator nothing changes, and nothing of an output is used up."""
        before, generator, kept = fingerprint(pair.model), torch.get_rng_state(), pair.images.clone()
        assert torch.equal(pair.whole, pair.maps())
        assert fingerprint(pair.model) == before
        assert torch.equal(torch.get_rng_state(), generator)
        assert torch.equal(pair.images, kept)
        assert not pair.images.requires_grad
        assert torch.is_grad_enabled()
        for index in range(3):
            assert torch.equal(pair.whole[:, index : index + 1], pair.maps(columns=slice(index, index + 1)))
        with torch.inference_mode():
            copied = Targets(pair.kind, pair.targets.ids.clone())
            assert torch.equal(explained(pair.explainer, pair.model, pair.images.clone(), copied), pair.whole)
        empty = torch.tensor([[False, True, False], [True, True, True], [False, False, False]])
        some = Targets(pair.kind, pair.targets.ids.masked_fill(empty, -1))
        maps = explained(pair.explainer, pair.model, pair.images, some)
        assert maps[empty].isnan().all()
        assert torch.equal(maps[~empty], pair.whole[~empty])

    def test_order_and_number_of_images_change_nothing(self, pair, monkeypatch):
        order = torch.tensor([2, 0, 1])
        assert_same(pair.maps(order), pair.whole[order], pair.model)
        # Gradients jump where rounding takes the input of a ReLU across 0. The convolutions of oneDNN round differently
        # at another batch size; without it they run image by image, so that all ReLUs of a backbone see equal bits.
        monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
        assert_same(torch.cat([pair.maps(slice(0, 1)), pair.maps(slice(1, 3))]), pair.maps(), pair.model)

    def test_an_observed_output_is_that_of_the_plain_forward(self, pair):
        observed = pair.explainer.observe(pair.model, pair.images)
        with torch.inference_mode():
            plain = pair.model(pair.images)
        for name in ("logits", "scores", "maps", "latent"):
            value, expected = getattr(observed, name), getattr(plain, name)
            assert value is expected is None or torch.equal(value, expected), name  # a model may show no latent
            assert value is None or not value.requires_grad, name
        assert observed.extras.keys() == plain.extras.keys()
        for name, value in plain.extras.items():
            assert torch.equal(observed.extras[name], value), name
            assert not observed.extras[name].requires_grad, name
        for output in (observed, observed, pair.model(pair.images)):  # twice the same: nothing is used up
            maps = explained(pair.explainer, pair.model, pair.images, pair.targets, output=output)
            assert torch.equal(maps, pair.whole)


class TestErrors:
    """What the base class refuses, of one explainer of one model: the check is the same for all."""

    TARGETS = Targets("unit", torch.ones(3, 1, dtype=torch.int64))

    def refused(self, match, images, targets=TARGETS):
        model = built("ProtoPNet")
        before = fingerprint(model)
        with pytest.raises(ValueError, match=match):
            explained(Upsample(), model, images, targets)
        assert fingerprint(model) == before

    def test_targets(self, images):
        for unit in (0, 8, 13, -2):  # of eight units, every third one inactive
            targets = Targets("unit", torch.full((3, 1), unit))
            self.refused(rf"to name active units or classes below 8, but got \[{unit}\]", images, targets)
        self.refused("but got class", images, Targets("class", torch.zeros(3, 1, dtype=torch.int64)))
        self.refused(r"one row of `targets.ids` per image, but got 3 for 2", images[:2])

    def test_training_mode(self, images):
        built("ProtoPNet").train()
        try:
            self.refused("evaluation mode", images)
        finally:
            built("ProtoPNet").eval()

    def test_precision(self, images):
        self.refused(r"dtype float32, but got .* torch.float64", images.double())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.refused("outside autocast", images)
