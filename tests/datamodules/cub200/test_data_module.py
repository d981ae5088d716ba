"""CUB-200-2011: samples by hand, concepts of classes and photos, the split, and what is found before a run."""

import hashlib
import shutil
import tarfile

import pytest
import torch

from protometry.datamodules.cub200 import Cub200, Cub200Dataset
from protometry.datamodules.photos.download import Archive
from tests.cub_tree import add_image_labels
from tests.photo_trees import edit, fingerprint


def module(root, **options):
    return Cub200(str(root), **{"image_size": 32, "batch_size": 4, **options})


@pytest.fixture
def labelled_tree(cub_tree):
    """A tree with image attribute labels, see :func:`add_image_labels`."""
    return add_image_labels(cub_tree())


def test_evaluation_by_hand(cub_tree):
    # 40x30 -> 80x90: x doubles, y triples
    data = module(cub_tree(masks=True), image_size=(90, 80))
    sample = data.dataset("test")[0]
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
    assert (sample["concepts"] == data.tables.class_concepts_binary[row // 8]).all()


def test_crop_to_box(cub_tree):
    assert module(cub_tree(), crop="box").dataset("test")[0]["bounding_box"].tolist() == [0, 0, 31, 31]


class TestConcepts:
    def test_tables(self, cub_tree):
        tables = module(cub_tree()).tables
        assert len(tables.concept_names) == 112
        assert tables.concept_names[0] == "has_back_color::v1"  # index 1 from 0, not id 1 from 1
        # names repeat bill_shape, back_color, left_out, upper_tail_color
        part = {"has_bill_shape": "beak", "has_back_color": "back", "has_upper_tail_color": "tail"}
        for name, index in zip(tables.concept_names, tables.concept_to_part, strict=True):
            assert (tables.part_group_names[index] if index >= 0 else None) == part.get(name.split("::")[0])
        assert tables.part_group_names[6] == "eye"
        assert tables.part_to_group.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 6, 7, 8, 10, 11]
        assert tables.class_attributes.shape == (3, 312)
        torch.testing.assert_close(tables.class_concepts[2, 0], torch.tensor(0.7))
        odd = sum(int(name.split("v")[-1]) % 2 for name in tables.concept_names)
        assert tables.class_concepts_binary.sum().item() == 3 * odd
        assert tables.concept_source == "class attribute table >= 50 %"

    def test_image_level(self, labelled_tree):
        data = module(labelled_tree, concept_level="image", concept_selection="all")
        dataset = data.dataset("test")
        for sample in (dataset[i] for i in range(len(dataset))):
            number = int(sample["sample_id"])
            assert sample["concepts"].tolist() == [(number + a) % 2 == 0 for a in range(1, 313)]
            assert sample["concept_certainty"].tolist() == [1 + a % 4 for a in range(1, 313)]
        assert data.tables.concept_source == "majority of training image labels"
        flags = data.capabilities("test")
        assert flags.missing("concepts_image") is flags.missing("concept_certainty") is None
        assert flags.missing("concepts_class") == "concept_level is image"

    def test_votes_are_those_of_the_training_part(self, labelled_tree):
        """Of the data module's own; of the official one where there is no data module."""
        data = module(labelled_tree, concept_selection="all")
        plain = Cub200Dataset(str(labelled_tree), concept_selection="all")
        for tables, rows in (
            (data.tables, data.dataset("train").rows),
            (plain.tables, (~plain.table.is_test).nonzero()[0]),
        ):
            numbers, labels = torch.tensor(rows + 1), torch.tensor(plain.table.labels[rows])
            for a in (1, 2, 3, 4):  # certainty 2, 3, 4, 1
                for c in range(3):
                    present = ((numbers[labels == c] + a) % 2 == 0).sum()
                    absent = 0 if a == 4 else (labels == c).sum() - present
                    assert tables.class_concepts_binary[c, a - 1] == (present >= absent)
        assert (data.tables.class_concepts_binary != plain.tables.class_concepts_binary).any()

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
        assert data.tables.class_concepts is data.tables.concept_to_part is None

    def test_without_part_tables(self, cub_tree, monkeypatch):
        """Told once, although the tables are read before a run and in it."""
        messages = []
        monkeypatch.setattr("protometry.datamodules.cub200.dataset.rank_zero_info", messages.append)
        root = cub_tree()
        shutil.rmtree(root / "CUB_200_2011/parts")
        data = module(root)
        data.prepare_data()
        assert "part_points" not in data.dataset("test")[0]
        assert data.capabilities("test").missing("part_points") == "no parts/part_locs.txt under root"
        assert (data.tables.part_names, data.tables.part_to_group) == ([], None)
        assert [text.count("no parts/part_locs.txt under root") for text in messages] == [1]

    def test_image_level_without_labels(self, cub_tree):
        with pytest.raises(ValueError, match="to be under `root` for `concept_level: image`"):
            module(cub_tree(), concept_level="image").setup()


class TestArguments:
    def test_official_test_part(self, cub_tree):
        record = module(cub_tree(), scheme="official", exclude=["5"]).split_record()
        assert (record["test"], record["exclude"]) == (["7", "8", "15", "16", "23", "24"], ["5"])

    def test_num_classes_is_known_at_once(self, cub_tree, tmp_path):
        assert (module(cub_tree()).num_classes, module(cub_tree("b"), classes=2).num_classes) == (3, 2)
        assert module(tmp_path / "none", download=True).num_classes == 200
        assert module(tmp_path / "none", download=True, classes=10).num_classes == 10
        with pytest.raises(FileNotFoundError, match=r"there is none at .*`download: true`"):
            _ = module(tmp_path / "none").num_classes


class TestPrepare:
    def test_missing_image(self, cub_tree):
        root = cub_tree()
        (root / "CUB_200_2011/images/003.Bird_2/photo_7.jpg").unlink()
        with pytest.raises(FileNotFoundError, match=r"image 24: there is no file .*photo_7\.jpg; images\.txt names it"):
            module(root, verify="none").prepare_data()
        module(root, verify="none", classes=2).prepare_data()  # images of other classes are not needed

    @pytest.mark.parametrize("verify", ["decode", "header"])
    @pytest.mark.parametrize(("name", "old", "new", "match"), [
        ("bounding_boxes", "1 4.5 6.0", "1 40 6.0", r"bounding_boxes\.txt, image 1: the box \(40 6 59 18\)"),
        ("bounding_boxes", "1 4.5 6.0", "1 -50 6.0", r"bounding_boxes\.txt, image 1: the box \(-50 6 -31 18\)"),
        ("parts/part_locs", "1 2 6.0 7.0 1", "1 2 42 7.0 1", r"image 1: the visible point of part 2 \(42 7\)"),
        ("parts/part_locs", "1 2 6.0 7.0 1", "1 2 6 -5 1", r"image 1: the visible point of part 2 \(6 -5\)"),
    ])  # fmt: skip
    def test_annotations_of_other_photos(self, cub_tree, verify, name, old, new, match):
        root = cub_tree()
        edit(root / f"CUB_200_2011/{name}.txt", lambda text: text.replace(old, new, 1))
        with pytest.raises(ValueError, match=rf"1 problem:\n.*{match} lies outside the 40x30 pixels .*photo_0\.jpg"):
            module(root, verify=verify).prepare_data()
        module(root, verify=verify, exclude=["1"]).prepare_data()

    def test_point_a_pixel_beside_the_photo(self, cub_tree):
        path = cub_tree() / "CUB_200_2011/parts/part_locs.txt"
        edit(
            path, lambda text: text.replace("1 2 6.0 7.0 1", "1 2 40.5 -1 1", 1).replace("1 1 0.0 0.0 0", "1 1 -9 99 0")
        )
        module(path.parents[2]).prepare_data()

    def test_download(self, cub_tree, tmp_path, monkeypatch):
        source, path = cub_tree("source"), tmp_path / "toy.tgz"
        with tarfile.open(path, "w:gz") as tar:
            for name in ("CUB_200_2011", "attributes.txt"):
                tar.add(source / name, name)
        archive = Archive(path.as_uri(), hashlib.md5(path.read_bytes()).hexdigest(), path.stat().st_size)
        monkeypatch.setattr(Cub200, "archives", (archive,))
        data = module(tmp_path / "new/cub", download=True)
        data.prepare_data()
        assert data.num_classes == 3
        assert fingerprint(tmp_path / "new/cub", times=False) == fingerprint(source, times=False)
        path.unlink()
        data.prepare_data()  # there already: nothing is fetched again
