import hashlib
import json
import tarfile

import pytest
import torch
from jsonargparse import ArgumentParser

from datamodules.base import SPLITS
from datamodules.cub200 import data_module as cub200
from datamodules.cub200.data_module import Cub200
from datamodules.photos.download import Archive
from datamodules.sample import sample_key

TRAINING_KEYS = {"image", "label", "sample_id", "sample_key"}


def module(root, **options):
    return Cub200(str(root), **{"image_size": 32, "batch_size": 4, **options})


def fingerprint(folder):
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(str(path.relative_to(folder)).encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


@pytest.fixture
def labelled_tree(cub_tree):
    """A tree with image attribute labels: image i has attribute a (from 1), certainty 1 + a % 4, if i + a is even."""
    root = cub_tree()
    rows = [f"{i} {a} {(i + a) % 2 ^ 1} {1 + a % 4} 1.0" for i in range(1, 25) for a in range(1, 313)]
    (root / "CUB_200_2011/attributes/image_attribute_labels.txt").write_text("\n".join(rows))
    return root


def test_class_names_are_those_of_the_setup(cub_tree):
    root = cub_tree()
    data = module(root)
    data.setup()
    (root / "CUB_200_2011/classes.txt").write_text("1 other\n2 names\n")
    assert data.class_names == ["001.Bird_0", "002.Bird_1", "003.Bird_2"]


class TestSamples:
    def test_training(self, cub_tree):
        data = module(cub_tree())
        sample = data.dataset("train")[0]
        assert set(sample) == TRAINING_KEYS
        assert sample["image"].dtype == torch.float32
        assert sample["image"].shape == (3, 32, 32)
        assert sample["sample_key"].item() == sample_key(sample["sample_id"])

    def test_evaluation_by_hand(self, cub_tree):
        # 40x30 -> 80x90: x doubles, y triples
        data = module(cub_tree(masks=True), image_size=(90, 80))
        dataset = data.dataset("test")
        sample = dataset[0]
        row = int(sample["sample_id"]) - 1
        assert sample["label"].item() == row // 8
        assert abs(sample["image"] * 255 - (row + 1)).max() < 2  # image i is filled with grey i
        # box 4.5 6 20 12.5 -> pixels 4..24, 6..18 -> 8..49, 18..56
        assert sample["bounding_box"].tolist() == [8, 18, 49, 56]
        hidden = row // 8
        assert sample["part_visible"].tolist() == [p != hidden for p in range(15)]
        expected = [[10 + 2 * p, 21] if p != hidden else [0, 0] for p in range(15)]
        torch.testing.assert_close(sample["part_points"], torch.tensor(expected, dtype=torch.float32))
        # mask: rows 6..17, columns 4..23, without the corner only one annotator chose
        mask = torch.zeros(90, 80, dtype=torch.bool)
        mask[18:54, 8:48] = True
        mask[18:21, 8:10] = False
        assert (sample["object_mask"] == mask).all()
        assert sample["concepts"].dtype == torch.bool
        assert (sample["concepts"] == data.class_concepts_binary[row // 8]).all()

    @pytest.mark.parametrize("masks", [True, False])
    def test_keys_agree_with_flags(self, cub_tree, masks):
        data = module(cub_tree(masks=masks))
        flag_of = {
            "object_mask": "object_mask",
            "part_points": "part_points",
            "part_visible": "part_points",
            "bounding_box": "bounding_box",
            "concepts": "concepts_class",
        }
        for split in SPLITS:
            flags = data.capabilities(split)
            present = {key for key, flag in flag_of.items() if flags.missing(flag) is None}
            dataset = data.dataset(split)
            assert all(set(dataset[i]) == TRAINING_KEYS | present for i in range(len(dataset)))
        assert data.capabilities("test").missing("class_attributes") is None

    def test_projection_is_the_training_part_without_augmentation(self, cub_tree):
        data = module(cub_tree())
        train, projection = data.dataset("train"), data.dataset("projection")
        assert [train[i]["sample_id"] for i in range(len(train))] == [s["sample_id"] for s in list_of(projection)]
        assert (projection[0]["image"] == projection[(7, 0)]["image"]).all()
        assert (pixels(train, epoch=0) != pixels(train, epoch=1)).any()
        assert (train[0]["image"] == train[(0, 0)]["image"]).all()

    def test_without_augmentation_training_shows_the_evaluation_frame(self, cub_tree):
        data = module(cub_tree(), augmentation="none")
        assert set(data.dataset("train")[0]) == TRAINING_KEYS
        assert (data.dataset("train")[2]["image"] == data.dataset("projection")[2]["image"]).all()

    def test_seed_of_the_run_changes_augmentation(self, cub_tree):
        root = cub_tree()
        first, same, other = (pixels(module(root, seed=seed).dataset("train")) for seed in (1, 1, 2))
        assert (first == same).all()
        assert (first != other).any()

    def test_crop_to_box(self, cub_tree):
        sample = module(cub_tree(), crop="box").dataset("test")[0]
        assert sample["bounding_box"].tolist() == [0, 0, 31, 31]

    def test_batches_do_not_depend_on_workers(self, cub_tree):
        root = cub_tree()
        plain, parallel = (list(module(root, num_workers=n).train_dataloader()) for n in (0, 1))
        assert len(plain) == len(parallel) == 3  # 12 of 24 images
        for a, b in zip(plain, parallel, strict=True):
            assert a["sample_id"] == b["sample_id"]
            assert (a["image"] == b["image"]).all()

    def test_evaluation_loader_sees_everything_once(self, cub_tree):
        data = module(cub_tree())
        seen = [name for batch in data.test_dataloader() for name in batch["sample_id"]]
        assert sorted(seen) == sorted(data.split_record()["test"])


def list_of(dataset):
    return [dataset[i] for i in range(len(dataset))]


def pixels(dataset, epoch=0):
    return torch.stack([dataset[(epoch, i)]["image"] for i in range(len(dataset))])


class TestConcepts:
    def test_tables(self, cub_tree):
        data = module(cub_tree())
        data.setup()
        assert len(data.concept_names) == 112
        assert data.concept_names[0] == "has_back_color::v1"  # index 1 from 0, not id 1 from 1
        # names repeat bill_shape, back_color, left_out, upper_tail_color
        part = {"has_bill_shape": "beak", "has_back_color": "back", "has_upper_tail_color": "tail"}
        for name, index, group in zip(data.concept_names, data.concept_to_part, data.concept_to_group, strict=True):
            prefix = name.split("::")[0]
            assert (data.part_group_names[index] if index >= 0 else None) == part.get(prefix)
            assert data.concept_group_names[group] == prefix
        assert data.part_group_names[6] == "eye"
        assert data.part_to_group.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 6, 7, 8, 10, 11]
        assert data.class_attributes.shape == (3, 312)
        torch.testing.assert_close(data.class_concepts[2, 0], torch.tensor(0.7))
        assert data.class_concepts_binary.sum().item() == 3 * sum(
            "v" in n and int(n.split("v")[-1]) % 2 for n in data.concept_names
        )
        assert data.concept_source == "class attribute table >= 50 %"

    def test_image_level(self, labelled_tree):
        data = module(labelled_tree, concept_level="image", min_certainty=3, concept_selection="all")
        for sample in list_of(data.dataset("test")):
            number = int(sample["sample_id"])
            expected = [(number + a) % 2 == 0 and 1 + a % 4 >= 3 for a in range(1, 313)]
            assert sample["concepts"].tolist() == expected
            assert sample["concept_certainty"].tolist() == [1 + a % 4 for a in range(1, 313)]
            assert sample["concept_certainty"].dtype == torch.uint8
        assert data.concept_source == "majority of training image labels"
        flags = data.capabilities("test")
        assert flags.missing("concepts_image") is flags.missing("concept_certainty") is None
        assert flags.missing("concepts_class") == "concept_level is image"

    def test_votes_come_from_training_images_only(self, labelled_tree):
        data = module(labelled_tree, concept_selection="all")
        data.setup()
        numbers = torch.tensor([int(s["sample_id"]) for s in list_of(data.dataset("projection"))])
        labels = (numbers - 1) // 8
        for a in (1, 2, 3, 4):  # certainty 2, 3, 4, 1
            for c in range(3):
                present = ((numbers[labels == c] + a) % 2 == 0).sum()
                absent = 0 if a == 4 else (labels == c).sum() - present
                assert data.class_concepts_binary[c, a - 1] == (present >= absent)

    def test_flag_says_why_there_are_no_image_concepts(self, cub_tree, labelled_tree):
        assert module(labelled_tree).capabilities("test").missing("concepts_image") == "concept_level is class"
        reason = module(cub_tree("b")).capabilities("test").missing("concepts_image")
        assert reason == "no attributes/image_attribute_labels.txt under root"

    def test_without_attributes(self, cub_tree):
        root = cub_tree()
        (root / "attributes.txt").unlink()
        data = module(root)
        assert "concepts" not in data.dataset("test")[0]
        flags = data.capabilities("val")
        assert flags.missing("concepts_class") == flags.missing("class_attributes")
        assert flags.missing("concepts_class") == "no attributes.txt in or above CUB_200_2011"
        assert data.class_concepts.shape == (3, 0)
        assert data.concept_to_part.dtype == data.concept_to_group.dtype == torch.int64

    def test_image_level_without_labels(self, cub_tree):
        with pytest.raises(
            ValueError, match=r"image_attribute_labels\.txt to be under `root` for `concept_level: image`"
        ):
            module(cub_tree(), concept_level="image").setup()


class TestSplit:
    def test_record_and_file(self, cub_tree, tmp_path):
        root = cub_tree()
        data = module(root, scheme="official", exclude=["5"])
        record = data.split_record()
        assert record["dataset"] == "cub200"
        assert record["exclude"] == ["5"]
        assert record["test"] == ["7", "8", "15", "16", "23", "24"]
        path = tmp_path / "split.json"
        path.write_text(json.dumps(record))
        again = module(root, split_file=str(path))
        assert again.split_record() == record
        assert "5" not in [s["sample_id"] for s in list_of(again.dataset("projection"))]

    def test_file_of_other_data(self, cub_tree, tmp_path):
        path = tmp_path / "split.json"
        path.write_text(json.dumps(module(cub_tree("a")).split_record()))
        with pytest.raises(ValueError, match="0 ids are new and 8 are gone; the first is"):
            module(cub_tree("b"), classes=2, split_file=str(path)).setup()

    def test_parts(self, cub_tree):
        data = module(cub_tree())
        names = {split: [s["sample_id"] for s in list_of(data.dataset(split))] for split in ("train", "val", "test")}
        assert sorted([*names["train"], *names["val"], *names["test"]], key=int) == [str(i) for i in range(1, 25)]
        assert names["val"] == data.split_record()["val"][0]

    def test_without_validation(self, cub_tree):
        root = cub_tree()
        for options in ({"fold": None}, {"scheme": "official", "val_fraction": 0.0, "fold": None}):
            data = module(root, **options)
            assert not data.has_validation
            assert data.val_dataloader() == []
        assert module(root).has_validation

    def test_class_weights(self, cub_tree):
        # official: 6 training images per class, class 2 without two of them; val takes max(1, round(.2 n)) = 1
        data = module(cub_tree(), scheme="official", exclude=["17", "18"])
        data.setup()
        torch.testing.assert_close(data.class_weights, 13 / (3 * torch.tensor([5.0, 5.0, 3.0])))

    @pytest.mark.parametrize("fold", [-1, 4])
    def test_fold_out_of_range(self, cub_tree, fold):
        with pytest.raises(ValueError, match=f"`fold` to be 0 to 3 or null, but got {fold}"):
            module(cub_tree(), fold=fold).setup()

    def test_fewer_samples_than_folds(self, cub_tree):
        with pytest.raises(ValueError, match=r"at least 4 samples for the folds, but got 3 .*'001\.Bird_0' with 3"):
            module(cub_tree(per_class=3)).setup()

    def test_unknown_exclude(self, cub_tree):
        with pytest.raises(ValueError, match=r"`exclude` to hold image ids of .* got 1 others; the first is 'x'"):
            module(cub_tree(), exclude=["3", "x"]).setup()

    def test_unknown_scheme(self, cub_tree):
        with pytest.raises(ValueError, match="`scheme` to be 'cv70' or 'official', but got 'random'"):
            module(cub_tree(), scheme="random").setup()


class TestArguments:
    def test_flat_command_line(self, cub_tree):
        parser = ArgumentParser()
        parser.add_class_arguments(Cub200, "data")
        flags = ["--data.root", str(cub_tree()), "--data.fold", "1", "--data.batch_size", "8", "--data.classes", "2"]
        data = parser.instantiate_classes(parser.parse_args([*flags, "--data.exclude", '["3"]'])).data
        assert (data.fold, data.batch_size, data.num_classes, data.exclude) == (1, 8, 2, ["3"])

    def test_hyperparameters_rebuild_it(self, cub_tree):
        data = module(cub_tree(), fold=2, seed=5)
        again = Cub200(**data.hparams)
        assert (again.fold, again.seed, again.image_size, again.batch_size) == (2, 5, (32, 32), 4)

    @pytest.mark.parametrize(
        ("option", "value", "text"),
        [
            ("concept_level", "part", "`concept_level` to be 'class' or 'image'"),
            ("min_certainty", 5, "`min_certainty` to be between 1 and 4, but got 5"),
            ("geometry", "round", "`geometry` to be one of"),
            ("batch_size", 0, "`batch_size` to be at least 1"),
        ],
    )
    def test_values(self, cub_tree, option, value, text):
        with pytest.raises(ValueError, match=text):
            module(cub_tree(), **{option: value})

    def test_num_classes_is_known_at_once(self, cub_tree, tmp_path):
        assert module(cub_tree()).num_classes == 3
        assert module(cub_tree("b"), classes=2).num_classes == 2
        assert module(tmp_path / "none", download=True).num_classes == 200
        assert module(tmp_path / "none", download=True, classes=10).num_classes == 10
        with pytest.raises(FileNotFoundError, match=r"there is none at .*--data\.download true"):
            _ = module(tmp_path / "none").num_classes
        with pytest.raises(ValueError, match="`classes` to be between 2 and the 3 classes"):
            _ = module(cub_tree("c"), classes=9).num_classes

    def test_folder_that_changed_after_the_promise(self, cub_tree, tmp_path):
        data = module(tmp_path / "later", download=True)
        assert data.num_classes == 200
        cub_tree("later")
        with pytest.raises(ValueError, match="to have the 200 classes the model was built for, but it has 3"):
            data.setup()


class TestPrepare:
    def test_bad_images_are_named(self, cub_tree):
        root = cub_tree()
        images = root / "CUB_200_2011/images"
        (images / "001.Bird_0/photo_1.jpg").write_bytes(b"")
        whole = (images / "002.Bird_1/photo_0.jpg").read_bytes()
        (images / "002.Bird_1/photo_0.jpg").write_bytes(whole[: len(whole) - 40])
        with pytest.raises(
            ValueError, match=r"(?s)2 problems:.*image 2: .*photo_1\.jpg.*empty.*image 9: .*photo_0\.jpg"
        ):
            module(root).prepare_data()
        module(root, exclude=["2", "9"]).prepare_data()

    def test_missing_image(self, cub_tree):
        root = cub_tree()
        (root / "CUB_200_2011/images/003.Bird_2/photo_7.jpg").unlink()
        with pytest.raises(FileNotFoundError, match=r"image 24: there is no file .*photo_7\.jpg; images\.txt names it"):
            module(root, verify="none").prepare_data()
        module(root, verify="none", classes=2).prepare_data()  # images of other classes are not needed

    def test_image_that_breaks_later_stops_the_run(self, cub_tree):
        root = cub_tree()
        dataset = module(root).dataset("test")
        for path in (root / "CUB_200_2011/images").rglob("*.jpg"):
            path.write_bytes(b"")
        with pytest.raises(ValueError, match=r"photo_\d\.jpg to be an image, but .* the file is empty"):
            dataset[0]

    def test_nothing_below_root_changes(self, cub_tree):
        root = cub_tree(masks=True)
        before = fingerprint(root)
        data = module(root)
        data.prepare_data()
        for split in SPLITS:
            list_of(data.dataset(split))
        assert fingerprint(root) == before

    def test_prepare_sets_no_state_and_setup_runs_twice(self, cub_tree):
        data = module(cub_tree())
        before = dict(vars(data))
        data.prepare_data()
        assert vars(data) == before
        data.setup("fit")
        record = data.split_record()
        data.setup("test")
        assert data.split_record() == record

    def test_missing_mask(self, cub_tree):
        root = cub_tree(masks=True)
        (root / "segmentations/001.Bird_0/photo_0.png").unlink()
        with pytest.raises(FileNotFoundError, match=r"no file .*photo_0\.png; it is part of segmentations\.tgz, http"):
            module(root).prepare_data()

    @pytest.mark.parametrize("verify", ["decode", "header"])
    @pytest.mark.parametrize(
        ("name", "old", "new", "match"),
        [
            ("bounding_boxes", "1 4.5 6.0", "1 40 6.0", r"bounding_boxes\.txt, image 1: the box \(40 6 59 18\)"),
            ("bounding_boxes", "1 4.5 6.0", "1 -50 6.0", r"bounding_boxes\.txt, image 1: the box \(-50 6 -31 18\)"),
            ("parts/part_locs", "1 2 6.0 7.0 1", "1 2 42 7.0 1", r"image 1: the visible point of part 2 \(42 7\)"),
            ("parts/part_locs", "1 2 6.0 7.0 1", "1 2 6 -5 1", r"image 1: the visible point of part 2 \(6 -5\)"),
        ],
    )
    def test_annotations_of_other_photos(self, cub_tree, verify, name, old, new, match):
        root = cub_tree()
        path = root / f"CUB_200_2011/{name}.txt"
        path.write_text(path.read_text().replace(old, new, 1))
        with pytest.raises(ValueError, match=rf"1 problem:\n.*{match} lies outside the 40x30 pixels .*photo_0\.jpg"):
            module(root, verify=verify).prepare_data()
        module(root, verify=verify, exclude=["1"]).prepare_data()

    def test_point_a_pixel_beside_the_photo(self, cub_tree):
        root = cub_tree()
        path = root / "CUB_200_2011/parts/part_locs.txt"
        path.write_text(
            path.read_text().replace("1 2 6.0 7.0 1", "1 2 40.5 -1 1", 1).replace("1 1 0.0 0.0 0", "1 1 -9 99 0")
        )
        module(root).prepare_data()

    def test_download(self, cub_tree, tmp_path, monkeypatch):
        source = cub_tree("source")
        path = tmp_path / "toy.tgz"
        with tarfile.open(path, "w:gz") as tar:
            for name in ("CUB_200_2011", "attributes.txt"):
                tar.add(source / name, name)
        archive = Archive(path.as_uri(), hashlib.md5(path.read_bytes()).hexdigest(), path.stat().st_size)
        monkeypatch.setattr(cub200, "ARCHIVES", (archive,))
        data = module(tmp_path / "new/cub", download=True)
        data.prepare_data()
        assert data.num_classes == 3
        assert fingerprint(tmp_path / "new/cub/CUB_200_2011") == fingerprint(source / "CUB_200_2011")
        path.unlink()
        data.prepare_data()  # there already: nothing is fetched again
