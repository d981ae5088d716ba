"""FunnyBirds: samples, targets and tables by their definition, and what optional folders change."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules import FunnyBirds
from protometry.datamodules.splits import SPLITS
from tests.funnybirds_tree import read_funnybirds as module
from tests.photo_trees import edit

PARTS = ["beak", "eye", "foot", "tail", "wing"]
TRAINING_KEYS = {"image", "label", "sample_id", "sample_key", "class_targets", "concepts"}
SPATIAL_KEYS = {"label_map", "object_mask", "bounding_box", "concept_certainty"}


def list_of(dataset):
    return [dataset[i] for i in range(len(dataset))]


@pytest.fixture
def entries(tree):
    """What the tables say: split -> entries."""
    return {split: json.loads((tree / f"dataset_{split}.json").read_text()) for split in ("train", "test")}


class TestSamples:
    def test_ids_are_paths(self, tree):
        for sample in list_of(module(tree).dataset("test")):
            assert (tree / sample["sample_id"]).is_file()
            assert sample["sample_id"] == f"test/{int(sample['label'])}/{Path(sample['sample_id']).name}"

    def test_pixels(self, tree):
        sample = module(tree).dataset("test")[1]
        with Image.open(tree / sample["sample_id"]) as image:
            assert image.mode == "RGBA"
            expected = torch.from_numpy(np.array(image)[..., :3]).permute(2, 0, 1) / 255
        torch.testing.assert_close(sample["image"], expected, rtol=0, atol=1e-7)

    def test_targets_by_the_definition(self, tree, entries):
        classes = [entry["parts"] for entry in json.loads((tree / "classes.json").read_text())]
        sizes = set()
        for sample in list_of(module(tree, fold=None).dataset("projection")):
            entry = entries["train"][int(Path(sample["sample_id"]).stem)]
            present = [part for part in PARTS if entry[f"{part}_model"] != "placeholder"]
            own = classes[entry["class_idx"]]
            agreeing = [float(all(other[part] == own[part] for part in present)) for other in classes]
            expected = torch.tensor(agreeing) / sum(agreeing)
            assert sample["label"].item() == entry["class_idx"]
            torch.testing.assert_close(sample["class_targets"], expected)
            sizes.add(int(sum(agreeing)))
        assert {1, 2, 8} <= sizes  # complete images, and one without any part

    def test_mask_and_box_follow_from_the_label_map(self, tree):
        for sample in list_of(module(tree, image_size=(32, 48)).dataset("test")):
            codes, box = sample["label_map"], sample["bounding_box"]
            assert codes.shape == (32, 48)
            bird = (codes >= 1) & (codes <= 9)
            assert (sample["object_mask"] == bird).all()
            rows, columns = torch.where(bird)
            tight = torch.stack([columns.min(), rows.min(), columns.max(), rows.max()])
            assert (tight - box).abs().max() <= 1  # it is the box of the part map's own pixels, scaled

    def test_box_by_hand(self, funnybirds_tree):
        root = funnybirds_tree()
        (path,) = (root / "test_part_map/2").iterdir()
        pixels = np.zeros((32, 32, 3), np.uint8)
        pixels[5:9, 3:20] = (170, 170, 170)
        pixels[9, 11] = (0, 0, 255)
        pixels[20, 20] = (1, 1, 1)
        Image.fromarray(pixels).save(path)
        sample = module(root).dataset("test")[2]
        assert (sample["bounding_box"].tolist(), sample["label_map"][20, 20]) == ([3, 5, 19, 9], 255)
        assert sample["object_mask"].sum() == 4 * 17 + 1
        hidden = {
            name.split("::")[0]
            for name, c in zip(module(root).tables.concept_names, sample["concept_certainty"], strict=True)
            if c == 1
        }
        assert hidden == {"beak", "eye", "foot", "wing"}

    @pytest.mark.parametrize("split", ["val", "test"])
    def test_hidden_bird_cannot_be_evaluated(self, funnybirds_tree, split):
        root = funnybirds_tree()
        name = module(root).dataset(split).sample_ids[1]
        path = root / name.replace(f"{name.split('/')[0]}/", f"{name.split('/')[0]}_part_map/", 1)
        Image.new("RGB", (32, 32), (204, 204, 204)).save(path)
        with pytest.raises(ValueError, match=rf"{path} to show the bird, .* List {name} in `exclude`"):
            module(root).dataset(split)[1]
        if split == "test":  # known before a run
            with pytest.raises(ValueError, match=rf"{path} shows no bird, .* list {name} in `exclude`"):
                module(root).prepare_data()
        data = module(root, exclude=[name])
        data.prepare_data()
        assert name not in data.dataset(split).sample_ids

    def test_hidden_bird_of_a_training_image(self, funnybirds_tree):
        root = funnybirds_tree()
        name = module(root).dataset("projection").sample_ids[1]
        Image.new("RGB", (32, 32), (204, 204, 204)).save(root / name.replace("train/", "train_part_map/", 1))
        data = module(root)
        data.prepare_data()
        assert data.dataset("train")[1]["sample_id"] == name
        sample = data.dataset("projection")[1]
        assert not sample["object_mask"].any()
        assert sample["bounding_box"].tolist() == [0, 0, 31, 31]
        assert (sample["concept_certainty"] == 1).all()

    def test_size_of_the_files_is_the_default(self, tree):
        assert FunnyBirds(str(tree)).image_size == (256, 256)


class TestTables:
    def test_concepts(self, tree):
        data = module(tree)
        # the preset has two variants per part, of 4, 3, 4, 9 and 6
        assert data.tables.class_attributes.shape == (8, 26)
        assert (data.tables.class_attributes.sum(dim=1) == 5).all()
        variants = {
            "beak": ["yellow beak01", "yellow beak02"], "eye": ["eye01", "eye02"], "foot": ["foot01", "foot03"],
            "tail": ["red tail01", "green tail02"], "wing": ["red wing01", "green wing02"],
        }  # fmt: skip
        assert data.tables.concept_names == [f"{part}::{name}" for part, names in variants.items() for name in names]
        assert data.tables.concept_to_part.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
        assert data.tables.part_to_group.tolist() == [0, 1, 2, 3, 4]
        assert data.tables.label_map_codes == {
            "body": (1,),
            "beak": (2,),
            "eye": (3, 4),
            "foot": (5, 6),
            "tail": (9,),
            "wing": (7, 8),
        }
        # class 0 is (0, 0, 2, 4, 3): first beak, first eye, second foot, second tail, second wing
        assert data.tables.class_concepts_binary[0].int().tolist() == [1, 0, 1, 0, 0, 1, 0, 1, 0, 1]

    def test_concepts_of_an_image_are_those_of_its_parts(self, tree):
        data = module(tree)
        dataset = data.dataset("projection")
        for i, sample in enumerate(list_of(dataset)):
            complete = data.tables.class_concepts_binary[int(sample["label"])]
            there = torch.tensor([PARTS[part] in dataset.present(i) for part in data.tables.concept_to_part])
            assert (sample["concepts"] == (complete & there)).all()

    def test_class_concepts_are_frequencies_of_training_images(self, tree):
        data = module(tree)
        samples = list_of(data.dataset("projection"))
        for label in range(8):
            concepts = torch.stack([s["concepts"].float() for s in samples if s["label"] == label])
            torch.testing.assert_close(data.tables.class_concepts[label], concepts.mean(dim=0))

    def test_subset_names_classes_by_their_official_number(self, funnybirds_tree):
        root = funnybirds_tree()
        (root / "subset.json").write_text(json.dumps({"official_class_idx": [11, 15, 16, 24, 26, 27, 32, 41]}))
        assert (module(root).class_names[:2], module(root).num_classes) == (["bird 11", "bird 15"], 8)


class TestSplit:
    def test_validation_is_held_out_of_every_class(self, tree):
        data = module(tree)
        record = data.split_record()
        assert (record["scheme"], record["dataset"], len(record["test"])) == ("official", "funnybirds", 4)
        (val,) = record["val"]
        assert sorted(name.split("/")[1] for name in val) == list("01234567")  # max(1, round(.2 * 3)) of each class
        assert len(module(tree, fold=None).dataset("train")) == 24
        torch.testing.assert_close(data.class_weights, torch.ones(8))


class TestPrepare:
    def test_changed_table_is_compared_with_verified_maps_again(self, funnybirds_tree):
        root = funnybirds_tree()
        module(root).prepare_data()
        entries = json.loads((root / "dataset_train.json").read_text())
        entries[2]["wing_model"] = "placeholder"
        edit(root / "dataset_train.json", lambda text: json.dumps(entries))
        with pytest.raises(ValueError, match=r"train_part_map/2/000002\.png shows the wing, which the table calls"):
            module(root).prepare_data()


class TestFlags:
    def test_without_optional_folders(self, funnybirds_tree):
        root = funnybirds_tree()
        for name in ("train_part_map", "test_interventions"):
            (root / name).rename(root.parent / name)
        data = module(root)
        data.prepare_data()
        flags = {split: data.capabilities(split) for split in SPLITS}
        assert flags["test"].missing("label_map") is None
        for split in ("projection", "val"):
            for flag in ("label_map", "object_mask", "bounding_box", "concept_certainty"):
                assert flags[split].missing(flag) == "no train_part_map/ under root"
        assert flags["test"].missing("interventions") == "no test_interventions/ under root"
        assert (
            flags["train"].missing("label_map")
            == "training images are augmented and carry no boxes, points, masks or maps"
        )
        for split in SPLITS:
            assert flags[split].missing("soft_targets") is flags[split].missing("concepts_image") is None
            for sample in list_of(data.dataset(split)):
                assert set(sample) == TRAINING_KEYS | (SPATIAL_KEYS if split == "test" else set())
