"""What the exporter wrote and ``FunnyBirds`` reads back is what SketchBirds shows."""

import json
from itertools import combinations

import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules import FunnyBirds, SketchBirds
from protometry.datamodules.funnybirds.part_maps import LABEL_COLORS, label_codes
from tests.exports import export
from tests.exports.funnybirds import label_colors, part_variants
from tests.photo_trees import fingerprint

PARTS = ("beak", "eye", "foot", "tail", "wing")
TEST_IMAGES = 6


@pytest.fixture(scope="module")
def birds():
    return SketchBirds("default", image_size=48, train_size=100, test_size=TEST_IMAGES)


@pytest.fixture(scope="module")
def root(birds, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "birds"
    export("funnybirds", birds, folder)
    return folder


@pytest.fixture(scope="module")
def data(root):
    data = FunnyBirds(str(root), image_size=48, fold=None)
    data.prepare_data()
    return data


def test_label_colors_invert_label_codes():
    codes = np.array([list(LABEL_COLORS)], np.uint8)
    assert (label_codes(label_colors(codes)) == codes).all()


def test_parts_are_the_official_ones():
    variants = part_variants()
    assert {part: len(names) for part, names in variants.items()} == {
        "beak": 4,
        "eye": 3,
        "foot": 4,
        "tail": 9,
        "wing": 6,
    }
    assert variants["beak"][3] == {"model": "beak04.glb", "color": "yellow"}
    # tail = shape + 3 colour, wing = shape + 2 colour
    assert variants["tail"][5] == {"model": "tail03.glb", "color": "green"}
    assert variants["wing"][4] == {"model": "wing01.glb", "color": "blue"}


@pytest.mark.parametrize("split", ["projection", "test"])
def test_samples(birds, data, split):
    first, second = birds.dataset(split), data.dataset(split)
    assert len(first) == len(second)
    for i in range(len(first)):
        a, b = first[i], second[i]
        for key in ("image", "label", "class_targets", "label_map", "object_mask", "bounding_box"):
            assert torch.equal(a[key], b[key]), key
        names = dict(zip(birds.tables.concept_names, a["concepts"].tolist(), strict=True))
        variants = [has for name, has in names.items() if name.split("::")[0] in PARTS]
        assert variants == b["concepts"].tolist()
        certainty = dict(zip(birds.tables.concept_names, a["concept_certainty"].tolist(), strict=True))
        expected = [sure for name, sure in certainty.items() if name.split("::")[0] in PARTS]
        assert expected == b["concept_certainty"].tolist()


def test_class_tables(birds, data):
    variants = [i for i, name in enumerate(birds.tables.concept_names) if name.split("::")[0] in PARTS]
    assert torch.equal(birds.tables.class_concepts_binary[:, variants], data.tables.class_concepts_binary)
    torch.testing.assert_close(birds.tables.class_concepts[:, variants], data.tables.class_concepts)
    assert birds.tables.label_map_codes == data.tables.label_map_codes
    assert birds.num_classes == data.num_classes


@pytest.mark.parametrize("split", ["projection", "test"])
def test_interface(birds, data, split):
    first, second = birds.dataset(split), data.dataset(split)
    assert first.n_classes == second.n_classes
    assert first.classes == second.classes
    assert [len(names) for names in first.parts.values()] == [len(names) for names in second.parts.values()]
    for i in range(len(first)):
        for question in ("label", "present", "n_background", "target_set"):
            assert getattr(first, question)(i) == getattr(second, question)(i)
        assert (first.image(i) == second.image(i)).all()
        assert (first.label_map(i) == second.label_map(i)).all()


def test_interventions(birds, data):
    first, second = birds.dataset("test"), data.dataset("test")
    objects = 0
    for i in range(TEST_IMAGES):
        for size in range(6):
            for drop in combinations(PARTS, size):
                assert (first.intervene(i, drop=drop) == second.intervene(i, drop=drop)).all()
        for number in range(first.n_background(i)):
            expected = first.intervene(i, drop_background=[number])
            assert (expected == second.intervene(i, drop_background=[number])).all()
            objects += 1
    assert objects > 10


def test_layout(birds, root):
    dataset = birds.dataset("test")
    files = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    tables = {name for name in files if "/" not in name}
    assert tables == {"classes.json", "parts.json", "dataset_train.json", "dataset_test.json"}
    pictures = len([name for name in files if name.startswith("test_interventions/")])
    assert pictures == 32 * TEST_IMAGES + sum(dataset.n_background(i) for i in range(TEST_IMAGES))
    assert {"train/17/000067.png", "train_part_map/17/000067.png", "test/5/000005.png"} <= files
    assert len(files) == 4 + 2 * 100 + 2 * TEST_IMAGES + pictures
    for name in sorted(files - tables)[::50]:
        with Image.open(root / name) as image:
            assert (image.mode, image.size) == ("RGBA", (48, 48))
            assert np.asarray(image)[..., 3].min() == 255


def test_tables(birds, root):
    entries = json.loads((root / "dataset_train.json").read_text())
    dataset = birds.dataset("train")
    removed = 0
    parts = "class_idx beak_model beak_color eye_model foot_model tail_model tail_color wing_model wing_color"
    for i, entry in enumerate(entries):
        assert " ".join(entry) == f"{parts} bg_objects bg_x bg_y bg_half_size bg_angle bg_color"
        for part in PARTS:
            assert (entry[f"{part}_model"] == "placeholder") == (part not in dataset.present(i))
            removed += entry[f"{part}_model"] == "placeholder"
        for key in ("objects", "x", "y", "half_size", "angle", "color"):
            items = entry[f"bg_{key}"].split(",")
            assert items[-1] == ""
            assert len(items) == dataset.n_background(i) + 1
        assert set(entry["bg_color"].split(",")) <= {"red", "green", "blue", "yellow", ""}
    assert removed > 20


def test_two_exports_are_equal(birds, root, tmp_path):
    export("funnybirds", birds, tmp_path / "again")
    assert fingerprint(tmp_path / "again", times=False) == fingerprint(root, times=False)


def test_contexts_are_exported_as_pixels(tmp_path):
    birds = SketchBirds("tiny", image_size=32, train_size=16, test_size=2, contexts=3)
    export("funnybirds", birds, tmp_path / "out")
    back = FunnyBirds(str(tmp_path / "out"), image_size=32).dataset("test")
    assert (back.image(1) == birds.dataset("test").image(1)).all()
