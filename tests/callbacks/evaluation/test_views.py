"""Every field of every view against its definition."""

import pytest
import torch
from torch.nn import functional as F

from protometry.callbacks.evaluation.clean_view import RANDOM_PEAK_SEED, Clean, Setting, owned_units, scaled
from protometry.callbacks.evaluation.sanity_views import SHIFT_SEED
from protometry.callbacks.evaluation.views import STABILITY_SEED, VIEWS, inside
from protometry.callbacks.forward.observer import Observer
from protometry.callbacks.forward.untrained_backbone import UntrainedBackbone
from protometry.datamodules.shortcut import Stamp
from protometry.explanations import PRP, Upsample
from protometry.explanations.explainer import Targets
from protometry.metrics import functional as kernels
from protometry.metrics.facts import Facts
from tests.lightning_modules.registry import TINY_PROTOPNET, tiny_birds
from tests.rounding import terms_of, tolerance

SIZE, K = (32, 32), 3


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return TINY_PROTOPNET(num_classes=8, image_size=SIZE).eval()


@pytest.fixture(scope="module")
def batch():
    (batch,) = tiny_birds(test_size=5).test_dataloader()
    return batch | {"second_view": batch["image"] * 0.9}


def clean(model, batch, **setting):
    variant, explainer = setting.pop("variant", "paper"), setting.pop("explainer", Upsample)
    of_data = {"tables": None, "missing": lambda flag: None, "stamp": setting.pop("stamp", None)}
    facts = Facts(8, False, model.units(), variant=variant, **of_data)
    reads = frozenset({("completeness", "perturbed_saliency"), ("clean", "unit_maps")})
    return Clean(batch, Observer(model, explainer(), 4, K), Setting(facts, reads, **({"attack_steps": 3} | setting)))


@pytest.fixture
def record(model, batch):
    with torch.inference_mode():
        yield clean(model, batch)


@pytest.fixture
def close(model):
    """Whether two forwards of the model, or what is interpolated between their values, agree up to rounding."""

    def check(found, expected):
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance(terms_of(model), expected))

    return check


def boxes_of(record):
    return kernels.bounding_boxes(kernels.clip_saliency(record.saliency) > 0)


def test_the_clean_image(record, model, batch, close):
    output = model(batch["image"])
    close(record.logits, output.logits)
    close(record.scores, output.scores)
    assert torch.equal(record.unit_ids, kernels.top_units(record.scores, K))
    upsampled = F.interpolate(record.maps, SIZE, mode="bicubic", align_corners=False)
    close(record.saliency, upsampled)
    assert torch.equal(record.object_masks, batch["object_mask"])
    assert torch.equal(record.labels, batch["label"])
    assert torch.equal(record.sample_ids, batch["sample_key"])
    assert record.valid is None


def test_owned_units_and_patches(record, batch):
    assert record.owned_ids.tolist() == [[2 * label, 2 * label + 1] for label in batch["label"].tolist()]
    for image, units in enumerate(record.owned_ids.tolist()):
        for slot, unit in enumerate(units):
            expected = kernels.peak_locations(record.outputs.all_maps[image, unit], SIZE)
            assert torch.equal(record.owned_peaks[image, slot], expected)
    cell = kernels.peak_cells(record.outputs.all_maps[1, 7])
    assert torch.equal(record.unit_boxes[1, 7], kernels.patch_boxes(cell, (4, 4), SIZE, patch=5))


def test_random_peaks_are_a_function_of_seed_image_and_unit(record, model, batch):
    ids, seed = batch["sample_key"], RANDOM_PEAK_SEED
    cells = kernels.random_cells(ids, record.owned_ids, (4, 4), seed)
    assert torch.equal(record.random_peaks, cells * 8 + 3)  # a cell of 8 pixels
    corners = record.random_boxes[torch.arange(5)[:, None], record.owned_ids, :2]
    assert torch.equal(corners, kernels.patch_boxes(cells, (4, 4), SIZE, patch=5)[..., :2])
    draws = [record.random_peaks, *(view.perturbed_random_peaks for view in VIEWS["stability"](record))]
    assert len({tuple(draw.flatten().tolist()) for draw in draws}) == 4
    many = kernels.random_cells(torch.arange(4000), torch.zeros(4000, 1, dtype=torch.int64), (2, 3), 1)
    counts = torch.bincount(many[:, 0] @ torch.tensor([1, 3]), minlength=6)
    assert (counts - 4000 / 6).abs().max() < 5 * (4000 / 6) ** 0.5


def test_fields_are_computed_once(record):
    assert record.owned_peaks is record.owned_peaks
    (view,) = VIEWS["clipped"](record)
    assert view.saliency is record.clipped_saliency
    assert torch.equal(view.saliency, kernels.clip_saliency(record.saliency))
    assert view.unit_ids is record.unit_ids


@pytest.mark.parametrize("variant", ["paper", "quanproto"])
@torch.inference_mode()
def test_completeness(model, batch, variant, close):
    record = clean(model, batch, variant=variant, seed=3)
    (view,) = VIEWS["completeness"](record)
    assert view.valid.all()
    sigma = 0.05 * (model.input_std if variant == "quanproto" else 1)
    ids, boxes = batch["sample_key"], boxes_of(record)
    noisy = kernels.completeness_perturbation(batch["image"], boxes, ids, sigma, 3, clamp=variant == "paper")
    for image in range(5):
        for rank in range(K):
            unit = int(record.unit_ids[image, rank])
            output = model(noisy[image, rank][None])
            close(view.perturbed_scores[image, rank], output.scores[0])
            close(view.perturbed_maps[image, rank], output.maps[0, unit])
            saliency = F.interpolate(output.maps[:, unit : unit + 1], SIZE, mode="bicubic", align_corners=False)
            close(view.perturbed_saliency[image, rank], kernels.clip_saliency(saliency)[0, 0])


@torch.inference_mode()
def test_a_unit_without_a_region_is_not_valid(model, batch):
    record = clean(model, batch)
    record.clipped_saliency[2, 1] = 0
    (view,) = VIEWS["completeness"](record)
    assert (~view.valid).nonzero().tolist() == [[2, 1]]


def test_continuity(record, model, batch, close):
    (view,) = VIEWS["continuity"](record)
    output = model(batch["second_view"])
    close(view.perturbed_logits, output.logits)
    close(view.perturbed_scores, output.scores)
    close(view.perturbed_maps, kernels.gather_units(output.maps, record.unit_ids))
    assert view.valid is None
    assert view.logits is record.logits


def test_stability_draws_three_noises_in_normalised_units(record, model, batch):
    views = VIEWS["stability"](record)
    assert len(views) == 3
    peaks = []
    for draw, view in enumerate(views):
        ranks = torch.full((5, 1), draw)
        noise = kernels.keyed_noise(batch["sample_key"], ranks, (3, *SIZE), STABILITY_SEED)[:, 0]
        noisy = batch["image"] + (0.2 * noise).clamp(-0.25, 0.25) * model.input_std
        maps = kernels.gather_units(model(noisy).maps, record.owned_ids)
        assert torch.equal(view.perturbed_owned_peaks, kernels.peak_locations(maps, SIZE))
        peaks.append(view.perturbed_owned_peaks)
    assert not torch.equal(peaks[0], peaks[1]) or not torch.equal(peaks[0], peaks[2])


@pytest.mark.parametrize("name", ["misalignment", "misalignment_noise"])
def test_misalignment_changes_nothing_near_the_region(record, model, batch, name, monkeypatch, close):
    shown = []
    see = Observer.see
    monkeypatch.setattr(
        Observer, "see", lambda self, images, *a, **k: shown.append(images.pixels) or see(self, images, *a, **k)
    )
    (view,) = VIEWS[name](record)
    (attacked,) = shown
    assert torch.equal(view.target_ids, record.unit_ids[:, 0])
    region = kernels.percentile_mask(F.interpolate(record.maps[:, :1], SIZE, mode="bicubic", align_corners=False))
    for image, (x0, y0, x1, y1) in enumerate(kernels.bounding_boxes(region)[:, 0].tolist()):
        rows, columns = slice(max(y0 - 1, 0), y1 + 2), slice(max(x0 - 1, 0), x1 + 2)
        kept = torch.zeros(SIZE, dtype=torch.bool)
        kept[rows, columns] = True
        assert torch.equal(attacked[image][:, kept], batch["image"][image][:, kept])
        change = (attacked[image] - batch["image"][image])[:, ~kept]
        assert (change != 0).float().mean() > 0.5
        assert (change.abs() <= 0.4 * model.input_std.flatten()[:, None] + 1e-6).all()
    assert 0 <= attacked.min() <= attacked.max() <= 1
    output = model(attacked)
    close(view.perturbed_scores, output.scores)
    close(view.perturbed_logits, output.logits)
    maps = kernels.gather_units(output.maps, view.target_ids[:, None])
    close(view.perturbed_target_maps, F.interpolate(maps, SIZE, mode="bilinear", align_corners=False)[:, 0])


@torch.inference_mode()
def test_without_a_region_nothing_is_measured(model, batch):
    record = clean(model, batch)
    record.maps[1, 0] = 0.5
    (view,) = VIEWS["misalignment_noise"](record)
    assert (view.target_ids < 0).tolist() == [False, True, False, False, False]


@torch.inference_mode()
def test_an_attack_lowers_the_score_more_than_noise_does(model, batch):
    record = clean(model, batch, attack_steps=20)
    (attack,), (noise,) = VIEWS["misalignment"](record), VIEWS["misalignment_noise"](record)
    targets = attack.target_ids[:, None]
    assert (attack.perturbed_scores.gather(1, targets) < noise.perturbed_scores.gather(1, targets)).all()


@pytest.mark.parametrize(("name", "sign"), [("deletion", 1), ("insertion", -1)])
@torch.inference_mode()
def test_removal(model, batch, close, name, sign):
    """One pixel after the other becomes the mean colour; the control is the unit's map, shifted."""
    record = clean(model, batch, seed=3)
    record.unit_ids[2, 1], record.saliency[1, 1] = -1, 4
    (view,) = VIEWS[name](record)
    moved = kernels.shifted_maps(sign * record.saliency, batch["sample_key"], 3 + SHIFT_SEED)
    for image, slot in ((0, 0), (0, 2), (2, 0)):
        maps = (
            (sign * record.saliency[image, slot], view.removal_scores),
            (moved[image, slot], view.shifted_removal_scores),
        )
        for values, found in maps:
            order = values.flatten().sort(descending=True, stable=True).indices.tolist()
            for step in (0, 1, 5, 8):
                shown = batch["image"][image].clone().flatten(1)
                shown[:, order[: step * len(order) // 8]] = shown.mean(dim=1, keepdim=True)
                unit = record.unit_ids[image, slot]
                close(found[image, slot, step], model(shown.view(1, 3, *SIZE)).scores[0, unit])
    for found in (view.removal_scores, view.shifted_removal_scores):
        assert found[1, 1].isnan().all()  # a flat map
        assert found[2, 1].isnan().all()  # an empty slot


@torch.inference_mode()
def test_shortcut(model, batch, close):
    """The stamp, and the mean colour of the image in its place; nothing else changes."""
    stamp, record = Stamp(0, size=0.25), clean(model, batch, stamp=Stamp(0, size=0.25))
    (view,) = VIEWS["shortcut"](record)
    for images, predictions, scores in (
        (stamp.on(batch["image"]), view.stamped_predictions, view.stamped_scores),
        (batch["image"].clone(), view.plain_predictions, view.plain_scores),
    ):
        if scores is view.plain_scores:
            images[:, :, 24:, 24:] = batch["image"].mean(dim=(2, 3), keepdim=True)
        output = model(images)
        close(scores, output.scores)
        assert torch.equal(predictions, output.logits.argmax(dim=1))
    assert torch.equal(view.predictions, record.logits.argmax(dim=1))


@torch.inference_mode()
def test_place(model, batch, close):
    """The box of the peak cell, what is left of the image with it alone, and the gradient of each unit by autograd."""
    record = clean(model, batch, seed=3)
    record.unit_ids[2, 1] = -1
    (view,) = VIEWS["place"](record)
    for image, slot in ((0, 0), (0, 2), (4, 1)):
        unit = record.unit_ids[image, slot]
        close(view.unit_scores[image, slot], record.scores[image, unit])
        row, column = divmod(int(record.maps[image, slot].flatten().argmax()), 4)
        assert view.cell_boxes[image, slot].tolist() == list(model.geometry.cell_box(row, column))
        for boxes, found in ((view.cell_boxes, view.cell_scores), (view.other_boxes, view.other_cell_scores)):
            x0, y0, x1, y1 = boxes[image, slot].tolist()
            shown = batch["image"][image].mean(dim=(1, 2), keepdim=True).expand(3, *SIZE).clone()
            shown[:, y0 : y1 + 1, x0 : x1 + 1] = batch["image"][image, :, y0 : y1 + 1, x0 : x1 + 1]
            close(found[image, slot], model(shown[None]).scores[0, unit])
        with torch.inference_mode(False), torch.enable_grad():
            pixels = batch["image"][image : image + 1].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(model(pixels).scores[0, unit], pixels)
        expected = gradient.abs().sum(dim=1)[0]
        torch.testing.assert_close(view.pixel_gradients[image, slot], expected, rtol=1e-3, atol=1e-5)
    assert view.cell_scores[2, 1].isnan()
    assert view.pixel_gradients[2, 1].isnan().all()


@torch.inference_mode()
def test_the_other_cell_of_the_control(model, batch):
    """Never the same one, any other about as often, and as far away for all units of an image."""
    record = clean(model, batch)
    moved = torch.zeros(15)
    for seed in range(200):
        record.setting = Setting(record.setting.facts, seed=seed)
        (view,) = VIEWS["place"](record)
        cells, others = (boxes[..., 1] // 8 * 4 + boxes[..., 0] // 8 for boxes in (view.cell_boxes, view.other_boxes))
        steps = (others - cells) % 16
        assert (steps == steps[:, :1]).all()
        moved += torch.bincount(steps[:, 0] - 1, minlength=15)  # fails where a cell is its own control
    assert ((moved - 1000 / 15).abs() < 5 * (1000 / 15 * 14 / 15) ** 0.5).all()


@pytest.mark.parametrize("explainer", [Upsample, PRP])
def test_randomised(model, batch, explainer):
    with torch.inference_mode():
        record = clean(model, batch, seed=3, explainer=explainer)
        (view,), (again,) = VIEWS["randomised"](record), VIEWS["randomised"](record)
        after = clean(model, batch, explainer=explainer)
    assert torch.equal(after.saliency, record.saliency)  # the model has its own weights back
    with UntrainedBackbone(model, 3):
        expected = explainer().attribute(model, batch["image"], Targets("unit", record.unit_ids.clone()))
    torch.testing.assert_close(view.randomised_saliency, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
    assert torch.equal(again.randomised_saliency, view.randomised_saliency)
    assert not torch.allclose(view.randomised_saliency, record.saliency, rtol=0.1)
    moved = kernels.shifted_maps(record.saliency, batch["sample_key"], 3 + SHIFT_SEED)
    assert torch.equal(view.shifted_saliency, moved)


def test_the_filled_box_stands_for_an_object_without_a_mask(record, batch):
    (view,) = VIEWS["localisation"](record)
    assert view.object_masks is record.object_masks
    del record.batch["object_mask"]
    (view,) = VIEWS["localisation"](record)
    for image, (x0, y0, x1, y1) in enumerate(batch["bounding_box"].long().tolist()):
        expected = torch.zeros(SIZE, dtype=torch.bool)
        expected[y0 : y1 + 1, x0 : x1 + 1] = True
        assert torch.equal(view.object_masks[image], expected)
    assert view.saliency is record.saliency


def test_a_field_that_fails_does_not_become_the_clean_one(record, monkeypatch):
    (view,) = VIEWS["clipped"](record)

    def fail(self):
        raise AttributeError("lost")

    monkeypatch.setattr(type(view), "saliency", property(fail))
    with pytest.raises(AttributeError, match=r"Clipped\.saliency"):
        view.saliency  # noqa: B018


def test_owned_units_are_padded():
    owner = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    active = torch.tensor([True, True, False, True])
    assert owned_units(owner, active).tolist() == [[0, 3], [1, 3], [-1, -1]]


def test_boxes_and_lengths():
    masks = inside(torch.tensor([[1, 0, 2, 1], [0, 0, -1, -1], [-3, 1, 9, 1]]), (2, 4))
    assert masks.int().tolist() == [[[0, 1, 1, 0]] * 2, [[0] * 4] * 2, [[0] * 4, [1] * 4]]
    assert [scaled(10, (side, 7)) for side in (224, 112, 64)] == [10, 5, 3]
