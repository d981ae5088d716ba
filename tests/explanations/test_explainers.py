"""The protocol test: what every explainer must keep to on every model, over both registries."""

from __future__ import annotations

import functools
import zlib

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
# every model and every explainer takes part in the default run, each pair of them in the slow one; an explainer with
# other options meets every second model
COVERING = {(i % len(NETWORKS), i % len(CASES)) for i in range(max(len(NETWORKS), len(CASES)))}
PAIRS = [
    pytest.param(
        (model, *case),
        id=f"{model}-{'-'.join(case)}",
        marks=[] if (row, column) in COVERING else [pytest.mark.slow],
    )
    for row, model in enumerate(NETWORKS)
    for column, case in enumerate(CASES)
    if " " not in case[0] or (row + column) % 2 == 0 or (row, column) in COVERING
]


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


@functools.cache
def targets_of(name, kind):
    """Three targets per image, others in every image."""
    known = built(name).units().active.nonzero().flatten() if kind == "unit" else torch.arange(K)
    return Targets(kind, known[torch.tensor([[0, 1, 2], [3, 2, 1], [1, 0, 3]])])


@functools.cache
def maps_of(name, case, kind):
    """The maps of all targets in all images, computed once; each test compares them with those of a part."""
    return explained(EXPLAINERS[case](), built(name), rand(3, 3, *SIZE, seed=1), targets_of(name, kind))


@pytest.fixture(params=PAIRS)
def pair(request):
    name, *case = request.param
    model, explainer = built(name), EXPLAINERS[case[0]]()
    if reason := explainer.supports(model):
        pytest.skip(reason)
    return model, explainer, case[1]


@pytest.fixture
def whole(pair, request):
    return maps_of(*request.node.callspec.params["pair"])


@pytest.fixture
def model(pair):
    return pair[0]


@pytest.fixture
def explainer(pair):
    return pair[1]


@pytest.fixture
def kind(pair):
    return pair[2]


@pytest.fixture
def images():
    return rand(3, 3, *SIZE, seed=1)


@pytest.fixture
def targets(kind, request):
    return targets_of(request.node.callspec.params["pair"][0], kind)


def explained(explainer, model, images, targets, keys=KEYS):
    return explainer.attribute(model, images, targets, sample_ids=keys)


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
    def test_shape_dtype_and_values(self, explainer, model, images, targets, whole):
        maps = whole
        assert maps.shape == (3, 3, *SIZE)
        assert maps.dtype == torch.float32
        assert maps.isfinite().all()
        assert not maps.requires_grad
        varies = maps.flatten(2).std(dim=2) > 0
        if isinstance(explainer, GradCAM) and explainer.relu:  # flat where no cell is evidence for the target
            signed = explained(GradCAM(relu=False), model, images, targets)
            assert torch.equal(varies, (signed > 0).flatten(2).any(dim=2))
        else:
            assert varies.any(), "every map is flat"

    def test_one_image_one_target(self, explainer, model, images, targets):
        one = Targets(targets.kind, targets.ids[:1, :1])
        assert explained(explainer, model, images[:1], one, KEYS[:1]).shape == (1, 1, *SIZE)

    def test_no_targets(self, explainer, model, images, kind):
        none = Targets(kind, torch.zeros(3, 0, dtype=torch.int64))
        assert explained(explainer, model, images, none).shape == (3, 0, *SIZE)

    def test_another_size_than_the_models(self, explainer, model, images, targets):
        maps = explained(explainer, model, images[..., :40], targets)
        assert maps.shape == (3, 3, 32, 40)
        assert maps.isfinite().all()

    def test_equal_inputs_give_equal_bits_whatever_else_is_asked(self, explainer, model, images, targets, whole):
        assert torch.equal(whole, explained(explainer, model, images, targets))
        for index in range(3):
            alone = Targets(targets.kind, targets.ids[:, index : index + 1])
            assert torch.equal(whole[:, index : index + 1], explained(explainer, model, images, alone))

    def test_permuting_the_images_permutes_the_maps(self, explainer, model, images, targets, whole):
        order = torch.tensor([2, 0, 1])
        permuted = explained(explainer, model, images[order], Targets(targets.kind, targets.ids[order]), KEYS[order])
        assert_same(permuted, whole[order], model)

    def test_splitting_the_batch_changes_nothing(self, explainer, model, images, targets, monkeypatch):
        # Gradients jump where rounding takes the input of a ReLU across 0. The convolutions of oneDNN round differently
        # at another batch size; without it they run image by image, so that all ReLUs of a backbone see equal bits.
        monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
        parts = [
            explained(explainer, model, images[rows], Targets(targets.kind, targets.ids[rows]), KEYS[rows])
            for rows in (slice(0, 1), slice(1, 3))
        ]
        assert_same(torch.cat(parts), explained(explainer, model, images, targets), model)

    def test_given_output_is_used_as_if_made_here(self, explainer, model, images, targets, whole):
        observed = explainer.observe(model, images)
        for output in (observed, observed, model(images)):  # twice the same: nothing is used up
            maps = explainer.attribute(model, images, targets, output=output, sample_ids=KEYS)
            assert torch.equal(maps, whole)

    def test_observing_is_the_plain_forward(self, explainer, model, images):
        observed = explainer.observe(model, images)
        with torch.inference_mode():
            plain = model(images)
        for name in ("logits", "scores", "maps", "latent"):
            value, expected = getattr(observed, name), getattr(plain, name)
            assert value is expected is None or torch.equal(value, expected), name  # a model may show no latent
            assert value is None or not value.requires_grad, name
        assert observed.extras.keys() == plain.extras.keys()
        for name, value in plain.extras.items():
            assert torch.equal(observed.extras[name], value), name
            assert not observed.extras[name].requires_grad, name

    def test_nothing_of_the_model_or_the_generator_changes(self, explainer, model, images, targets):
        before, generator, kept = fingerprint(model), torch.get_rng_state(), images.clone()
        explained(explainer, model, images, targets)
        assert fingerprint(model) == before
        assert torch.equal(torch.get_rng_state(), generator)
        assert torch.equal(images, kept)
        assert not images.requires_grad
        assert torch.is_grad_enabled()

    def test_inference_mode(self, explainer, model, images, targets, whole):
        with torch.inference_mode():
            inside = explained(explainer, model, images.clone(), Targets(targets.kind, targets.ids.clone()))
        assert torch.equal(inside, whole)

    def test_an_empty_slot_is_nan_and_the_others_stay(self, explainer, model, images, targets, whole):
        empty = torch.tensor([[False, True, False], [True, True, True], [False, False, False]])
        maps = explained(explainer, model, images, Targets(targets.kind, targets.ids.masked_fill(empty, -1)))
        assert maps[empty].isnan().all()
        assert torch.equal(maps[~empty], whole[~empty])


class TestErrors:
    """What the base class refuses, of one explainer of one model: the check is the same for all."""

    TARGETS = Targets("unit", torch.ones(3, 1, dtype=torch.int64))

    def refused(self, match, images, targets=TARGETS):
        model = built("ProtoPNet")
        before = fingerprint(model)
        with pytest.raises(ValueError, match=match):
            explained(Upsample(), model, images, targets)
        assert fingerprint(model) == before

    @pytest.mark.parametrize("unit", [0, 8, 13, -2])  # of eight units, every third one inactive
    def test_units_that_are_inactive_or_out_of_range(self, unit, images):
        targets = Targets("unit", torch.full((3, 1), unit))
        self.refused(rf"to name active units or classes below 8, but got \[{unit}\]", images, targets)

    def test_unknown_kind_of_target(self, images):
        self.refused("but got class", images, Targets("class", torch.zeros(3, 1, dtype=torch.int64)))

    def test_training_mode(self, images):
        built("ProtoPNet").train()
        try:
            self.refused("evaluation mode", images)
        finally:
            built("ProtoPNet").eval()

    def test_double_precision(self, images):
        self.refused(r"dtype float32, but got .* torch.float64", images.double())

    def test_autocast(self, images):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.refused("outside autocast", images)

    def test_one_row_of_targets_per_image(self, images):
        self.refused(r"one row of `targets.ids` per image, but got 3 for 2", images[:2])
