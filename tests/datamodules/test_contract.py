"""What every data set keeps, plain and in its data module: the sample contract, the flags, splits that leak nothing.

A new data set adds its files and one line to ``tests/datamodules/registry.py``.
"""

import contextlib
import json
import os
import pickle
import re
import shutil
import unicodedata

import pytest
import torch
from jsonargparse import ArgumentParser
from lightning import Trainer

from protometry import datamodules
from protometry.datamodules import ImageDataModule, SketchBirds, SketchBirdsDataset
from protometry.datamodules.check.sample import field_sizes, same_sample, sample_problems
from protometry.datamodules.dataset import ImageLoader
from protometry.datamodules.photos.data_module import PhotoDataModule
from protometry.datamodules.photos.dataset import PhotoDataset
from protometry.datamodules.splits import SPLITS
from tests.cub_tree import make_cub
from tests.datamodules.registry import FLAT, SETS, TABLE, Made
from tests.nico_tree import make_nico
from tests.photo_trees import edit, fingerprint, make_awa2, make_flat, make_folders, write_attributes

SIZE = (24, 32)


BIRDS = {
    "SketchBirds": {"test_size": 8, "val_size": 8, "train_size": 16},
    "SketchBirds attributes": {"task": "attributes", "contexts": 2},
}


@pytest.fixture(scope="module", params=[*SETS, *BIRDS])
def data(request, tmp_path_factory):
    if request.param in BIRDS:
        return SketchBirds("tiny", image_size=SIZE, seed=3, **BIRDS[request.param])
    root = tmp_path_factory.mktemp("contract") / "root"
    SETS[request.param].write(root)
    return SETS[request.param].read(root, image_size=SIZE, seed=3)


class TestSamples:
    def test_samples_keep_the_contract_and_do_not_change(self, data):
        for split in SPLITS:
            dataset = data.dataset(split)
            for index in [(2, position) for position in range(min(len(dataset), 16))]:
                sample = dataset[index]
                assert sample_problems(sample, data.capabilities(split), field_sizes(data)) == []
                assert same_sample(sample, dataset[index])

    def test_a_batch_is_its_samples(self, data):
        for dataset in map(data.dataset, SPLITS):
            indices = [(2, position) for position in reversed(range(min(5, len(dataset))))]
            (batch,) = ImageLoader(dataset, batch_size=5, sampler=indices)
            for row, index in enumerate(indices):
                assert same_sample({name: values[row] for name, values in batch.items()}, dataset[index])

    def test_a_copy_for_another_process_takes_no_trainer_along(self, data):
        data.trainer = Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu")
        datasets = [data.dataset(split) for split in SPLITS]
        pickled = [pickle.dumps(dataset) for dataset in datasets]
        data.trainer = None
        for dataset, content in zip(datasets, pickled, strict=True):
            assert b"lightning" not in content
            copy = pickle.loads(content)
            assert copy.sample_ids == dataset.sample_ids
            assert same_sample(copy[(1, 0)], dataset[(1, 0)])


class TestModule:
    def test_parts_are_disjoint_and_ids_unique(self, data):
        ids = {split: data.dataset(split).sample_ids for split in SPLITS}
        assert ids.pop("projection") == ids["train"]
        listed = [name for part in ids.values() for name in part]
        assert len(set(listed)) == len(listed)
        assert all(ids.values())

    def test_photos_are_upright_unless_annotations_count_their_pixels(self, data):
        flags = data.capabilities("test")
        annotated = [
            flags.missing(name) is None for name in ("object_mask", "part_points", "label_map", "bounding_box")
        ]
        dataset = data.dataset("test")
        assert getattr(dataset, "upright", False) == (isinstance(dataset, PhotoDataset) and not any(annotated))

    def test_classes(self, data):
        data.setup("fit")
        assert data.num_classes == len(data.class_names) == len(set(data.class_names))
        assert data.class_weights.shape == (data.num_classes,)
        assert data.class_weights.isfinite().all()
        if data.capabilities("test").missing("multi_label") is not None:
            train = data.dataset("train")
            assert {int(train[i]["label"]) for i in range(len(train))} == set(range(data.num_classes))

    def test_class_tables_fit_each_other(self, data):
        tables, flags = data.tables, data.capabilities("test")
        assert (flags.missing("class_attributes") is None) == (tables.class_attributes is not None)
        assert bool(tables.concept_names) == (tables.class_attributes is not None)
        if flags.missing("part_points") is None or flags.missing("label_map") is None:
            assert tables.part_to_group.shape == (len(tables.part_names),)
            assert set(tables.part_to_group.tolist()) == set(range(len(tables.part_group_names)))
            assert bool(tables.label_map_codes) == (flags.missing("label_map") is None)
        if tables.class_attributes is None:
            assert tables.class_concepts is tables.class_concepts_binary is tables.concept_to_part is None
            return
        shape = (len(tables.class_attributes), len(tables.concept_names))
        assert tables.class_concepts.shape == tables.class_concepts_binary.shape == shape
        assert tables.class_concepts_binary.dtype == torch.bool
        assert len(set(tables.attribute_names)) == tables.class_attributes.shape[1]
        known = torch.tensor([name in tables.attribute_names for name in tables.concept_names])  # of every class
        assert torch.equal(known, ~tables.class_concepts.isnan().any(dim=0))
        named = [name for name in tables.concept_names if name in tables.attribute_names]
        columns = [tables.attribute_names.index(name) for name in named]
        assert ((tables.class_concepts[:, known] == 0) | (tables.class_attributes[:, columns] > 0)).all()
        for shares in (tables.class_concepts[:, known], tables.class_attributes):
            assert 0 <= shares.min() <= shares.max() <= 1
        if tables.concept_to_part is not None:
            assert (tables.concept_to_part.shape, tables.concept_to_part.dtype) == (shape[1:], torch.int64)
            assert -1 <= tables.concept_to_part.min() <= tables.concept_to_part.max() < len(tables.part_group_names)

    def test_loaders_see_everything_once(self, data):
        for split, loader in (("test", data.test_dataloader()), ("projection", data.projection_dataloader())):
            assert [name for batch in loader for name in batch["sample_id"]] == data.dataset(split).sample_ids


@pytest.fixture(scope="module", params=SETS)
def files(request, tmp_path_factory):
    """A data set and its files, which no test may change."""
    root = tmp_path_factory.mktemp("files") / "root"
    SETS[request.param].write(root)
    before = fingerprint(root)
    yield SETS[request.param], root
    assert fingerprint(root) == before


def test_a_root_at_another_level_is_refused_with_the_right_one(files, tmp_path):
    made, original = files
    shutil.copytree(original.parent, tmp_path / "a/b")
    data, refused = made.read(tmp_path / "a/b/root"), 0
    classes, folder = data.num_classes, data.photos.table.folder
    deepest = max(path.parent for path in folder.rglob("*.*[gG]"))
    inside = [place for place in (deepest, *deepest.parents) if place.is_relative_to(folder)]
    for place in (tmp_path / "a", tmp_path / "a/b", *inside):
        try:
            found = type(data)(**{**data.hparams, "root": str(place)}).num_classes
        except FileNotFoundError as error:
            (named,) = re.findall(r" `root: (.*?)`", str(error))
            found, refused = type(data)(**{**data.hparams, "root": named}).num_classes, refused + 1
        assert found == classes, place
    assert refused >= len(inside)  # all but those that hold the official folder and the one in it, and two above


ACCENTED = "caf\u00e9"


def accented_nico(root):
    make_nico(root, 2, (ACCENTED, "dog"))
    for context in root.glob("*/autumn"):
        context.rename(context.with_name(ACCENTED))


def accented_cub(root):
    folder = make_cub(root, masks=True) / "CUB_200_2011"
    for table in ("classes.txt", "images.txt"):
        edit(folder / table, lambda text: text.replace("Bird_1", ACCENTED))
    for place in (folder / "images", root / "segmentations"):
        (place / "002.Bird_1").rename(place / f"002.{ACCENTED}")


def accented_attributes(root):
    make_folders(root, classes=(ACCENTED, "bee"))
    write_attributes(root.with_suffix(".csv"), {ACCENTED: [1, 1, 0], "bee": [1, 1, 1]})


@pytest.mark.parametrize("made", [
    Made(lambda root: make_awa2(root, (ACCENTED, "bat")), "AwA2", {"task": "single"}), Made(accented_cub, "Cub200"),
    Made(lambda root: make_folders(root, {"train": 4, "test": 2}, (ACCENTED, "bee")), "ImageFolder"),
    Made(lambda root: make_flat(root, classes=(ACCENTED, "bee")), "ImageFolder", FLAT),
    Made(accented_attributes, "ImageFolder", TABLE), Made(accented_nico, "Nico"),
], ids=lambda made: f"{made.kind} {made.module}")  # fmt: skip
def test_composed_and_decomposed_names_are_the_same(made, tmp_path):
    root = tmp_path / "composed"
    made.write(root)
    shutil.copytree(root, other := tmp_path / "decomposed")
    if (table := root.with_suffix(".csv")).exists():
        shutil.copy(table, other.with_suffix(".csv"))
    for path in sorted(other.rglob("*"), reverse=True):
        path.rename(path.with_name(unicodedata.normalize("NFD", path.name)))
    one, two = made.read(root, image_size=SIZE), made.read(other, image_size=SIZE)
    two.prepare_data()
    assert (two.split_record(), two.photos.table.class_names) == (one.split_record(), one.photos.table.class_names)
    assert two.tables.context_names == one.tables.context_names
    assert [same_sample(one.dataset("test")[i], two.dataset("test")[i]) for i in range(3)] == [True] * 3
    assert fingerprint(root, times=False) != fingerprint(other, times=False)


class TestPlain:
    def test_its_samples_are_those_of_evaluation(self, files):
        made, root = files
        data = made.read(root, image_size=SIZE)
        plain = made.read_plain(root, transform=data.transform())
        position = {name: index for index, name in enumerate(plain.sample_ids)}
        for split in ("projection", "val", "test"):
            dataset = data.dataset(split)
            for index, name in list(enumerate(dataset.sample_ids))[:4]:
                assert same_sample(plain[position[name]], dataset[index])
        assert plain.class_names == data.class_names
        assert len(plain) == len(position) == sum(len(data.dataset(split)) for split in ("train", "val", "test"))

    def test_root_in_sample_out(self, files):
        made, root = files
        plain = made.read_plain(root)
        sample = plain[len(plain) - 1]
        side = 256 if made.kind == "FunnyBirds" else 224
        names = {"H": side, "W": side, "K": len(plain.class_names)}
        sizes = names | {"N": len(plain.tables.part_names), "L": len(plain.tables.concept_names)}
        assert sample_problems(sample, plain.capabilities(), sizes) == []
        assert same_sample(pickle.loads(pickle.dumps(plain))[len(plain) - 1], sample)
        picture = plain.plot(sample)
        assert (picture.mode, picture.size) == ("RGB", (384, 384))
        bare = plain.plot({"image": sample["image"]})
        assert (picture.tobytes() != bare.tobytes()) == bool({"bounding_box", "part_points"} & sample.keys())


def test_plain_sketch_birds_are_those_of_the_data_module():
    plain, data = SketchBirdsDataset("tiny"), SketchBirds("tiny").dataset("test")
    assert plain.sample_ids == data.sample_ids
    assert all(same_sample(plain[i], data[i]) for i in range(4))
    assert plain.plot(plain[0]).size == (384, 384)


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


class TestFiles:
    def test_splits_depend_on_neither_place_nor_order_of_directories(self, files, tmp_path, monkeypatch):
        made, root = files
        shutil.copytree(root, tmp_path / "copy")
        for other in root.parent.glob("root.*"):
            shutil.copy(other, tmp_path / other.name.replace("root", "copy"))
        list_folders(monkeypatch, backwards=True)
        data = made.read(root, fold=0)
        record, ids = data.split_record(), data.dataset("train").sample_ids
        list_folders(monkeypatch, backwards=False)
        for again in (type(data)(**data.hparams), made.read(tmp_path / "copy")):
            assert (again.split_record(), again.dataset("train").sample_ids) == (record, ids)

    def test_reading_draws_no_random_number(self, files):
        """Models are made after their data are read: a draw would make their weights depend on what a cache holds."""
        made, root = files
        before = torch.get_rng_state()
        data = made.read(root, image_size=16)
        assert data.num_classes == len(data.class_names)
        data.prepare_data()
        data.setup("fit")
        assert torch.equal(torch.get_rng_state(), before)

    def test_nothing_below_root_changes_and_preparing_sets_no_state(self, files):
        made, root = files
        data = made.read(root, image_size=16, batch_size=3)
        for path in [root, *root.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        before, state = fingerprint(root), dict(vars(data))
        data.prepare_data()
        assert vars(data) == state
        for split in SPLITS:
            next(iter(data._loader(split)))
        assert fingerprint(root) == before
        for path in [root, *root.rglob("*")]:
            path.chmod(0o755)

    def test_every_argument_is_on_the_command_line(self, files):
        made, root = files
        parser, plain = ArgumentParser(), ArgumentParser()
        data = made.read(root)
        parser.add_class_arguments(type(data), "data")
        plain.add_class_arguments(PhotoDataModule, "data")
        flags = {action.dest for action in parser._actions}
        assert flags >= {action.dest for action in plain._actions}
        assert flags >= {"data.image_size", "data.num_workers", "data.augmentation", "data.exclude"}
        choose = ArgumentParser()
        choose.add_subclass_arguments(ImageDataModule, "data", required=True)
        words = [f"--data={made.kind}", f"--data.root={root}"]
        words += ["--data.batch_size=5", "--data.exclude=[x]", "--data.seed=7"]
        again = type(data)(**choose.parse_args(words).data.init_args)
        assert (again.batch_size, again.exclude, again.root, again.seed) == (5, ["x"], str(root), 7)

    def test_a_split_of_other_data_is_refused(self, files, tmp_path):
        made, root = files
        record = made.read(root).split_record()
        path = tmp_path / "split.json"
        path.write_text(json.dumps(record))
        again = made.read(root, split_file=str(path))
        assert again.split_record() == record
        first = record["test"][0]
        with pytest.raises(ValueError, match=rf"split\.json was written, but 1 is gone, such as '{first}'\. Restore"):
            made.read(root, split_file=str(path), exclude=[first]).setup()
        path.write_text(json.dumps({**record, "dataset": "birds"}))
        with pytest.raises(ValueError, match=f"to be a split of {record['dataset']}, but got one of birds"):
            made.read(root, split_file=str(path)).prepare_data()

    def test_what_is_left_out_must_be_there(self, files):
        made, root = files
        with pytest.raises(ValueError, match=f"to hold image ids of {root}.* got 1 others; the first is 'x'"):
            made.read(root, exclude=["x"]).setup()


@pytest.mark.parametrize(("kind", "names"), [
    ("AwA2", "task"), ("Cars196", "scheme crop"),
    ("Cub200", "scheme crop concept_selection concept_level geometry variant augmentation"),
    ("ImageFolder", "layout scheme"), ("Nico", "scheme variant"), ("SketchBirds", "task test_context preset"),
    ("SketchBirdsDataset", "preset split"),
])  # fmt: skip
def test_unknown_choices_are_refused_before_anything_is_read(kind, names):
    for name in names.split():
        with pytest.raises(ValueError, match=f"`{name}` to be one of .*, but got 'other'"):
            getattr(datamodules, kind)(**{"root": "nowhere"} if "Sketch" not in kind else {}, **{name: "other"})
