"""What the exporter wrote and ``FunnyBirds`` reads back is what SketchBirds shows."""

from itertools import combinations

import pytest
import torch

from protometry.datamodules import FunnyBirds, SketchBirds
from tests.exports import export

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
    assert (birds.tables.label_map_codes, birds.num_classes) == (data.tables.label_map_codes, data.num_classes)


@pytest.mark.parametrize("split", ["projection", "test"])
def test_interface(birds, data, split):
    first, second = birds.dataset(split), data.dataset(split)
    assert (first.n_classes, first.classes) == (second.n_classes, second.classes)
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
