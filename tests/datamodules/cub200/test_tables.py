import numpy as np
import pytest

from protometry.datamodules.cub200.tables import read_tables
from tests.photo_trees import edit, make_awa2


def ids(table):
    return [file.sample_id for file in table.files]


def backwards(text):
    return "".join(reversed(text.splitlines(keepends=True)))


def test_small_tree(cub_tree):
    tables = read_tables(str(cub_tree()))
    assert tables.class_names == ["001.Bird_0", "002.Bird_1", "003.Bird_2"]
    assert ids(tables) == [str(i) for i in range(1, 25)]
    assert tables.files[8].path == tables.folder / "images/002.Bird_1/photo_0.jpg"
    assert tables.labels.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    assert tables.is_test.tolist() == ([False] * 6 + [True] * 2) * 3
    assert tables.boxes[3].tolist() == [4, 6, 24, 18]  # 4.5 6 20 12.5, as inclusive pixels
    assert tables.part_names[6] == "left eye"
    assert tables.points[9, :3].tolist() == [[5, 7], [0, 0], [7, 7]]  # class 1 does not show part 1
    assert tables.visible.sum(axis=1).tolist() == [14] * 24


def test_first_classes(cub_tree):
    tables = read_tables(str(cub_tree()), 2)
    assert (len(tables.class_names), ids(tables)[-1]) == (2, "16")
    assert len(tables.points) == len(tables.boxes) == len(tables.labels) == 16
    assert tables.all_ids == list(range(1, 25))


def test_windows_line_ends_and_row_order_do_not_matter(cub_tree):
    plain, other = read_tables(str(cub_tree("a"))), cub_tree("b", end="\r\n")
    for name in ("bounding_boxes", "parts/part_locs", "images", "image_class_labels", "classes", "parts/parts"):
        edit(other / f"CUB_200_2011/{name}.txt", backwards)
    again = read_tables(str(other))
    assert ids(again) == ids(plain)
    assert (again.class_names, again.part_names) == (plain.class_names, plain.part_names)
    assert [file.path.name for file in again.files] == [file.path.name for file in plain.files]
    for field in ("labels", "boxes", "points", "visible"):
        np.testing.assert_array_equal(getattr(again, field), getattr(plain, field))


def test_all_findings_in_one_message(cub_tree):
    root = cub_tree()
    (root / "CUB_200_2011/bounding_boxes.txt").unlink()
    edit(root / "CUB_200_2011/parts/part_locs.txt", lambda text: text[:-8])
    with pytest.raises(
        FileNotFoundError, match=r"(?s)2 problems:.*bounding_boxes\.txt is missing.*part_locs\.txt, row 360"
    ):
        read_tables(str(root))


def test_folder_of_another_data_set_with_classes(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"hold CUB_200_2011/images\.txt, but .* holds Animals_with"):
        read_tables(str(make_awa2(tmp_path)))
    with pytest.raises(FileNotFoundError, match=r"hold CUB_200_2011/images\.txt, but .* holds JPEGImages, cla"):
        read_tables(str(tmp_path / "Animals_with_Attributes2"))


def test_official_totals_for_all_classes_only(cub_tree):
    root = cub_tree(classes=200, per_class=1)
    with pytest.raises(ValueError, match=r"counts \(5994, 5794\), but got \(0, 200\)"):
        read_tables(str(root))


@pytest.mark.parametrize("classes", [0, 1, 4])
def test_number_of_classes(cub_tree, classes):
    with pytest.raises(ValueError, match=rf"`classes` to be between 2 and the 3 classes in .*, but got {classes}"):
        read_tables(str(cub_tree()), classes)
