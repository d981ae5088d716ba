import pytest
import torch

from protometry.datamodules.awa2 import VISIBLE, AwA2, AwA2Dataset
from tests.photo_trees import HIDDEN, edit, make_awa2

ANIMALS = ("polar+bear", "bat", "cow")


def animals(root, **options):
    return AwA2(str(root), **{"image_size": 16, **options})


@pytest.fixture
def root(tmp_path):
    return make_awa2(tmp_path / "awa2")


@pytest.fixture
def folder(root):
    return root / "Animals_with_Attributes2"


class TestTask:
    def test_attributes(self, root):
        data = animals(root)
        data.prepare_data()
        assert (data.num_classes, data.class_names) == (49, list(VISIBLE))
        for split in ("train", "test"):
            for sample in (data.dataset(split)[i] for i in range(len(data.dataset(split)))):
                animal = ANIMALS.index(sample["sample_id"].split("/")[1])
                assert sample["label"].item() == animal
                # the first predicate of the file is none of the visible ones
                assert sample["labels"].tolist() == [(animal + p) % 2 == 0 for p in range(1, 50)]
        assert data.capabilities("train").multi_label is data.capabilities("test").multi_label is True

    def test_single(self, root):
        data = animals(root, task="single")
        assert (data.num_classes, data.class_names) == (3, list(ANIMALS))
        sample = data.dataset("test")[0]
        assert "labels" not in sample
        assert sample["concepts"].shape == (49,)
        assert data.capabilities("test").multi_label == "one label per image"
        assert data.class_weights.shape == (3,)

    def test_tables(self, root):
        data = animals(root)
        assert data.tables.concept_names == list(VISIBLE)
        assert data.tables.class_attributes.shape == (3, len(VISIBLE) + len(HIDDEN))
        # animal 1, predicate 3 of the file: even, 40 + 10 + 1.5 percent; it is the third visible one
        torch.testing.assert_close(data.tables.class_concepts[1, 2], torch.tensor(0.515))
        torch.testing.assert_close(data.tables.class_attributes[1, 3], torch.tensor(0.515))
        assert data.tables.class_concepts_binary[1, 2]
        assert not data.tables.class_concepts_binary[0, 2]
        assert (data.tables.class_concepts[2, 0].item(), data.class_weights.tolist()) == (pytest.approx(0.1), [1] * 49)

    def test_predicates_of_other_names_are_all_used(self, root, folder):
        edit(folder / "predicates.txt", lambda text: text.replace("\t", "\tmy_"))
        data = animals(root)
        assert (data.num_classes, data.class_names[:2]) == (52, ["my_newworld", "my_black"])


def test_strata_are_animals_in_the_order_of_their_paths(root):
    photos = AwA2Dataset(str(root))
    assert (photos.sample_ids, photos.sample_ids[0]) == (sorted(photos.sample_ids), "JPEGImages/bat/bat_10001.jpg")
    assert photos.table.labels.tolist() == [1] * 8 + [2] * 8 + [0] * 8
    record = animals(root / "Animals_with_Attributes2").split_record()
    assert sorted(sum(name.split("/")[1] == animal for name in record["test"]) for animal in ANIMALS) == [2, 3, 3]
    assert record == animals(root).split_record()


class TestBadInput:
    def test_folder_of_another_data_set_with_classes(self, cub_tree):
        with pytest.raises(FileNotFoundError, match=r"hold Animals_with_Attributes2/predicates\.txt, but .* holds CUB"):
            animals(cub_tree()).prepare_data()

    def test_official_number_of_images(self, tmp_path):
        root = make_awa2(tmp_path / "awa2", classes=tuple(f"animal{i}" for i in range(50)), per_class=1)
        with pytest.raises(ValueError, match="expected 37322 images, but got 50"):
            animals(root).prepare_data()


class TestDownload:
    def test_promise(self, tmp_path):
        assert animals(tmp_path / "none", download=True).num_classes == 49
        assert animals(tmp_path / "none", download=True, task="single").num_classes == 50
