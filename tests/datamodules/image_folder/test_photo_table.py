"""A table beside own photos: CUB's own tables in one file give CUB's samples; every kind of cell, file and fault."""

import json
import math
import re

import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules import Cub200, ImageFolder
from protometry.datamodules.check.check import check_data
from protometry.datamodules.check.report import show_check
from protometry.datamodules.load import read_datamodule
from tests.cub_tree import add_image_labels
from tests.photo_trees import make_folders, write_attributes, write_table


def own(root, **options):
    return ImageFolder(str(root), **{"image_size": 32, "table": "photos.csv", **options})


@pytest.fixture
def photos(tmp_path):
    """What writes a table of 8 photos each of ``ant`` and ``bee``, with further columns that are functions of a row."""
    root = make_folders(tmp_path / "flowers")

    def write(**columns):
        names = [f"{name}/{i}.jpg" for name in ("ant", "bee") for i in range(8)]
        rows = [[name, *(column(i) for column in columns.values())] for i, name in enumerate(names)]
        write_table(root / "photos.csv", ["image", *(name.replace("__", ":") for name in columns)], rows)
        return root

    return write


def export(cub, root):
    """CUB's own tables as a table beside its photos, with a table of the attributes of classes."""
    table, tables, parts = cub.photos.table, cub.tables, {}
    for part in ("train", "val", "test"):
        parts |= dict.fromkeys(cub.dataset(part).rows.tolist(), part)
    header = ["image", "label", "split", "box", *(f"part:{name}" for name in tables.part_names)]
    if cub.concept_level == "image":
        concepts = [f"{kind}:{name}" for kind in ("attribute", "certainty") for name in tables.concept_names]
        header += concepts
    rows = []
    for row, file in enumerate(table.files):
        seen = zip(table.points[row].tolist(), table.visible[row], strict=True)
        points = [f"{x!r} {y!r}" if visible else "" for (x, y), visible in seen]
        box = " ".join(f"{edge:g}" for edge in table.boxes[row])
        values = [
            file.path.relative_to(table.folder / "images").as_posix(), table.class_names[table.labels[row]], parts[row],
            box, *points,
        ]  # fmt: skip
        if cub.concept_level == "image":
            sample = cub.photos[row]
            values += [*sample["concepts"].int().tolist(), *sample["concept_certainty"].tolist()]
        rows.append(values)
    write_table(root / "photos.csv", header, rows[::-1])
    shares = {name: share.tolist() for name, share in zip(table.class_names, tables.class_concepts, strict=True)}
    return str(write_attributes(root / "classes.csv", shares, tables.concept_names))


def assert_same(own, cub):
    """Every field of every sample but its id, whose key is another."""
    path_of = {file.sample_id: file.path.parts[-2:] for data in (own, cub) for file in data.photos.table.files}
    assert own.class_names == cub.class_names
    for part in ("train", "val", "test", "projection"):
        left, right = own.dataset(part), cub.dataset(part)
        row = {path_of[name]: i for i, name in enumerate(left.sample_ids)}
        assert len(left) == len(right) == len(row)
        for i, name in enumerate(right.sample_ids):
            mine, its = dict(left[row[path_of[name]]]), dict(right[i])
            assert mine.keys() == its.keys()
            for field in its.keys() - {"sample_id", "sample_key"}:
                assert torch.equal(mine[field], its[field]), field
        mine, its = vars(own.capabilities(part)), vars(cub.capabilities(part))
        assert [name for name, flag in mine.items() if flag is True] == [n for n, flag in its.items() if flag is True]


def own_of(cub, root, **options):
    """The photos of CUB as own photos."""
    root.mkdir()
    for name in cub.class_names:
        (root / name).symlink_to(cub.photos.table.folder / "images" / name)
    attributes = export(cub, root)
    return own(root, image_size=cub.image_size, augmentation="none", attribute_table=attributes, **options)


def test_the_photos_of_cub_are_the_same_as_own_photos(cub_tree, tmp_path):
    root = add_image_labels(cub_tree())
    options = {"scheme": "official", "augmentation": "none", "concept_selection": "all", "crop": "box"}
    cub = Cub200(str(root), image_size=(90, 80), concept_level="image", **options)
    data = own_of(cub, tmp_path / "birds", crop="box")
    assert_same(data, cub)
    # without a table of classes, the training photos vote as in Koh et al. 2020
    voted = own(data.root).tables
    assert torch.equal(voted.class_concepts_binary, cub.tables.class_concepts_binary)


class TestColumns:
    def test_labels_split_mask_and_group(self, photos):
        root = photos(
            label=lambda i: "wasp" if i % 2 else "fly",
            split=lambda i: ("train", "train", "val", "test")[i % 4],
            mask=lambda i: f"masks/{i}.png",
            group=lambda i: f"garden {i // 3}" if i else "",
        )
        for i in range(16):
            mask = np.zeros((30, 40), np.uint8)
            mask[:15, : i + 1] = 255
            (root / "masks").mkdir(exist_ok=True)
            Image.fromarray(mask).save(root / f"masks/{i}.png")
        data = own(root, image_size=(30, 40))
        with pytest.warns(
            UserWarning, match="Groups of photos are in several parts of the split: garden 0 .train, val"
        ):
            data.setup()
        data.prepare_data()
        assert data.class_names == ["fly", "wasp"]
        assert data.dataset("val").sample_ids == ["ant/2.jpg", "ant/6.jpg", "bee/2.jpg", "bee/6.jpg"]
        assert data.dataset("test").labels.tolist() == [1] * 4
        assert data.dataset("test")[3]["object_mask"].sum() == 15 * 16
        assert data.photos.table.kept_together[:4] == ["ant/0.jpg", "garden 0", "garden 0", "garden 1"]
        assert data.capabilities("test").missing("bounding_box") == "no column `box` in photos.csv"

    @pytest.mark.parametrize("split", [{}, {"split": lambda i: "test" if i % 8 > 5 else "train"}])
    def test_groups_stay_together(self, photos, split):
        data = own(photos(group=lambda i: f"pond {i % 8 // 2}", **split))
        group = dict(zip(data.photos.sample_ids, data.photos.table.kept_together, strict=True))
        parts = [{group[name] for name in data.dataset(part).sample_ids} for part in ("train", "val", "test")]
        assert sum(map(len, parts)) == 4
        assert len(parts[0]) >= 1

    def test_other_columns_are_left_out_with_a_line(self, photos, caplog):
        columns = {
            "label": lambda i: "fly" if i % 2 else "bug", "class": str, "label_id": str, "path": str, "image_id": str,
        }  # fmt: skip
        with caplog.at_level("INFO"):
            data = own(photos(**columns))
            data.setup("fit")
        assert data.class_names == ["bug", "fly"]
        assert "photos.csv: columns left out: class, label_id, path, image_id." in caplog.text

    def test_incomplete_boxes_are_not_used(self, photos):
        data = own(photos(box=lambda i: "0 0 9 9" if i > 2 else "", part__eye=lambda i: "3 4" if i else ""))
        reason = "photos.csv has no box for 3 of 16 photos, such as line 2"
        assert data.capabilities("test").missing("bounding_box") == reason
        assert [data.photos[i]["part_visible"].item() for i in range(3)] == [False, True, True]
        with pytest.raises(ValueError, match=f"boxes for `crop: box`, but got none .{reason}"):
            own(data.root, crop="box").setup()

    def test_photos_with_annotations_are_not_turned(self, photos, tmp_path):
        root, exif = photos(part__eye=lambda i: "3 4"), Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (40, 30)).save(root / "ant/0.jpg", exif=exif)
        assert own(root).photos.decoded(0, root / "ant/0.jpg").shape == (30, 40, 3)
        assert own(root, table=None).photos.decoded(0, root / "ant/0.jpg").shape == (40, 30, 3)

    @pytest.mark.parametrize(("task", "classes"), [(None, ["ant", "bee"]), ("attributes", ["eye::red", "furry"])])
    def test_attributes_of_photos(self, photos, task, classes):
        """Of ant, 5 are furry, 2 are not and 1 is unknown; of bee, none shows whether it is red-eyed."""
        furry = lambda i: "" if i == 7 else int(i < 5)  # noqa: E731
        red = lambda i: int(i < 4) if i < 8 else ""  # noqa: E731
        columns = {
            "attribute__eye::red": red,
            "attribute__furry": furry,
            "certainty__furry": lambda i: 3 if i in (1, 7) else "",  # whatever is said of an empty cell
        }
        columns["part__left eye"] = columns["part__right eye"] = lambda i: ""
        data = own(photos(**columns), task=task, scheme="test")
        assert data.class_names == classes
        assert data.tables.class_concepts_binary.tolist() == [[True, True], [False, False]]
        shares = torch.tensor([[0.5, 5 / 7], [math.nan, 0]])
        torch.testing.assert_close(data.tables.class_concepts, shares, equal_nan=True)
        assert data.tables.attribute_names == ["furry"]  # the other is not known of every class
        assert data.tables.concept_to_part.tolist() == [0, -1]
        samples = [data.photos[i] for i in (0, 1, 7)]
        assert [sample["concepts"].tolist() for sample in samples] == [[True, True], [True, True], [False, False]]
        assert [sample["concept_certainty"].tolist() for sample in samples] == [[4, 4], [4, 3], [4, 0]]
        assert data.photos.unknown(np.array([0, 1, 7])).tolist() == [[False, False], [False, False], [False, True]]
        assert ("labels" in samples[0]) == (task == "attributes")
        by_class = own(data.root, concept_level="class").photos
        assert by_class[7]["concepts"].tolist() == [True, True]
        assert [by_class[i]["concept_certainty"].tolist() for i in (7, 8)] == [[4, 4], [0, 4]]
        assert by_class.capabilities().missing("concepts_image") == "concept_level is class"

    def test_several_labels(self, photos, tmp_path):
        root = photos(labels=lambda i: ("fly", "bug; fly", "")[i % 3])
        data = own(root)
        assert (data.class_names, data.photos.table.class_names) == (["bug", "fly"], ["bug", "fly", "none of them"])
        assert [data.photos[i]["labels"].tolist() for i in range(3)] == [[False, True], [True, True], [False, False]]
        (tmp_path / "classes.txt").write_text("fly\nmoth\nbug\n")
        assert own(root, class_file=str(tmp_path / "classes.txt")).photos[1]["labels"].tolist() == [True, False, True]
        assert "multi_label        test" in show_check(check_data(own(root, scheme="test")))
        table = write_attributes(tmp_path / "a.csv", {name: [0, 1, 0] for name in ("bug", "fly", "none of them")})
        with pytest.raises(ValueError, match=r"one class each for `attribute_table`, but the `table` has .* `labels`"):
            own(root, attribute_table=str(table)).setup()

    def test_photos_are_divided_by_a_rare_first_label_with_others(self, photos):
        data = own(photos(labels=lambda i: "unique; other" if i == 3 else ("other", "common; other")[i % 2]))
        assert data.photos.table.class_names == ["common", "other", "unique"]
        strata, names = data.photos.strata
        assert (strata.tolist(), names) == ([1, 0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0], ["common", "other"])
        data.setup()
        assert len(data.dataset("test")) in (4, 5)

    def test_several_labels_and_attributes(self, photos):
        """With another task, the first of several labels is the class."""
        root = photos(
            labels=lambda i: ("fly", "bug; fly")[i % 2], attribute__a=lambda i: i % 2, attribute__b=lambda i: 1
        )
        data = own(root).photos
        assert data.tables.class_concepts is None
        assert data[1]["concepts"].tolist() == [True, True]
        by_class = own(root, task="attributes", concept_level="class").photos
        assert (by_class.class_names, by_class.table.class_names) == (["a", "b"], ["bug", "fly"])
        assert [by_class[i]["labels"].tolist() for i in range(2)] == [[False, True], [True, True]]
        assert own(root, task="single").photos.class_names == ["bug", "fly"]


class TestFiles:
    @pytest.mark.parametrize("delimiter", [";", "\t"])
    def test_delimiters_and_paths(self, tmp_path, delimiter):
        root = make_folders(tmp_path / "r", {"": 4})
        rows = [[f"./ant/{i}.jpg", "0 1 2 3"] for i in range(4)] + [
            [str(root / f"bee/{i}.jpg"), "0 1 2 3"] for i in range(4)
        ]
        write_table(root / "photos.csv", ["image", "box"], rows, delimiter)
        assert own(root).photos.table.boxes.tolist() == [[0, 1, 2, 3]] * 8


class TestFaults:
    @pytest.mark.parametrize(("columns", "match"), [
        ({"box": lambda i: "1 2 3"}, "line 2, column `box`: expected `x0 y0 x1 y1` in pixels, but got '1 2 3'"),
        ({"box": lambda i: "5 0 4 9"}, "column `box`: expected x0 <= x1 and y0 <= y1, .* but got '5 0 4 9'"),
        ({"box": lambda i: "0.1 0 0.9 1"}, "the numbers of all boxes lie in 0..1, as shares of width and height do"),
        ({"part__eye": lambda i: "0.1 1" if i else ""}, "the numbers of all points lie in 0..1, as shares"),
        ({"box": lambda i: "0.1 0 0.9 1" if i else "3 3 9 9"}, r"the numbers of \d+ of \d+ boxes lie in 0..1"),
        ({"box": lambda i: "10 10 90 29"}, r"the box \(10 10 90 29\) reaches far beyond the 40x30 pixels"),
        ({"part__eye": lambda i: "9 9" if i else "0 0"}, "`x y` in the photo, or nothing .* but got '0 0'"),
        ({"part__eye": lambda i: "9 9" if i else "-1 -1"}, "`x y` in the photo, or nothing .* but got '-1 -1'"),
        ({"labels": lambda i: "fly|bee" if i else "bee"}, "line 3, column `labels`: expected labels with `;` betwee"),
        ({"label": lambda i: ("1", "1.0", "2")[i % 3]}, "'1' and '1.0' are one class; write it in one way"),
        ({"box": lambda i: "50 0 60 9"}, r"photos.csv, line 2: the box \(50 0 60 9\) lies outside the 40x30"),
        ({"part__eye": lambda i: "3 90"}, "the visible point of part 'eye' .3 90. lies outside the 40x30 pixels"),
        ({"part__eye": lambda i: "inf 0"}, "column `part:eye`: expected `x y` in pixels, but got 'inf 0'"),
        ({"part__": lambda i: ""}, "column `part:` names nothing"),
        ({"x0": lambda i: "3"}, "a column `box`, or four columns x0, y0, x1, y1, but not some of both"),
        ({"attribute__red": lambda i: "yes"}, "column `attribute:red`: expected 0, 1 or nothing, but got 'yes'"),
        ({"certainty__red": lambda i: "3"}, "has `certainty:red`, but no column `attribute:red`"),
        ({"split": lambda i: "dev"}, "column `split`: expected one of train, val, test, but got 'dev'"),
        ({"split": lambda i: "train"}, "column `split`: expected train with val or test, but got only train"),
        ({"label": lambda i: "fly" if i else ""}, "column `label`: expected the class of the photo, but got nothing"),
        ({"mask": lambda i: "../m.png"}, "column `mask`: expected a path below .*, but got '../m.png'"),
        ({"mask": lambda i: "m.png"}, r"there is no file .*m\.png; the table names it"),
    ])  # fmt: skip
    def test_cells(self, photos, columns, match):
        with pytest.raises((ValueError, FileNotFoundError), match=match):
            check_data(own(photos(**columns)))

    def test_rows_and_photos(self, photos):
        root = photos()
        rows = [["ant/0.jpg"], ["ant/0.jpg"], ["ANT/1.jpg"], ["notes.txt"], ["7.jpg"], ["/elsewhere/8.jpg"]]
        write_table(root / "photos.csv", ["image"], rows)
        with pytest.raises(FileNotFoundError) as caught:
            own(root).prepare_data()
        for text in (
            "got 6 problems",
            "line 7, column `image`: expected a path below",
            "photos.csv has 2 rows for ant/0.jpg",
            "photos.csv, line 4: .* holds no photo ANT/1.jpg; it holds ant/1.jpg",
            "holds no photo notes.txt, because files of photos end in",
            "holds no photo 7.jpg; it holds (ant|bee)/7.jpg",
        ):
            assert re.search(text, str(caught.value)), text
        write_table(root / "photos.csv", ["image"], [["ant/0.jpg"]])
        with pytest.raises(
            ValueError, match=r"has no row for 15 of 16 photos below .*: ant/1\.jpg, .* and 10 more; add a"
        ):
            own(root).prepare_data()

    @pytest.mark.parametrize(("text", "match"), [
        ("", "has no column `image`; it has nothing"), ("image\n", "has no rows"),
        (",label\nant/0.jpg,fly\n", "has no column `image`; it has label; its first column has no name"),
        ("image\nant\\3.jpg\n", r"holds no photo ant\\3.jpg; it holds ant/3.jpg, with / between folders"),
        ("image,box,box\na,,\n", "has 2 columns `box`"), ('image\n"a', "in line 2; is a quote open"),
        ("image,label\na\n", "line 2: expected 2 cells as in the first line, but got 1"),
    ])  # fmt: skip
    def test_files(self, photos, text, match):
        root = photos()
        (root / "photos.csv").write_text(text)
        with pytest.raises((ValueError, FileNotFoundError), match=match):
            own(root).prepare_data()

    def test_all_faults_of_table_and_photos_come_in_one_list(self, photos):
        root = photos(box=lambda i: "90 90 99 99" if i == 1 else "0 0 9 9")
        table = (root / "photos.csv").read_text().splitlines()
        table[1:4:2] = f"{table[1]},more", table[3].replace("0 0 9 9", "9 0 0 9")
        (root / "photos.csv").write_text("\n".join(table))
        (root / "bee/0.jpg").write_bytes(b"no photo")
        with pytest.raises(ValueError, match="got 4 problems") as caught:
            check_data(own(root))
        for text in (
            "line 2: expected 2 cells as in the first line, but got 3",
            r"line 4, column `box`: expected x0 <= x1",
            r"image ant/1.jpg: photos.csv, line 3: the box .* lies outside",
            "image bee/0.jpg: .* cannot be decoded",
        ):
            assert re.search(f"\n  .*{text}", str(caught.value)), text

    def test_no_file(self, photos):
        with pytest.raises(FileNotFoundError, match=r"`table` to be a file, but there is none at other.csv"):
            own(photos(), table="other.csv").prepare_data()
        with pytest.raises(ValueError, match=r"`table` to end in .csv or .json"):
            own(photos(), table="ant/0.jpg").prepare_data()

    def test_misfits(self, photos, tmp_path):
        root = photos(attribute__small=lambda i: 1)
        table = write_attributes(tmp_path / "a.csv", {"ant": [1, 0, 0], "bee": [0, 0, 0]})
        with pytest.raises(ValueError, match=r"about the same attributes .* they differ in furry, striped"):
            own(root, attribute_table=str(table)).prepare_data()
        with pytest.raises(ValueError, match="Expected attributes for `task: attributes`, but got none"):
            own(root, table=None, task="attributes").prepare_data()


HALVES = {"split": lambda i: "test" if i % 8 else "train"}


@pytest.mark.parametrize(("columns", "scheme"), [(HALVES, "auto"), ({}, "test")])
def test_other_data_are_divided_as_their_table_says(photos, tmp_path, columns, scheme):
    """For the evaluation of a model trained on other data, which without a word takes all photos for the test."""
    root = photos(**columns)
    init = {"root": str(root), "table": "photos.csv"}
    (tmp_path / "data.yaml").write_text(json.dumps({"data": {"class_path": "ImageFolder", "init_args": init}}))
    assert read_datamodule(tmp_path / "data.yaml", (32, 32)).scheme == scheme
