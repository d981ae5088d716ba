"""Facts about real files, which are skipped where there are none."""

from collections import Counter

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules import Cub200
from protometry.datamodules.awa2 import VISIBLE, read_predicates
from protometry.datamodules.cars196 import Cars196Dataset
from protometry.datamodules.nico.hsv_rule import GROUPS, hsv_counts, hsv_group
from tests.datamodules.image_folder.test_image_folder import folder as image_folder
from tests.datamodules.image_folder.test_image_folder import ids
from tests.datamodules.image_folder.test_photo_table import assert_same, own_of
from tests.datamodules.nico.test_data_module import groups as groups_of
from tests.datamodules.nico.test_data_module import module as nico
from tests.datamodules.test_awa2 import animals
from tests.datamodules.test_cars196 import cars


def test_awa2_facts(shared_data):
    folder = shared_data("awa2")
    predicates = read_predicates(folder)
    binary = predicates.binary
    assert binary.shape == (50, 49)
    assert (binary.sum(), binary.sum(1).min(), binary.sum(1).max()) == (806, 11, 20)
    assert (binary.sum(0).min(), binary.sum(0).max()) == (1, 43)
    assert len(np.unique(binary, axis=0)) == 50
    assert predicates.full.shape == (50, 85)
    whole = np.loadtxt(folder / "predicate-matrix-binary.txt")
    assert ((predicates.full > predicates.full.mean()) == whole).all()
    numbered = [line.split()[1] for line in (folder / "predicates.txt").read_text().splitlines()]
    visible = [*range(33), 44, 45, *range(64, 78)]
    assert [numbered[i] for i in visible] == list(VISIBLE)
    assert (binary == whole[:, visible]).all()


def test_awa2_missing_photos(shared_data):
    with pytest.raises(FileNotFoundError, match=r" JPEGImages/ is missing; it is part of AwA2-data\.zip"):
        animals(shared_data("awa2")).prepare_data()


def test_photos_of_tiny_imagenet(shared_data, tmp_path):
    # the rows of the 11 animals that Tiny-ImageNet has too, and links to its photos
    tables, photos = shared_data("awa2"), shared_data("tiny_imagenet")
    pairs = [line.split() for line in (photos / "wnid_to_awa2.txt").read_text().splitlines()]
    names = [line.split()[1] for line in (tables / "classes.txt").read_text().splitlines()]
    kept = sorted(names.index(animal) for _, animal in pairs)
    assert kept == [0, 1, 5, 7, 18, 20, 24, 32, 36, 41, 42]
    folder = tmp_path / "Animals_with_Attributes2"
    folder.mkdir()
    (folder / "classes.txt").write_text("".join(f"{n}\t{names[row]}\n" for n, row in enumerate(kept, start=1)))
    (folder / "predicates.txt").write_text((tables / "predicates.txt").read_text())
    for name in ("predicate-matrix-binary.txt", "predicate-matrix-continuous.txt"):
        rows = (tables / name).read_text().splitlines()
        (folder / name).write_text("\n".join(rows[row] for row in kept))
    for wnid, animal in pairs:
        (folder / "JPEGImages" / animal).mkdir(parents=True)
        for part in ("train", "val"):
            (folder / "JPEGImages" / animal / part).symlink_to(photos / part / wnid)
    data = animals(tmp_path, image_size=64, batch_size=4, verify="header")
    data.prepare_data()
    assert data.num_classes == 49
    data.setup()
    assert len(data.photos) == 11 * 170
    binary = data.tables.class_concepts_binary
    assert (len(torch.unique(binary, dim=0)), (binary.any(0) & ~binary.all(0)).sum()) == (11, 36)
    batch = next(iter(data.train_dataloader()))
    assert (batch["labels"] == binary[batch["label"]]).all()


def test_cars_facts(shared_data):
    photos = Cars196Dataset(str(shared_data("stanford_cars")))
    tables = photos.table
    assert (len(tables.class_names), len(photos)) == (196, 8144)
    per_class = np.bincount(tables.labels)
    assert (len(per_class), per_class.min(), per_class.max()) == (196, 24, 68)
    assert tables.boxes.min() >= 0
    assert (tables.boxes[:, :2] <= tables.boxes[:, 2:]).all()
    assert (photos.sample_ids[0], tables.labels[0]) == ("cars_train/00001.jpg", 13)
    assert tables.boxes[0].tolist() == [38, 115, 568, 374]
    assert "Ram C/V Cargo Van Minivan 2012" in tables.class_names


def test_cars_errors(shared_data):
    root = shared_data("stanford_cars")
    with pytest.raises(FileNotFoundError, match=r"to hold cars_test_annos_withlabels\.mat, because"):
        cars(root).prepare_data()
    with pytest.raises(
        FileNotFoundError,
        match=r"8144 problems:\n  image cars_train/00001\.jpg: (.*\n){100}  \.\.\. and 8044 more\nThe auth",
    ):
        cars(root, scheme="official").prepare_data()
    assert cars(root, scheme="official").num_classes == 196


def test_tiny_imagenet(shared_data):
    root = shared_data("tiny_imagenet")
    data = image_folder(root, image_size=64, verify="header")
    data.prepare_data()
    assert data.num_classes == 11
    assert [len(ids(data, part)) for part in ("train", "val", "test")] == [11 * 96, 11 * 24, 11 * 50]
    assert all(name.startswith("val/") for name in ids(data, "test"))
    sample = data.dataset("test")[100]
    assert sample["image"].shape == (3, 64, 64)
    assert sample["sample_id"].split("/")[1] == data.class_names[int(sample["label"])]


def test_imagenet_sample(shared_data):
    classes = shared_data("backbones") / "imagenet_synset_words.txt"
    data = image_folder(shared_data("imagenet_sample"), layout="flat", scheme="test", class_file=str(classes))
    data.prepare_data()
    assert (data.num_classes, data.class_names[5]) == (1000, "electric ray, crampfish, numbfish, torpedo")
    data.setup()
    assert (data.photos.table.labels.tolist(), len(ids(data, "test"))) == (list(range(0, 1000, 5)), 200)


def test_cub_as_own_photos(shared_data, tmp_path):
    cub = Cub200(str(shared_data("cub")), classes=3, scheme="official", image_size=64, augmentation="none")
    data = own_of(cub, tmp_path / "birds")
    data.prepare_data()
    assert_same(data, cub)
    for name in ("part_names", "part_group_names", "concept_names"):
        assert getattr(data.tables, name) == getattr(cub.tables, name)
    for name in ("part_to_group", "concept_to_part", "class_concepts", "class_concepts_binary"):
        assert torch.equal(getattr(data.tables, name), getattr(cub.tables, name))


def test_nico_of_photos_of_imagenet(shared_data, tmp_path):
    """Photos of ImageNet in NICO's layout: every group occurs, and the test set is what the rule calls pale."""
    paths = sorted(shared_data("imagenet_sample").glob("*.JPEG"))
    for number, path in enumerate(paths):
        target = tmp_path / "root" / f"class {number % 4}" / f"context {number % 3}" / f"{path.stem}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path)
    data = nico(tmp_path / "root")
    data.prepare_data()
    counts = Counter(groups_of(tmp_path / "root").values())
    assert (len(counts), len(data.dataset("test"))) == (4, counts["pale"])


def test_colours_of_photos_against_opencv(shared_data):
    paths = sorted(shared_data("imagenet_sample").glob("*.JPEG"))
    assert len(paths) == 200
    groups = set()
    for path in paths:
        with Image.open(path) as photo:
            bgr = np.asarray(photo.convert("RGB"))[..., ::-1]
        hsv = cv2.cvtColor(cv2.resize(np.ascontiguousarray(bgr), (224, 224)), cv2.COLOR_BGR2HSV)
        ranges = (((40, 50, 50), (90, 255, 255)), ((90, 50, 50), (130, 255, 255)), ((0, 0, 100), (180, 100, 255)))
        expected = tuple(cv2.countNonZero(cv2.inRange(hsv, *bounds)) for bounds in ranges)
        counts = hsv_counts(np.ascontiguousarray(bgr[..., ::-1]))
        assert counts == expected
        groups.add(hsv_group(counts))
    assert groups == set(GROUPS)
