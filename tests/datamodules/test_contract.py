"""What every data module keeps: the sample contract, the flags, and splits that leak nothing.

A new data set adds one line to ``MODULES``.
"""

import contextlib
import json
import os
import pickle

import pytest
import torch
from jsonargparse import ArgumentParser

from datamodules import AwA2, Cars196, Cub200, FunnyBirds, ImageFolder, Nico, SketchBirds
from datamodules.base import SPLITS
from datamodules.dataset import ImageLoader
from datamodules.photos.data_module import PhotoDataModule
from datamodules.sample import sample_key
from tests.cub_tree import make_cub
from tests.funnybirds_tree import make_funnybirds
from tests.nico_tree import make_nico
from tests.photo_trees import (
    fingerprint,
    make_awa2,
    make_cars,
    make_cars_in_one,
    make_flat,
    make_folders,
    write_attributes,
)

SIZE = (24, 32)


def attributed_folder(root, **options):
    table = write_attributes(root.with_suffix(".csv"), {"ant": [1, 1, 0], "bee": [1, 1, 1]})
    return ImageFolder(str(make_folders(root)), attribute_table=str(table), **options)


# name -> makes the data module over files it writes below a folder, if it needs any
MODULES = {
    "AwA2": lambda root, **options: AwA2(str(make_awa2(root)), **options),
    "AwA2 single": lambda root, **options: AwA2(str(make_awa2(root)), task="single", **options),
    "Cars196": lambda root, **options: Cars196(str(make_cars(root)), **options),
    "Cars196 in one": lambda root, **options: Cars196(str(make_cars_in_one(root)), scheme="official", **options),
    "Cub200": lambda root, **options: Cub200(str(make_cub(root)), **options),
    "Cub200 masks": lambda root, **options: Cub200(str(make_cub(root, masks=True)), crop="box", **options),
    "FunnyBirds": lambda root, **options: FunnyBirds(str(make_funnybirds(root)), **options),
    "ImageFolder": lambda root, **options: ImageFolder(str(make_folders(root, {"train": 8, "val": 3})), **options),
    "ImageFolder flat": lambda root, **options: ImageFolder(str(make_flat(root)), layout="flat", **options),
    "ImageFolder attributes": attributed_folder,
    "Nico": lambda root, **options: Nico(str(make_nico(root, per_context=2)), **options),
    "SketchBirds": lambda root, **options: SketchBirds("tiny", test_size=8, val_size=8, train_size=16, **options),
    "SketchBirds attributes": lambda root, **options: SketchBirds("tiny", task="attributes", contexts=2, **options),
}

# key -> dtype, shape of (data module, height, width), flags of which one announces it
FIELDS = {
    "image": (torch.float32, lambda data, h, w: (3, h, w), ()),
    "label": (torch.int64, lambda data, h, w: (), ()),
    "sample_key": (torch.int64, lambda data, h, w: (), ()),
    "labels": (torch.bool, lambda data, h, w: (data.num_classes,), ("multi_label",)),
    "class_targets": (torch.float32, lambda data, h, w: (data.num_classes,), ("soft_targets",)),
    "object_mask": (torch.bool, lambda data, h, w: (h, w), ("object_mask",)),
    "part_points": (torch.float32, lambda data, h, w: (len(data.part_names), 2), ("part_points",)),
    "part_visible": (torch.bool, lambda data, h, w: (len(data.part_names),), ("part_points",)),
    "label_map": (torch.uint8, lambda data, h, w: (h, w), ("label_map",)),
    "concepts": (torch.bool, lambda data, h, w: (len(data.concept_names),), ("concepts_class", "concepts_image")),
    "concept_certainty": (torch.uint8, lambda data, h, w: (len(data.concept_names),), ("concept_certainty",)),
    "bounding_box": (torch.float32, lambda data, h, w: (4,), ("bounding_box",)),
    "context": (torch.int64, lambda data, h, w: (), ("context",)),
}


@pytest.fixture(scope="module", params=MODULES)
def data(request, tmp_path_factory):
    return MODULES[request.param](tmp_path_factory.mktemp("contract") / "root", image_size=SIZE, seed=3)


def all_samples(data, split, epoch=0):
    dataset = data.dataset(split)
    return [dataset[(epoch, i)] for i in range(min(len(dataset), 16))]


def assert_same(first, second):
    assert first.keys() == second.keys()
    assert first["sample_id"] == second["sample_id"]
    for key in first.keys() - {"sample_id"}:
        torch.testing.assert_close(first[key], second[key], rtol=0, atol=0)


@pytest.mark.parametrize("split", SPLITS)
class TestSamples:
    def test_keys_are_those_of_the_flags(self, data, split):
        flags = data.capabilities(split)
        announced = {
            key
            for key, (_, _, names) in FIELDS.items()
            if not names or any(flags.missing(name) is None for name in names)
        }
        for sample in all_samples(data, split):
            assert sample.keys() == announced | {"sample_id"}

    def test_dtypes_and_shapes(self, data, split):
        for sample in all_samples(data, split):
            for key in sample.keys() - {"sample_id"}:
                dtype, shape, _ = FIELDS[key]
                assert (key, sample[key].dtype, tuple(sample[key].shape)) == (key, dtype, shape(data, *SIZE))

    def test_ranges(self, data, split):
        for sample in all_samples(data, split):
            assert 0 <= sample["image"].min() <= sample["image"].max() <= 1
            assert sample["sample_key"].item() == sample_key(sample["sample_id"])
            if "labels" not in sample:
                assert 0 <= sample["label"] < data.num_classes
            if "class_targets" in sample:
                torch.testing.assert_close(sample["class_targets"].sum(), torch.tensor(1.0))
            if "concept_certainty" in sample:
                assert sample["concept_certainty"].max() <= 4

    def test_places_are_in_the_frame(self, data, split):
        height, width = SIZE
        for sample in all_samples(data, split):
            if "bounding_box" in sample:
                x0, y0, x1, y1 = sample["bounding_box"].tolist()
                assert 0 <= x0 <= x1 <= width - 1
                assert 0 <= y0 <= y1 <= height - 1
            if "part_points" in sample:
                points, visible = sample["part_points"], sample["part_visible"]
                assert (points[~visible] == 0).all()
                assert ((points >= 0) & (points < torch.tensor([width, height]))).all()

    def test_the_same_sample_twice(self, data, split):
        for first, second in zip(all_samples(data, split, 2), all_samples(data, split, 2), strict=True):
            assert_same(first, second)

    def test_a_batch_is_its_samples(self, data, split):
        dataset = data.dataset(split)
        indices = [(2, position) for position in reversed(range(min(5, len(dataset))))]
        (batch,) = ImageLoader(dataset, batch_size=5, sampler=indices)
        for row, index in enumerate(indices):
            assert_same({name: values[row] for name, values in batch.items()}, dataset[index])

    def test_a_copy_for_another_process(self, data, split):
        dataset = data.dataset(split)
        copy = pickle.loads(pickle.dumps(dataset))
        assert copy.sample_ids == dataset.sample_ids
        assert_same(copy[(1, 0)], dataset[(1, 0)])


class TestModule:
    def test_parts_are_disjoint_and_ids_unique(self, data):
        ids = {split: data.dataset(split).sample_ids for split in SPLITS}
        assert ids.pop("projection") == ids["train"]
        listed = [name for part in ids.values() for name in part]
        assert len(set(listed)) == len(listed)
        assert all(ids.values())

    def test_classes(self, data):
        assert data.num_classes == len(data.class_names) == len(set(data.class_names))
        assert data.class_weights.shape == (data.num_classes,)
        assert data.class_weights.isfinite().all()
        if data.capabilities("test").missing("multi_label") is not None:
            seen = {int(sample["label"]) for sample in all_samples(data, "train")}
            assert seen == set(range(data.num_classes))

    def test_class_tables(self, data):
        flags = data.capabilities("test")
        if flags.missing("class_attributes") is not None:
            pytest.skip(flags.missing("class_attributes"))
        rows = data.class_attributes.shape[0]
        assert data.class_concepts.shape == data.class_concepts_binary.shape == (rows, len(data.concept_names))
        assert data.class_concepts_binary.dtype == torch.bool
        assert 0 <= data.class_concepts.min() <= data.class_concepts.max() <= 1

    def test_loaders_see_everything_once(self, data):
        for split, loader in (("test", data.test_dataloader()), ("projection", data.projection_dataloader())):
            seen = [name for batch in loader for name in batch["sample_id"]]
            assert seen == data.dataset(split).sample_ids


PHOTOS = [name for name in MODULES if not name.startswith("SketchBirds")]


class Entries(contextlib.nullcontext):
    """What ``os.scandir`` returns, in an order of our own."""

    def __init__(self, entries):
        super().__init__(self)
        self._entries = iter(entries)

    def __iter__(self):
        return self._entries

    def __next__(self):
        return next(self._entries)

    def close(self):
        pass


SCAN, NAMES = os.scandir, os.listdir


def list_folders(monkeypatch, backwards):
    """Make folders list what is in them by name, from a to z or backwards."""

    def scan(*args):
        with SCAN(*args) as entries:
            return Entries(sorted(entries, key=lambda entry: entry.name, reverse=backwards))

    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(os, "listdir", lambda *args: sorted(NAMES(*args), reverse=backwards))


@pytest.mark.parametrize("name", PHOTOS)
class TestFiles:
    def test_splits_do_not_depend_on_the_order_of_directories(self, name, tmp_path, monkeypatch):
        data = MODULES[name](tmp_path / "root")
        list_folders(monkeypatch, backwards=True)
        record, ids = data.split_record(), data.dataset("train").sample_ids
        list_folders(monkeypatch, backwards=False)
        again = type(data)(**data.hparams)
        assert again.split_record() == record
        assert again.dataset("train").sample_ids == ids

    def test_nothing_below_root_changes(self, name, tmp_path):
        root = tmp_path / "root"
        data = MODULES[name](root, image_size=16)
        for path in [root, *root.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = fingerprint(root)
        data.prepare_data()
        for split in SPLITS:
            all_samples(data, split)
        assert fingerprint(root) == before
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755)

    def test_prepare_data_sets_no_state(self, name, tmp_path):
        data = MODULES[name](tmp_path / "root")
        before = dict(vars(data))
        data.prepare_data()
        assert vars(data) == before

    def test_every_argument_is_on_the_command_line(self, name, tmp_path):
        data = MODULES[name](tmp_path / "root")
        parser, plain = ArgumentParser(), ArgumentParser()
        parser.add_class_arguments(type(data), "data")
        plain.add_class_arguments(PhotoDataModule, "data")
        flags = {action.dest for action in parser._actions}
        assert flags >= {action.dest for action in plain._actions}
        assert flags >= {"data.image_size", "data.num_workers", "data.augmentation", "data.exclude"}
        parsed = parser.parse_args(["--data.root", data.root, "--data.batch_size", "5", "--data.verify", "none"])
        again = parser.instantiate_classes(parsed).data
        assert (again.batch_size, again.verify, again.root) == (5, "none", data.root)

    def test_a_split_of_other_data_is_refused(self, name, tmp_path, cub_tree):
        data = MODULES[name](tmp_path / "root")
        ids = data.split_record()["test"][:1]
        path = tmp_path / "split.json"
        path.write_text(json.dumps(data.split_record()))
        assert MODULES[name](tmp_path / "same", split_file=str(path)).split_record() == data.split_record()
        other = MODULES[name](tmp_path / "other", split_file=str(path), exclude=ids)
        with pytest.raises(ValueError, match=f"0 ids are new and 1 are gone; the first is '{ids[0]}'"):
            other.setup()
