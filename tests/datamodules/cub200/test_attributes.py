import logging

import numpy as np
import pytest

from protometry.datamodules.cub200.attributes import Attributes, attributes_missing, read_attributes, read_image_labels
from protometry.datamodules.cub200.concepts import FIXED, majority_votes, select_concepts
from protometry.datamodules.cub200.tables import read_tables
from protometry.datamodules.photos.part_names import part_of_concept
from tests.photo_trees import edit


def image_labels(path, ids, attributes, extra=()):
    """Image i has attribute a with certainty 1 + a % 4 if i + a is even; rows in ``extra`` get two more columns."""
    rows = []
    for i in ids:
        for a in range(1, attributes + 1):
            tail = " 0.5 0 7" if (i, a) in extra else " 0.5"
            rows.append(f"{i} {a} {(i + a) % 2 ^ 1} {1 + a % 4}{tail}")
    path.write_text("\n".join(rows) + "\n")
    return path


class TestImageLabels:
    def test_values(self, tmp_path):
        table = read_image_labels(image_labels(tmp_path / "labels.txt", [3, 5], 4), [3, 5], 4)
        assert table.shape == (2, 4, 2)
        assert table[0, :, 0].tolist() == [1, 0, 1, 0]  # image 3 has the odd attributes
        assert table[1, :, 1].tolist() == [2, 3, 4, 1]

    def test_extra_columns_are_cut_counted_and_logged(self, tmp_path, caplog):
        plain = read_image_labels(image_labels(tmp_path / "a.txt", [1, 2], 3), [1, 2], 3)
        with caplog.at_level(logging.INFO):
            path = image_labels(tmp_path / "b.txt", [1, 2], 3, extra={(1, 2), (2, 3)})
            np.testing.assert_array_equal(read_image_labels(path, [1, 2], 3), plain)
        assert "2 rows had extra columns" in caplog.text

    def test_cached_by_content(self, tmp_path, private_cache):
        path = image_labels(tmp_path / "a.txt", [1, 2], 3)
        first = read_image_labels(path, [1, 2], 3)
        assert len(list((private_cache / "cub200").iterdir())) == 1
        np.testing.assert_array_equal(read_image_labels(path, [1, 2], 3), first)
        path.write_text(path.read_text().replace("1 1 1 2", "1 1 0 2"))
        assert (read_image_labels(path, [1, 2], 3) != first).sum() == 1

    @pytest.mark.parametrize("left", [0, 150])
    def test_a_broken_cache_file_is_made_again(self, tmp_path, private_cache, left):
        path = image_labels(tmp_path / "a.txt", [1, 2], 3)
        first = read_image_labels(path, [1, 2], 3)
        (cached,) = (private_cache / "cub200").iterdir()
        whole = cached.read_bytes()
        cached.write_bytes(whole[:left])
        np.testing.assert_array_equal(read_image_labels(path, [1, 2], 3), first)
        assert cached.read_bytes() == whole

    @pytest.mark.parametrize(("table", "match"), [
        ("1 1 0 4 .\n", r"1 in images\.txt x 2 in attributes\.txt = 2\), but got 1 rows for 1 images"),
        ("2 1 0 4 .\n2 2 0 4 .\n", "one row per image and attribute"),
        ("1 1 0 2 0.5\n1 2 0\n", "rows of at least 4 whole numbers"),
        ("1 1 2 2 .\n1 2 0 4 .\n", "to say 0 or 1 with a certainty of 1 to 4"),
        ("1 1 0 0 .\n1 2 0 4 .\n", "to say 0 or 1 with a certainty of 1 to 4"),
        ("1 1 0 5 .\n1 2 0 4 .\n", "to say 0 or 1 with a certainty of 1 to 4"),
    ])  # fmt: skip
    def test_rows_that_cannot_be(self, tmp_path, table, match):
        (tmp_path / "a.txt").write_text(table)
        with pytest.raises(ValueError, match=match):
            read_image_labels(tmp_path / "a.txt", [1], 2)


def toy(present, certainty, classes=2):
    names = [f"has_bill_shape::{a}" for a in range(len(present[0]))]
    shares = np.zeros((classes, len(names)))
    return Attributes(names, shares, np.array(present, bool), np.array(certainty, np.uint8))


class TestVotes:
    def test_by_hand(self):
        # class 0: three images, class 1: one image; the last image is not a training image
        attributes = toy(
            [[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0], [1, 1, 1, 1]],
            [[4, 4, 4, 1], [4, 4, 1, 1], [4, 4, 3, 1], [1, 2, 4, 4], [4, 4, 4, 4]],
        )
        votes = majority_votes(attributes, np.array([0, 0, 0, 1, 1]), np.arange(4))
        # class 0: 2:1 yes; 1:2 no; 1:1 (one absent is not visible) tie counts; 0:0 counts
        # class 1: 0:0 counts; 1:0 yes; 0:1 no; 0:1 no
        assert votes.tolist() == [[True, False, True, True], [True, True, False, False]]

    def test_selection_needs_ten_classes(self):
        labels = np.arange(12)
        present = np.zeros((12, 3), bool)
        present[:10, 0] = present[:9, 1] = present[:, 2] = True
        attributes = toy(present, np.full((12, 3), 4), classes=12)
        concepts = select_concepts(attributes, "vote", labels, labels)
        assert (concepts.indices.tolist(), concepts.binary.sum(axis=0).tolist()) == ([0, 2], [10, 12])
        assert concepts.source == "majority of training image labels"


class TestSelection:
    def test_continuous_from_fifty_percent_on(self):
        attributes = Attributes(["a", "b"], np.array([[0.5, 0.499], [0.0, 1.0]]))
        concepts = select_concepts(attributes, "all", np.array([0, 1]), np.arange(2))
        assert concepts.binary.tolist() == [[True, False], [False, True]]
        assert concepts.source == "class attribute table >= 50 %"

    @pytest.mark.parametrize(("attributes", "selection", "match"), [
        (toy([[1], [1]], [[4], [4]]), "vote", "none is left"),
        (Attributes(["a"], np.zeros((2, 1))), "vote", r"image_attribute_labels\.txt to be under `root`"),
        (Attributes(["a", "b"], np.zeros((2, 2))), "fixed", r"list 312 attributes .* but got 2\."),
        (Attributes(["a"], np.zeros((2, 1))), "some", r"to be one of \['fixed', 'vote', 'all'\], but got 'some'"),
    ])  # fmt: skip
    def test_refused(self, attributes, selection, match):
        with pytest.raises(ValueError, match=match):
            select_concepts(attributes, selection, np.array([0, 1]), np.arange(2))

    def test_fixed_list(self):
        assert (len(set(FIXED)), tuple(sorted(FIXED))) == (112, FIXED)
        assert (FIXED[0], FIXED[-1]) == (1, 311)


class TestFiles:
    @pytest.mark.parametrize(
        "place", ["attributes.txt", "CUB_200_2011/attributes.txt", "CUB_200_2011/attributes/attributes.txt"]
    )
    def test_places_of_the_names(self, cub_tree, place):
        root = cub_tree()
        (root / "attributes.txt").rename(root / place)
        attributes = read_attributes(read_tables(str(root)))
        assert attributes.names[:2] == ["has_bill_shape::v0", "has_back_color::v1"]
        np.testing.assert_allclose(attributes.continuous[2, :3], [0.2, 0.7, 0.2])

    def test_reasons(self, cub_tree):
        folder = cub_tree() / "CUB_200_2011"
        assert attributes_missing(folder) is None
        (folder / "attributes/class_attribute_labels_continuous.txt").unlink()
        assert "class_attribute_labels_continuous.txt under CUB_200_2011" in attributes_missing(folder)
        (folder.parent / "attributes.txt").unlink()
        assert attributes_missing(folder) == "no attributes.txt in or above CUB_200_2011"

    def test_more_rows_than_classes_is_fine(self, cub_tree):
        assert read_attributes(read_tables(str(cub_tree()), 2)).continuous.shape == (2, 312)

    @pytest.mark.parametrize(("change", "match"), [
        (lambda text: text[:-20], r"312 columns .* but got 3 rows of \[\d+, 312\] columns"),
        (lambda text: text.replace("70.0", "170.0", 1), r"to hold percentages, but got 0\.0 to 170\.0"),
    ])  # fmt: skip
    def test_percentages_that_cannot_be(self, cub_tree, change, match):
        root = cub_tree()
        edit(root / "CUB_200_2011/attributes/class_attribute_labels_continuous.txt", change)
        with pytest.raises(ValueError, match=match):
            read_attributes(read_tables(str(root)))

    def test_image_labels_of_kept_images(self, cub_tree):
        root = cub_tree()
        path = root / "CUB_200_2011/attributes/image_attribute_labels.txt"
        image_labels(path, range(1, 25), 312)
        attributes = read_attributes(read_tables(str(root), 2))
        assert attributes.present.shape == attributes.certainty.shape == (16, 312)
        assert attributes.present[1, :3].tolist() == [False, True, False]  # image 2 has the even attributes


def test_parts_of_concepts():
    groups = ["beak", "forehead", "tail", "eye", "wing"]
    names = ["bill_length", "head_pattern", "under_tail_color", "upper_tail_color", "tail_shape", "wing_pattern"]
    assert [part_of_concept(f"has_{name}::x", groups) for name in names] == [0, 1, 2, 2, 2, 4]
    others = ["size", "shape", "upperparts_color", "underparts_color", "primary_color", "crown_color"]
    assert {part_of_concept(f"has_{name}::x", groups) for name in others} == {-1}
