"""Samples: the contract, independence of order and process, and interventions."""

import hashlib
import pickle

import cv2
import numpy as np
import pytest
import torch

from protometry.datamodules.bird_parts import FIRST_OBJECT_CODE, LABEL_MAP_CODES, PART_NAMES, PARTS, InterventionDataset
from protometry.datamodules.sketch_birds import SketchBirds, SketchBirdsDataset
from protometry.datamodules.sketch_birds import dataset as dataset_file
from protometry.datamodules.sketch_birds.render import draw_image
from protometry.datamodules.sketch_birds.scene import Knobs


@pytest.fixture(scope="module")
def birds():
    return SketchBirds("tiny", contexts=3, occluders=0.5)


@pytest.fixture(scope="module")
def large():
    return SketchBirds("default", image_size=128).dataset("test")


def digest(sample):
    state = hashlib.sha256(sample["sample_id"].encode())
    for name in sorted(sample.keys() - {"sample_id"}):
        state.update(name.encode() + np.ascontiguousarray(sample[name].numpy()).tobytes())
    return state.hexdigest()


def test_spatial_fields_agree(birds):
    for i in range(40):
        sample = birds.dataset("projection")[i]
        mask, codes = sample["object_mask"], sample["label_map"]
        assert torch.equal(mask, (codes >= 1) & (codes <= 31))
        rows, columns = mask.nonzero().T
        box = [columns.min(), rows.min(), columns.max(), rows.max()]
        assert sample["bounding_box"].tolist() == [float(v) for v in box]
        x, y = sample["part_points"][sample["part_visible"]].floor().long().T
        assert ((x >= 0) & (x < 64) & (y >= 0) & (y < 64)).all()
        assert mask[y, x].all()
        assert set(sample["concept_certainty"].tolist()) <= {1, 4}


def test_image_equals_the_picture_of_the_intervention_interface(birds):
    dataset = birds.dataset("val")
    sample = dataset[5]
    picture = (sample["image"] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    assert (picture == dataset.image(5)).all()
    assert (sample["label_map"].numpy() == dataset.label_map(5)).all()
    assert sample["label"] == dataset.label(5)


def test_index_out_of_range(birds):
    with pytest.raises(IndexError, match=r"Expected argument `i` to be in \[0, 64\), but got 64"):
        birds.dataset("val")[64]


def test_any_order_gives_the_same_bytes(birds):
    dataset = birds.dataset("projection")
    straight = [digest(dataset[i]) for i in range(12)]
    assert straight == [digest(dataset[i]) for i in reversed(range(12))][::-1]
    assert straight == [
        digest(SketchBirds("tiny", contexts=3, occluders=0.5).dataset("projection")[i]) for i in range(12)
    ]
    assert len(set(straight)) == 12


@pytest.mark.parametrize(("budget", "draws"), [(2**28, 5), (60_000, 6), (0, 10)])
def test_samples_are_drawn_once_while_they_fit(budget, draws, monkeypatch):
    drawn = []
    monkeypatch.setattr(dataset_file, "BUDGET", budget)
    monkeypatch.setattr(dataset_file, "draw_image", lambda *scene: drawn.append(1) or draw_image(*scene))
    data = SketchBirds("tiny")  # an image has 12,288 bytes
    first = data.dataset("train").batch(range(5))
    expected = {name: values.clone() for name, values in first.items() if name != "sample_id"}
    first["image"].zero_()
    again = data.dataset("train").batch([(1, i) for i in range(5)])
    assert len(drawn) == draws
    assert all(torch.equal(again[name], values) for name, values in expected.items())
    assert len(pickle.dumps(data.dataset("train"))) == len(pickle.dumps(SketchBirds("tiny").dataset("train")))


def test_targets_are_uniform_over_the_target_set(birds):
    dataset = birds.dataset("train")
    sizes = set()
    for i in range(64):
        classes, label, present = dataset.classes, dataset.label(i), dataset.present(i)
        slow = {c for c in range(8) if all(classes[c][part] == classes[label][part] for part in present)}
        assert dataset.target_set(i) == slow
        targets = dataset[i]["class_targets"]
        assert set(targets.nonzero().flatten().tolist()) == slow
        assert targets[targets > 0].tolist() == pytest.approx([1 / len(slow)] * len(slow))
        sizes.add(len(slow))
    assert len(sizes) > 2


def test_concepts_follow_the_parts_kept():
    dataset = SketchBirdsDataset("tiny", "train", Knobs(part_removal=1.0))
    names = dataset.attributes.names
    for i in range(60):
        sample, present, bird = dataset[i], dataset.present(i), dataset.classes[dataset.label(i)]
        value = dict(zip(names, sample["concepts"].tolist(), strict=True))
        certainty = dict(zip(names, sample["concept_certainty"].tolist(), strict=True))
        kept = {part: PARTS[part][variant] for part, variant in bird.items() if part in present}
        for name in names:
            question, answer = name.split("::")
            part, _, kind = question.partition("_")
            shown = [text for other, text in kept.items() if part in (other, "any")]
            assert value[name] == any(answer == text if not kind else answer in text.split() for text in shown), name
        assert all(certainty[name] == (4 if "beak" in present else 1) for name in names if name.startswith("beak"))


def test_certainty_is_low_where_the_part_is_hidden():
    dataset = SketchBirds("tiny", image_size=128, occluders=1.0).dataset("test")
    parts = [name.split("::")[0].split("_")[0] for name in dataset.attributes.names]
    hidden = 0
    for i in range(40):
        sample = dataset[i]
        codes = set(sample["label_map"].unique().tolist())
        for part in PART_NAMES:
            seen = bool(codes & set(LABEL_MAP_CODES[part]))
            rows = [name == part for name in parts]
            assert set(sample["concept_certainty"][torch.tensor(rows)].tolist()) == {4 if seen else 1}
            hidden += not seen
    assert hidden > 0


def test_targets_choose_the_fields():
    plain = SketchBirds("tiny", part_removal=0.0).dataset("test")[0]
    assert "class_targets" not in plain
    assert "labels" not in plain
    multi = SketchBirds("tiny", task="attributes").dataset("train")[1]
    assert torch.equal(multi["labels"], multi["concepts"])
    assert "class_targets" not in multi


def test_implements_the_intervention_interface(large):
    assert isinstance(large, InterventionDataset)
    assert large.n_classes == len(large.classes) == 50
    assert list(large.parts) == list(large.classes[0]) == ["beak", "eye", "foot", "tail", "wing"]
    assert (large.present(0), large.target_set(7)) == (frozenset(large.parts), {7})


def changed_outside(large, i, codes, **change):
    """Changed pixels, and the ones outside the 5x5-dilated mask of ``codes``."""
    changed = (large.intervene(i, **change) != large.image(i)).any(axis=-1)
    mask = np.isin(large.label_map(i), codes).astype(np.uint8)
    return changed.sum(), (changed & (cv2.dilate(mask, np.ones((5, 5), np.uint8)) == 0)).sum()


def test_dropping_parts_changes_their_pixels_only(large):
    counts = [changed_outside(large, i, LABEL_MAP_CODES[part], drop=[part]) for i in range(30) for part in large.parts]
    changed, outside = np.sum(counts, axis=0)
    assert min(count for count, _ in counts) > 0
    assert outside <= 0.001 * changed


def test_dropping_background_objects_changes_their_pixels_only(large):
    counts = [
        changed_outside(large, i, [FIRST_OBJECT_CODE + j], drop_background=[j])
        for i in range(15)
        for j in range(large.n_background(i))
    ]
    changed, outside = np.sum(counts, axis=0)
    assert changed > 0
    assert outside <= 0.001 * changed


def test_background_color_replaces_the_background(large):
    before, after = large.image(2), large.intervene(2, background=(10, 20, 30))
    was = (before == (85, 85, 153)).all(axis=-1)
    assert was.any()
    assert (after[was] == (10, 20, 30)).all()


def test_swap_draws_the_other_variant_and_pose_moves_the_bird(large):
    other = (large.classes[0]["tail"] + 1) % 9
    assert (large.intervene(0, swap={"tail": other}) != large.image(0)).any()
    scene = large.scene(0)
    assert (large.intervene(0, pose=(scene.matrix, scene.shift)) == large.image(0)).all()
    moved = large.intervene(0, drop_background=range(large.n_background(0)), pose=(scene.matrix, (0.25, -0.125)))
    centred = large.intervene(0, drop_background=range(large.n_background(0)), pose=(scene.matrix, (0.0, 0.0)))
    # .25 and .125 of half the side are 16 pixels right and 8 down
    assert (moved[24:104, 32:112] == centred[16:96, 16:96]).all()


def test_combined_changes(large):
    both = large.intervene(1, drop=["tail", "beak"], background=(0, 0, 0))
    assert (both != large.intervene(1, drop=["tail"], background=(0, 0, 0))).any()
    bare = large.intervene(1, drop=list(large.parts), drop_background=range(large.n_background(1)))
    colors = np.unique(bare.reshape(-1, 3), axis=0)
    fill = colors[(colors == colors[:, :1]).all(axis=1)]
    assert len(fill) >= 2  # the grey body and its shade are all that is left before the background
    assert (bare[0, 0] == (85, 85, 153)).all()
