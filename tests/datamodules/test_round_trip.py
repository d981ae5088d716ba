"""What an exporter of the tests wrote and the ordinary loader reads back is what SketchBirds shows."""

import pytest
import torch

from protometry.datamodules import AwA2, Cars196, Cub200, Nico, SketchBirds
from protometry.datamodules.sketch_birds.class_table import all_attributes
from tests.exports import export
from tests.exports.cub import attribute_name
from tests.exports.nico import context_name

SIZES = {"train_size": 64, "val_size": 16, "test_size": 24}


@pytest.fixture(scope="module")
def birds():
    return SketchBirds("tiny", **SIZES)


@pytest.fixture(scope="module")
def contexts():
    return SketchBirds("tiny", **{**SIZES, "test_size": 48}, contexts=4, context_correlation=0.5, part_removal=0.0)


def originals(birds):
    """File stem -> sample with every field."""
    datasets = [birds.dataset(split) for split in ("projection", "val", "test")]
    samples = [dataset[i] for dataset in datasets for i in range(len(dataset))]
    return {sample["sample_id"].replace("/", "_"): sample for sample in samples}


def read_back(data, stem_of):
    """The same of an exported data set."""
    samples = {}
    for split in ("projection", "val", "test"):
        dataset = data.dataset(split)
        samples |= {stem_of(sample["sample_id"]): sample for sample in (dataset[i] for i in range(len(dataset)))}
    return samples


def looks_equal(image, other):
    return (image - other).abs().max() < 0.15 and (image - other).abs().mean() < 0.01  # JPEG of quality 95


@pytest.fixture(scope="module")
def cub_root(birds, tmp_path_factory):
    root = tmp_path_factory.mktemp("cub") / "out"
    export("cub", birds, root)
    return root


@pytest.fixture(scope="module")
def awa2_root(birds, tmp_path_factory):
    root = tmp_path_factory.mktemp("awa2") / "out"
    export("awa2", birds, root)
    return root


@pytest.fixture(scope="module")
def nico_root(contexts, tmp_path_factory):
    root = tmp_path_factory.mktemp("nico") / "out"
    export("nico", contexts, root)
    return root


class TestCub:
    @pytest.fixture
    def data(self, cub_root):
        options = {"concept_selection": "all", "concept_level": "image", "image_size": 64}
        data = Cub200(str(cub_root), scheme="official", **options)
        data.prepare_data()
        data.setup()
        return data

    def test_every_field(self, birds, data):
        stems = [line.split()[1].split("/")[1].removesuffix(".jpg") for line in _lines(data, "images.txt")]
        back = read_back(data, lambda sample_id: stems[int(sample_id) - 1])
        expected = originals(birds)
        assert back.keys() == expected.keys()
        for stem, sample in back.items():
            original = expected[stem]
            equal = ("label", "object_mask", "bounding_box", "part_visible", "concepts", "concept_certainty")
            assert all(torch.equal(sample[key], original[key]) for key in equal)
            assert (sample["part_points"] - original["part_points"]).abs().max() < 0.5
            assert looks_equal(sample["image"], original["image"])

    def test_split(self, birds, data):
        assert (len(data.dataset("test")), len(data.dataset("projection")) + len(data.dataset("val"))) == (24, 80)

    def test_class_tables(self, birds, data):
        assert data.class_names == [f"{i + 1:03d}.bird_{i}" for i in range(8)]
        assert data.tables.concept_names == [attribute_name(name) for name in birds.tables.concept_names]
        assert data.tables.part_names == birds.tables.part_names
        assert data.tables.part_group_names == birds.tables.part_group_names
        assert torch.equal(data.tables.concept_to_part, birds.tables.concept_to_part)
        assert torch.equal(data.tables.class_concepts_binary, birds.tables.class_concepts_binary)
        torch.testing.assert_close(data.tables.class_concepts, birds.tables.class_concepts)


def _lines(data, name):
    return (data.photos.table.folder / name).read_text().splitlines()


class TestCars196:
    def test_every_field(self, birds, tmp_path):
        export("cars196", birds, tmp_path / "out")
        data = Cars196(str(tmp_path / "out"), scheme="official", image_size=64)
        data.prepare_data()
        stems = {part: [] for part in ("cars_train", "cars_test")}  # files are numbered in the order of the birds
        for stem in (expected := originals(birds)):
            stems["cars_test" if stem.startswith("test") else "cars_train"].append(stem)
        back = read_back(data, lambda path: stems[path.split("/")[0]][int(path[-9:-4]) - 1])
        assert back.keys() == expected.keys()
        for stem, sample in back.items():
            original = expected[stem]
            assert all(torch.equal(sample[key], original[key]) for key in ("label", "bounding_box"))
            assert looks_equal(sample["image"], original["image"])
        assert (data.class_names, len(data.dataset("test"))) == ([f"bird {i}" for i in range(8)], 24)


class TestNico:
    def test_every_field(self, contexts, nico_root):
        data = Nico(str(nico_root), image_size=64)
        data.prepare_data()
        back = read_back(data, lambda sample_id: sample_id.split("/")[-1].removesuffix(".jpg"))
        expected = originals(contexts)
        assert back.keys() == expected.keys()
        data_contexts = data.tables.context_names
        assert data_contexts == ["at water", "autumn", "in snow", "on grass"]
        for stem, sample in back.items():
            original = expected[stem]
            assert torch.equal(sample["label"], original["label"])
            assert data_contexts[int(sample["context"])] == context_name(int(original["context"]))
            bird = original["object_mask"]
            assert (sample["image"] - original["image"]).abs()[:, bird].mean() < 0.06  # only the background differs
        assert data.class_names == [f"bird {i}" for i in range(8)]


class TestAwA2:
    @pytest.mark.parametrize("task", ["attributes", "single"])
    def test_every_field(self, birds, awa2_root, task):
        data = AwA2(str(awa2_root), task=task, image_size=64)
        data.prepare_data()
        back = read_back(data, lambda sample_id: "_".join(sample_id.removesuffix(".jpg").split("_")[-2:]))
        expected = originals(birds)
        assert back.keys() == expected.keys()
        for stem, sample in back.items():
            original = expected[stem]
            assert torch.equal(sample["label"], original["label"])
            assert looks_equal(sample["image"], original["image"])
            if task == "attributes":
                assert torch.equal(sample["labels"], birds.tables.class_attributes[original["label"]].bool())
        attributes = [name.replace(" ", "+") for name in all_attributes().names]
        assert data.class_names == (attributes if task == "attributes" else [f"bird+{i}" for i in range(8)])

    def test_matrices(self, birds, awa2_root):
        tables = AwA2(str(awa2_root)).tables
        used = [all_attributes().names.index(name) for name in birds.tables.concept_names]
        assert torch.equal(tables.class_concepts_binary, birds.tables.class_attributes.bool())
        torch.testing.assert_close(tables.class_concepts[:, used], birds.tables.class_concepts, rtol=0, atol=1e-4)
        assert tables.class_concepts.sum() == pytest.approx(tables.class_concepts[:, used].sum().item())
