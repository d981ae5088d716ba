"""Facts about two real excerpts of FunnyBirds, most of them counted independently of the loader."""

import json
from collections import Counter
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules import FunnyBirds
from protometry.datamodules.check.sample import field_sizes, sample_problems
from protometry.datamodules.sketch_birds.class_table import has_disjoint_pairs
from protometry.datamodules.splits import SPLITS
from tests.photo_trees import stamps

PARTS = ("beak", "eye", "foot", "tail", "wing")


def minimal_sufficient_sets(table, label):
    """Sets of parts whose variants no other class shares, without those that contain a smaller one."""
    shared = np.delete(table == table[label], label, axis=0)
    collected = []
    for size in range(1, table.shape[1] + 1):
        for parts in combinations(range(table.shape[1]), size):
            if not shared[:, parts].all(axis=1).any() and not any(set(small) <= set(parts) for small in collected):
                collected.append(parts)
    return collected


def sizes_of_sufficient_sets(table):
    return Counter(len(parts) for label in range(len(table)) for parts in minimal_sufficient_sets(table, label))


def removed_parts(data):
    """Number of training images by number of removed parts."""
    removed = (~data.photos.table.scenes["train"].kept).sum(axis=1)
    return np.bincount(removed, minlength=6).tolist()


def visible_pixels(dataset):
    """Part -> number of its pixels in each image."""
    maps = np.stack([dataset.label_map(i) for i in range(len(dataset))])
    codes = {"beak": (2,), "eye": (3, 4), "foot": (5, 6), "tail": (9,), "wing": (7, 8)}
    return {part: np.isin(maps, codes[part]).sum(axis=(1, 2)) for part in PARTS}


def load(folder):
    data = FunnyBirds(str(folder))
    data.setup()
    return data


@pytest.fixture(scope="module")
def large(shared_data):
    return load(shared_data("funnybirds"))


@pytest.fixture(scope="module")
def small(shared_data):
    return load(shared_data("funnybirds10"))


@pytest.mark.parametrize("name", ["funnybirds", "funnybirds10"])
def test_folder_is_sound_and_only_read(shared_data, name):
    folder = shared_data(name)
    before = stamps(folder)
    data = FunnyBirds(str(folder), verify="decode" if name == "funnybirds" else "header", batch_size=2)
    data.prepare_data()
    next(iter(data.train_dataloader()))
    assert stamps(folder) == before


class TestLarge:
    def test_counts(self, large):
        train, test = (large.photos.table.scenes[split] for split in ("train", "test"))
        assert large.num_classes == 50
        assert train.labels.tolist() == [label for label in range(50) for _ in range(3)]
        assert test.labels.tolist() == list(range(50))
        assert removed_parts(large) == [102, 8, 14, 11, 7, 8]
        assert test.kept.all()
        assert (test.objects.sum(), test.objects.min(), test.objects.max()) == (899, 1, 34)
        assert len(large.tables.concept_names) == 26

    def test_classes(self, large):
        classes = large.photos.table.classes
        assert np.prod([len(variants) for variants in classes.variants.values()]) == 2592
        assert len(np.unique(classes.table, axis=0)) == 50
        distances = [(a != b).sum() for a, b in combinations(classes.table, 2)]
        assert np.bincount(distances).tolist() == [0, 13, 80, 294, 488, 350]
        assert sizes_of_sufficient_sets(classes.table) == {2: 82, 3: 110, 4: 3}  # 3.9 per class
        assert has_disjoint_pairs(classes.table).all()

    def test_visible_pixels(self, large):
        visible = visible_pixels(large.dataset("test"))
        medians = {"beak": 116.5, "eye": 105, "foot": 304, "wing": 628.5, "tail": 47.5}
        assert {part: np.median(pixels) for part, pixels in visible.items()} == medians
        assert {part: (pixels == 0).sum() for part, pixels in visible.items() if (pixels == 0).any()} == {
            **{"tail": 7, "beak": 1, "eye": 1},
        }

    def test_unmatched_pixels(self, large):
        dataset = large.dataset("test")
        unmatched = [(dataset.label_map(i) == 255).sum() for i in range(len(dataset))]
        assert round(np.mean(unmatched)) == 204

    def test_hidden_parts_are_present_but_not_visible(self, large):
        dataset = large.dataset("test")
        tail = [i for i, name in enumerate(large.tables.concept_names) if name.startswith("tail::")]
        hidden = 0
        for i in range(len(dataset)):
            sample = dataset[i]
            assert dataset.present(i) == frozenset(PARTS)
            assert sample["concepts"][tail].sum() == 1
            hidden += int((sample["concept_certainty"][tail] == 1).all())
        assert hidden == 7


class TestSmall:
    def test_counts(self, small):
        train, test = (small.photos.table.scenes[split] for split in ("train", "test"))
        entries = json.loads((small.photos.table.folder / "dataset_train.json").read_text())
        removed = Counter(sum(entry[f"{part}_model"] == "placeholder" for part in PARTS) for entry in entries)
        assert [removed[count] for count in range(6)] == removed_parts(small)
        assert small.class_names == [f"bird {i}" for i in (11, 15, 16, 24, 26, 27, 32, 41, 43, 45)]
        assert train.labels.tolist() == [label for label in range(10) for _ in range(250)]
        assert test.labels.tolist() == [label for label in range(10) for _ in range(3)]
        assert removed_parts(small) == [1498, 207, 209, 205, 187, 194]
        assert (test.objects.sum(), (test.objects == 0).sum()) == (549, 2)

    def test_target_sets(self, small):
        sizes = small.photos.table.targets[:2500].sum(axis=1)
        assert (sizes == 1).mean() == pytest.approx(0.806, abs=5e-4)
        assert sizes.mean() == pytest.approx(1.934, abs=5e-4)

    def test_classes(self, small):
        table = small.photos.table.classes.table
        assert sizes_of_sufficient_sets(table) == {1: 4, 2: 43, 3: 2}  # 4.9 per class
        of_one_class = [np.bincount(variants) == 1 for variants in table.T]
        assert sum(only.sum() for only in of_one_class) == 4  # single parts suffice exactly there
        assert has_disjoint_pairs(table).all()

    def test_split(self, small):
        record = small.split_record()
        assert [len(small.dataset(split)) for split in SPLITS] == [2000, 2000, 500, 30]
        assert Counter(name.split("/")[1] for name in record["val"][0]) == {str(label): 50 for label in range(10)}

    def test_hidden_parts(self, small):
        visible = visible_pixels(small.dataset("test"))
        hidden = {part: (pixels == 0).sum() for part, pixels in visible.items() if (pixels == 0).any()}
        assert hidden == {"beak": 2, "tail": 1}

    def test_intervention_files(self, small):
        folder = small.photos.table.folder / "test_interventions"
        assert sum(1 for _ in folder.rglob("*.png")) == 1509 == 30 * 32 + 549

    def test_all_kept_is_the_image(self, small):
        birds = small.dataset("test")
        for i in range(len(birds)):
            path = Path("test_interventions", *birds.sample_id(i).removesuffix(".png").split("/")[1:])
            with Image.open(small.photos.table.folder / path / "body_beak_eye_foot_tail_wing.png") as image:
                assert (np.array(image.convert("RGB")) == birds.image(i)).all()

    def test_changed_pixels(self, small):
        birds = small.dataset("test")
        codes = small.tables.label_map_codes
        unchanged, outside = Counter(), []
        for i in range(len(birds)):
            image, label_map = birds.image(i), birds.label_map(i)
            for part in PARTS:
                changed = (birds.intervene(i, drop=[part]) != image).any(axis=2)
                mask = cv2.dilate(np.isin(label_map, codes[part]).astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
                if changed.any():
                    outside.append((changed & ~mask).sum() / changed.sum())
                else:
                    unchanged[part] += 1
        assert unchanged == {"beak": 2, "tail": 1}
        assert np.mean(outside) == pytest.approx(0.017, abs=5e-4)
        assert max(outside) == pytest.approx(0.36, abs=5e-3)

    def test_every_background_object_changes_only_its_place(self, small):
        birds = small.dataset("test")
        for i in range(0, len(birds), 5):
            label_map = birds.label_map(i)
            for number in range(birds.n_background(i)):
                changed = (birds.intervene(i, drop_background=[number]) != birds.image(i)).any(axis=2)
                mask = cv2.dilate((label_map == 32 + number).astype(np.uint8), np.ones((5, 5), np.uint8)) > 0
                assert (changed & ~mask).mean() < 0.002

    def test_samples_keep_the_contract(self, small):
        for split in SPLITS:
            dataset = small.dataset(split)
            for i in range(0, len(dataset), max(1, len(dataset) // 10)):
                sample = dataset[i]
                assert sample_problems(sample, small.capabilities(split), field_sizes(small)) == []
                assert sample["class_targets"][sample["label"]] == 1 / len(dataset.target_set(i))
                assert torch.isfinite(sample["image"]).all()
