"""What a check finds: counts and hashes per split, and everything that is wrong in one error."""

import hashlib
import re

import pytest
import torch

from protometry.datamodules import Cars196, Cub200, ImageFolder, SketchBirds
from protometry.datamodules.check.check import check_data
from protometry.datamodules.check.report import USES, show_check
from protometry.datamodules.dataset import ImageDataset
from protometry.metrics.suite import ENTRIES
from tests.photo_trees import make_cars, make_folders


def cub(root, **options):
    return Cub200(str(root), **{"image_size": 32, **options})


class TestFindings:
    def test_cub(self, cub_tree):
        data = cub(cub_tree(masks=True))
        result = check_data(data)
        record = result.record
        assert (record["data"], record["dataset"], record["images"], record["classes"]) == ("Cub200", "cub200", 24, 3)
        assert (record["official_images"], record["content_sha256"]) == (11788, data.split_record()["content_sha256"])
        assert {name: split["samples"] for name, split in record["splits"].items()} == {
            **{"train": 12, "projection": 12, "val": 4, "test": 8}
        }
        test = record["splits"]["test"]
        assert test["checked"] == 8
        numbers = sorted(data.split_record()["test"], key=int)
        assert test["ids_sha256"] == hashlib.sha256("\n".join(numbers).encode()).hexdigest()
        assert 2 <= test["per_class"]["min"] <= test["per_class"]["max"] <= 3
        assert record["splits"]["train"]["per_class"] == record["splits"]["projection"]["per_class"]
        assert test["flags"]["object_mask"] is True
        assert test["flags"]["label_map"] == "no part maps"

    def test_sketch_birds_has_no_split_record(self):
        sizes = {"image_size": 32, "train_size": 8, "val_size": 24}
        first, second = (check_data(SketchBirds("tiny", test_size=size, **sizes)).record for size in (8, 9))
        assert first["split_sha256"] is first["official_images"] is None
        assert (len(first["content_sha256"]), first["splits"]["val"]["per_class"]) == (64, {"min": 3, "max": 3})
        assert first["content_sha256"] != second["content_sha256"]

    def test_limit(self):
        record = check_data(SketchBirds("tiny"), limit=5).record
        assert (record["splits"]["test"]["samples"], record["splits"]["test"]["checked"]) == (64, 5)
        assert record["content_sha256"] is None

    def test_several_labels(self):
        sizes = {"image_size": 32, "train_size": 8, "val_size": 8}
        result = check_data(SketchBirds("tiny", task="attributes", **sizes))
        test = result.record["splits"]["test"]
        data = SketchBirds("tiny", task="attributes", **sizes)
        shown = sum(sample["labels"].long() for sample in data.dataset("test")).tolist()
        assert test["labels"] == dict(zip(data.class_names, shown, strict=True))
        assert test["per_class"] == {"min": min(shown), "max": max(shown)}
        assert result.tiles[0].text.endswith(" labels")

    def test_workers_find_the_same(self, cub_tree):
        root = cub_tree()
        assert check_data(cub(root)).record == check_data(cub(root, num_workers=1)).record

    def test_without_validation(self, cub_tree):
        assert set(check_data(cub(cub_tree(), fold=None)).record["splits"]) == {"train", "projection", "test"}

    def test_without_test_photos(self, tmp_path):
        root = make_cars(tmp_path / "cars")
        (root / "stanford_cars/cars_test_annos_withlabels.mat").unlink()
        result = check_data(Cars196(str(root), scheme="official", image_size=16))
        assert {split: entry["samples"] for split, entry in result.record["splits"].items()} == {
            **{"train": 10, "projection": 10, "val": 2}
        }
        assert "\nbounding_box       projection, val" in show_check(result)

    def test_photos_for_test_only(self, tmp_path):
        data = ImageFolder(str(make_folders(tmp_path / "photos")), scheme="test", image_size=16)
        found = check_data(data)
        assert "no training images: for `python evaluate.py run --data`" in show_check(found)
        record = found.record
        assert show_check(found).startswith("photos (ImageFolder): 16 images")
        assert (list(record["splits"]), record["splits"]["test"]["per_class"]) == (["test"], {"min": 8, "max": 8})

    def test_table(self, cub_tree):
        text = show_check(check_data(cub(cub_tree())))
        assert text.startswith("Cub200: 24 images (of 11788 in the official data set), 3 classes\n")
        assert "\nobject_mask        -                             no segmentations/ under root\n" in text
        assert "\npart_points        projection, val, test         training images are augmented" in text
        assert "\n                   for metrics alignment, complexity/consistency, concepts/clm\n" in text

    @pytest.mark.parametrize("flag", USES)
    def test_uses_are_those_of_the_metrics(self, flag):
        users = [key for key, entry in ENTRIES.items() if any(flag in need.split("|") for need in entry.needs)]
        for key in users:
            assert any(key.startswith(name) for name in re.split("[ ;,]+", USES[flag])), key

    def test_known_hashes(self, shared_data):
        splits = check_data(cub(shared_data("cub"), verify="none"), limit=6).record["splits"]
        assert splits["test"]["ids_sha256"].startswith("d985e5ecc228faf3")
        assert splits["val"]["ids_sha256"].startswith("45f77abce92cd4d4")


class Changed(ImageDataset):
    """A data set whose sample 2 is changed, or an error."""

    def __init__(self, dataset, change):
        self.dataset, self.change, self.times = dataset, change, 0

    @property
    def sample_ids(self):
        return self.dataset.sample_ids

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        self.times += 1
        sample = self.dataset[index]
        return self.change(sample, self.times) if index in (0, 2) else sample


def broken(monkeypatch, change):
    """SketchBirds whose test samples 0 and 2 are changed."""
    birds = SketchBirds("tiny", image_size=32, train_size=8, val_size=8, test_size=8)
    dataset = birds.dataset
    monkeypatch.setattr(birds, "dataset", lambda s: Changed(dataset(s), change) if s == "test" else dataset(s))
    return birds


def fail(sample, times):
    raise ValueError(f"Expected {sample['sample_id']}.png to be an image")


class TestWrongData:
    @pytest.mark.parametrize(("change", "said"), [
        (lambda sample, times: {**sample, "image": sample["image"] + 2}, "sample 'test/00000': `image` is not in 0..1"),
        (lambda sample, times: {**sample, "image": torch.full((3, 32, 32), 1 / (1 + times))},
         "sample 'test/00000': differs when read twice"),
        (fail, r"sample 'test/00000': Expected test/00000\.png"),
    ])  # fmt: skip
    def test_all_problems_are_counted(self, monkeypatch, change, said):
        with pytest.raises(ValueError, match=rf"got 2 problems:\n  test[,:] {said}"):
            check_data(broken(monkeypatch, change))

    def test_equal_ids(self, monkeypatch):
        birds = SketchBirds("tiny")
        monkeypatch.setattr(type(birds.dataset("val")), "sample_ids", property(lambda self: ["one"] * len(self)))
        with pytest.raises(ValueError, match="train: 256 samples have 1 different ids"):
            check_data(birds, limit=2)
