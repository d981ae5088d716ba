"""Facts about the first 20 classes of CUB-200-2011, counted independently of the loader."""

import gzip
import hashlib
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules.cub200.attributes import IMAGE_LABELS, read_attributes
from protometry.datamodules.cub200.concepts import FIXED
from protometry.datamodules.cub200.data_module import Cub200
from protometry.datamodules.cub200.tables import read_tables
from protometry.datamodules.splits import SPLITS, Population, cv70
from protometry.metrics.functional import similar_class_pairs, structural_grounding
from tests.photo_trees import stamps


def points_in_boxes(tables):
    low, high = tables.boxes[:, None, :2], tables.boxes[:, None, 2:] + 1
    inside = ((tables.points >= low) & (tables.points <= high)).all(axis=2)
    return inside[tables.visible].all()


@pytest.fixture(scope="module")
def data(shared_data):
    data = Cub200(str(shared_data("cub")), verify="header", batch_size=2)
    data.setup()
    return data


def test_tables(data):
    tables = data.photos.table
    assert data.photos.sample_ids == [str(i) for i in range(1, 1116)]
    per_class = [60, 60, 58, 60, 44, 41, 53, 48, 59, 60, 60, 56, 60, 60, 58, 58, 57, 45, 59, 59]
    assert np.bincount(tables.labels).tolist() == per_class
    assert np.bincount(tables.labels[~tables.is_test]).tolist() == [30] * 20
    assert (int((~tables.is_test).sum()), int(tables.is_test.sum())) == (600, 515)


@pytest.fixture(scope="module")
def full(shared_data, tmp_path_factory):
    """The tables of all 11,788 images."""
    folder = tmp_path_factory.mktemp("full")
    for path in (shared_data("cub") / "full_tables").glob("*.gz"):
        target = folder / ("parts" if path.name.startswith("part_locs") else "") / path.stem
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(gzip.decompress(path.read_bytes()))
    names = (shared_data("cub") / "CUB_200_2011/parts/parts.txt").read_bytes()
    (folder / "parts/parts.txt").write_bytes(names)
    return read_tables(str(folder))


def test_full_tables(full):
    tables = full
    assert len(tables.files) == 11788
    train = np.bincount(tables.labels[~tables.is_test])
    assert (train.sum(), set(train.tolist())) == (5994, {29, 30})
    per_class = np.bincount(tables.labels)
    assert (len(per_class), per_class.min(), per_class.max()) == (200, 41, 60)
    assert (tables.visible.size, tables.visible.sum()) == (176820, 141407)
    assert points_in_boxes(tables)
    assert (tables.points.any(axis=2) == tables.visible).all()
    assert (tables.points == tables.points.round()).all()
    shares = dict(zip(tables.part_names, tables.visible.mean(axis=0).round(3).tolist(), strict=True))
    expected = {
        **{"back": 0.769, "beak": 0.996, "belly": 0.878, "breast": 0.930, "crown": 0.982},
        **{"forehead": 0.984, "nape": 0.960, "tail": 0.930, "throat": 0.987},
    }
    assert {name: shares[name] for name in expected} == expected
    for sides, any_side, both in (((6, 10), 0.972, 4), ((7, 11), 0.825, 62), ((8, 12), 0.972, 15)):  # eye, leg, wing
        seen = tables.visible[:, sides]
        assert round(seen.any(axis=1).mean(), 3) == any_side
        assert round(100 * seen.all(axis=1).mean()) == both


def test_full_split(full):
    population = Population("cub200", [file.sample_id for file in full.files], full.labels.tolist(), full.class_names)
    split = cv70(population)
    assert [len(split.test), *(len(part) for part in split.val)] == [3537, 2063, 2063, 2063, 2062]
    assert len(split.indices(population, None)["train"]) == 8251
    assert digest(split.test).startswith("b05180a43f624a7d")
    assert digest(split.val[0]).startswith("a69be1c61b603ac9")


def digest(ids):
    return hashlib.sha256("\n".join(sorted(ids, key=int)).encode()).hexdigest()


def test_points(data):
    tables = data.photos.table
    assert tables.visible.size == 16725
    visible = dict(zip(tables.part_names, tables.visible.sum(axis=0).tolist(), strict=True))
    assert visible == {
        **{"back": 859, "beak": 1111, "belly": 949, "breast": 1058, "crown": 1098, "forehead": 1100},
        **{"left eye": 549, "left leg": 735, "left wing": 649, "nape": 1084, "right eye": 582},
        **{"right leg": 728, "right wing": 648, "tail": 973, "throat": 1106},
    }
    assert sum(visible.values()) == 13229
    per_image = tables.visible.sum(axis=1)
    assert (per_image.min(), per_image.max()) == (4, 15)
    assert (tables.points[~tables.visible] == 0).all()
    assert tables.points[tables.visible].any(axis=1).all()
    assert points_in_boxes(tables)


def test_groups(data):
    assert len(data.tables.part_group_names) == 12
    for group, sides, any_side, both in (
        ("eye", (6, 10), 1080, 51),
        ("leg", (7, 11), 838, 625),
        ("wing", (8, 12), 1060, 237),
    ):
        index = data.tables.part_group_names.index(group)
        assert np.flatnonzero(data.tables.part_to_group.numpy() == index).tolist() == list(sides)
        seen = data.photos.table.visible[:, sides]
        assert (seen.any(axis=1).sum(), seen.all(axis=1).sum()) == (any_side, both)


def test_split(data):
    record = data.split_record()
    assert len(record["test"]) == 335
    assert record["test"][:5] == ["2", "3", "11", "19", "22"]
    assert [len(part) for part in record["val"]] == [195] * 4
    assert [len(data.dataset(split)) for split in SPLITS] == [585, 585, 195, 335]
    assert digest(record["test"]).startswith("d985e5ecc228faf3")
    assert digest(record["val"][0]).startswith("45f77abce92cd4d4")
    assert data.class_weights.min().item() == pytest.approx(0.9141, abs=5e-5)
    assert data.class_weights.max().item() == pytest.approx(1.3295, abs=5e-5)


def test_concepts(data):
    names = data.tables.concept_names
    assert len(names) == 112
    assert {"has_bill_shape::dagger", "has_eye_color::black", "has_wing_pattern::multi-colored"} <= set(names)
    assert (names[0], names[-1]) == ("has_bill_shape::dagger", "has_wing_pattern::multi-colored")
    every = read_attributes(data.photos.table).names
    assert [every[i] for i in (1, 145, 311)] == [
        "has_bill_shape::dagger",
        "has_eye_color::black",
        "has_wing_pattern::multi-colored",
    ]
    assert [every[i] for i in FIXED] == names
    assert len({name.split("::")[0] for name in every}) == 28
    parts = Counter(data.tables.part_group_names[i] if i >= 0 else "" for i in data.tables.concept_to_part.tolist())
    assert parts == {
        **{"back": 9, "beak": 9, "belly": 7, "breast": 9, "crown": 6, "forehead": 8, "eye": 1, "leg": 3},
        **{"nape": 6, "throat": 5, "wing": 12, "tail": 14, "": 23},
    }
    assert data.tables.class_concepts.shape == data.tables.class_concepts_binary.shape == (20, 112)


def test_vote_rule(shared_data):
    root = shared_data("cub")
    if not (root / "CUB_200_2011" / IMAGE_LABELS).is_file():
        pytest.skip(f"no {IMAGE_LABELS}, whose answers the rule counts")
    data = Cub200(str(root), concept_selection="vote", verify="none")
    data.setup()
    if data.num_classes < 200:
        pytest.skip("the rule keeps what 10 of all 200 classes have")
    assert 100 <= len(data.tables.concept_names) <= 120  # the published 112 come from another division of the photos


def test_points_lie_in_the_boxes_of_the_frame(data):
    dataset = data.dataset("test")
    for i in range(0, len(dataset), 60):
        sample = dataset[i]
        points, box = sample["part_points"][sample["part_visible"]], sample["bounding_box"]
        assert ((points >= box[:2] - 2) & (points <= box[2:] + 2)).all()


def test_folder_is_sound_and_only_read(data, shared_data):
    before = stamps(shared_data("cub"))
    data.prepare_data()
    next(iter(data.train_dataloader()))
    assert stamps(shared_data("cub")) == before


def test_sizes_and_boxes(data):
    over, sides, modes = 0, [], set()
    for file, box in zip(data.photos.table.files, data.photos.table.boxes, strict=True):
        with Image.open(file.path) as image:
            sides += image.size
            modes.add(image.mode)
            over += box[2] >= image.width or box[3] >= image.height or box.min() < 0
    assert (min(sides), max(sides), modes, over) == (121, 500, {"RGB"}, 5)


def test_the_classes_that_look_most_alike(shared_data):
    """Bronzed and shiny cowbird are separated by the red eye, as in Norrenbrock et al. (2025)."""
    folder = shared_data("cub")
    table = np.loadtxt(folder / "CUB_200_2011" / "attributes" / "class_attribute_labels_continuous.txt")
    attributes = torch.from_numpy(table) / 100
    pairs = similar_class_pairs(attributes).tolist()
    assert pairs[0] == [28, 29]  # American crow and fish crow
    assert pairs[9] == [25, 26]
    names = (folder / "attributes.txt").read_text("utf-8").splitlines()
    bronzed, shiny = attributes[25:27]
    assert names[int((bronzed - shiny).abs().argmax())].endswith("has_eye_color::red")
    five_of_fifty = torch.rand(200, 50, generator=torch.Generator().manual_seed(0)).topk(5, dim=1).indices
    assert 0.04 < structural_grounding(torch.zeros(200, 50).scatter(1, five_of_fifty, 1), attributes) < 0.19
    assert structural_grounding((attributes > 0.5).double(), attributes).item() == pytest.approx(0.926, abs=1e-3)
