"""Data that was damaged in every way we could think of: one clear error that names the file, or a known acceptance.

Never another exception, never a hang, never a change below the root.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from protometry.datamodules import AwA2, Cars196, Cub200, FunnyBirds, ImageFolder, Nico
from protometry.datamodules.splits import SPLITS
from tests import photo_trees
from tests.cub_tree import add_image_labels, make_cub
from tests.funnybirds_tree import make_funnybirds
from tests.nico_tree import make_nico
from tests.photo_trees import (
    CORNERS,
    edit,
    fingerprint,
    make_awa2,
    make_cars,
    make_cars_in_one,
    make_flat,
    make_folders,
    make_table,
    save_annotations,
    write_attributes,
)

SECONDS = 20  # a case takes a tenth of a second


def cub_with_image_labels(root):
    add_image_labels(make_cub(root, per_class=6, masks=True), images=18)


def folders_with_attributes(root):
    make_folders(root / "photos", {"train": 6, "test": 3})
    write_attributes(root / "table.csv", {"ant": [1, 0, 1], "bee": [0, 1, 1]})
    (root / "classes.txt").write_text("ant\nbee\n")


def image_folder(root, **options):
    files = {"attribute_table": str(root / "table.csv"), "class_file": str(root / "classes.txt")}
    return ImageFolder(str(root / "photos"), **files, **options)


# layout -> writes a tree, reads it
LAYOUTS = {
    "cub": (cub_with_image_labels, lambda root, **o: Cub200(str(root), concept_level="image", **o)),
    "nico": (lambda root: make_nico(root, per_context=2), lambda root, **o: Nico(str(root), **o)),
    "awa2": (make_awa2, lambda root, **o: AwA2(str(root), **o)),
    "cars": (make_cars, lambda root, **o: Cars196(str(root), **o)),
    "cars in one": (make_cars_in_one, lambda root, **o: Cars196(str(root), **o)),
    "funnybirds": (make_funnybirds, lambda root, **o: FunnyBirds(str(root), **o)),
    "folders": (folders_with_attributes, image_folder),
    "own table": (make_table, lambda root, **o: ImageFolder(str(root), table="photos.csv", **o)),
    "flat": (make_flat, lambda root, **o: ImageFolder(str(root), layout="flat", **o)),
}


@dataclass(frozen=True)
class Damage:
    """One way to damage a tree.

    Args:
        do: does it below a root.
        named: pattern of what the error must say, by default the file; None if the damage is accepted.
        at: folder below the tree that is given as root.
    """

    do: Callable[[Path], object]
    named: str | None = ""
    at: str = "."

    def says(self, named: str | None, at: str = ".") -> Damage:
        """The same with another text in its error, or given another root."""
        return replace(self, named=named, at=at)


# --- damages -----------------------------------------------------------------------------------------------------


def damages(act):
    """Make a damage of what is done to the path of a file."""
    return lambda name, *options: Damage(lambda root: act(root / name, *options), re.escape(Path(name).name))


def _write(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def _text(path: Path, old: str, new: str) -> None:
    before = path.read_bytes().decode()
    after = re.sub(old, new, before, count=1, flags=re.MULTILINE)
    assert after != before
    path.write_bytes(after.encode())


def _no_utf8(path: Path) -> None:
    path.rename(os.fsdecode(os.fsencode(path.with_suffix("")) + b"\xff" + os.fsencode(path.suffix)))


def _link_loop(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(path)


def _new_file(path: Path, content: bytes = b"mine") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _annotate(path: Path, change: Callable[[list[tuple]], list[tuple]]) -> None:
    rows = [(5, 7, 24, 18, i % 2 + 1, f"{i + 1:05d}.jpg") for i in range(12)]
    save_annotations(path, change(rows), (*CORNERS, "class", "fname"))


def _paint(path: Path, color: tuple[int, int, int]) -> None:
    with Image.open(path) as image:
        pixels = np.array(image.convert("RGB"))
    pixels[:4, :4] = color
    Image.fromarray(pixels).save(path)


cut = damages(lambda path, share=0.5: photo_trees.cut(path, share))  # the first part of a file remains
empty = damages(lambda path: path.write_bytes(b""))
text = damages(_text)  # the first match of a pattern is replaced
cut_in_row = damages(lambda path: edit(path, lambda table: table[: table.rstrip().rindex(" ")]))
rows = damages(lambda path, change: edit(path, lambda table: "\n".join(change(table.splitlines())) + "\n"))
# a table, with a letter that is not ASCII, in another encoding
encoded = damages(lambda path, code: _write(path, lambda data: (data.decode().rstrip("\n") + "é\n").encode(code)))
noise = damages(lambda path: path.write_bytes(bytes(range(256)) * 4))
marked = damages(lambda path: _write(path, lambda data: b"\xef\xbb\xbf" + data))  # with a byte order mark
remove = damages(lambda path: path.unlink())
remove_folder = damages(shutil.rmtree)
rename = damages(lambda path, other: path.rename(path.parent / other))
no_utf8 = damages(_no_utf8)  # a byte that is not UTF-8 before the extension of a name
folder_instead = damages(lambda path: (path.unlink(), path.mkdir()))
link_loop = damages(_link_loop)  # a link to itself instead of a file or folder
link = damages(lambda path, target: path.symlink_to(target))  # such as to a folder above
picture = damages(lambda path, size=(7, 9), mode="RGB": Image.new(mode, size).save(path))  # sound, of another size
new_file = damages(_new_file)
train_cars = partial(damages(_annotate), "stanford_cars/devkit/cars_train_annos.mat")
paint = damages(_paint)  # a corner in one colour
nothing = Damage(lambda root: None)  # the tree is sound; the root that is given is not


# --- cases -------------------------------------------------------------------------------------------------------

C = "CUB_200_2011/"
A = "Animals_with_Attributes2/"
S = "stanford_cars/"
PHOTO = C + "images/002.Bird_1/photo_3.jpg"
CASES = {
    "cub": {
        "classes cut in a row": cut(C + "classes.txt", 0.4),
        "classes in Latin-1": encoded(C + "classes.txt", "latin-1"),
        "classes in UTF-16": encoded(C + "classes.txt", "utf-16"),
        "a class doubled": rows(C + "classes.txt", lambda r: [*r, r[-1]]).says("003.Bird_2"),
        "classes with CRLF": rows(C + "classes.txt", lambda r: [f"{x}\r" for x in r]).says(None),
        "images in UTF-16": encoded(C + "images.txt", "utf-16"),
        "an image id doubled": rows(C + "images.txt", lambda r: [*r[:-1], "17 " + r[-1].split()[1]]),
        "two images swapped": rows(C + "images.txt", lambda r: [r[1], r[0], *r[2:]]).says(None),
        "an image path of its own": text(C + "images.txt", r"photo_0", "photo_99").says("photo_99"),
        "images as a folder": folder_instead(C + "images.txt"),
        "a label as a word": text(C + "image_class_labels.txt", " 1$", " one"),
        "a label nan": text(C + "image_class_labels.txt", " 1$", " nan"),
        "a label 1.5": text(C + "image_class_labels.txt", " 1$", " 1.5"),
        "labels as noise": noise(C + "image_class_labels.txt"),
        "a box nan": text(C + "bounding_boxes.txt", " 4.5 ", " nan "),
        "a box of negative width": text(C + "bounding_boxes.txt", " 20.0 ", " -20.0 "),
        "a column less in boxes": text(C + "bounding_boxes.txt", " 12.5$", ""),
        "a class less": text(C + "classes.txt", "^3 .*\n", "").says(r"classes 1\.\.2 as in classes\.txt, but got 3"),
        "a class without images": rows(C + "classes.txt", lambda r: [*r, "4 004.No"]).says("'004.No' has 0 images"),
        "a label 0": text(C + "image_class_labels.txt", "^7 2$", "7 0").says("but got 0 for image 7"),
        "a label of another class": text(C + "image_class_labels.txt", "^2 1$", "2 3").says("to lie in 003.Bird_2/"),
        "a photo listed twice": text(C + "images.txt", "^6 .*", "6 001.Bird_0/photo_0.jpg").says("image 1 and again"),
        "a box of another image": text(C + "bounding_boxes.txt", "^7 ", "77 ").says("18; the first .* differs is 7"),
        "a box of words": text(C + "bounding_boxes.txt", "12.5$", "wide").says("expected numbers only, but .*wide"),
        "a flag 2": text(C + "train_test_split.txt", "^7 1$", "7 2").says("but got 2 for image 7"),
        "a visibility 5": text(C + "parts/part_locs.txt", "7.0 1$", "7.0 5").says("but got 5 for image 1"),
        "parts missing": remove(C + "parts/parts.txt"),
        "a part row doubled": rows(C + "parts/part_locs.txt", lambda r: [*r, r[7]]),
        "a part row nan": text(C + "parts/part_locs.txt", "7.0 1$", "nan 1"),
        "attribute names cut": cut("attributes.txt").says("class_attribute_labels_continuous.txt"),
        "attribute names in Latin-1": encoded("attributes.txt", "latin-1"),
        "class attributes cut": cut(C + "attributes/class_attribute_labels_continuous.txt", 0.6),
        "a class attribute as a word": text(C + "attributes/class_attribute_labels_continuous.txt", "50.0", "x"),
        "image attributes as words": text(C + "attributes/image_attribute_labels.txt", "^3 .*", "3 x y z"),
        "a photo missing": remove(PHOTO).says(r"image 10: there is no file .*photo_3\.jpg; images\.txt names it"),
        "a photo empty": empty(PHOTO),
        "a photo cut": cut(PHOTO, 0.7),
        "a photo of noise": noise(PHOTO),
        "a photo as a folder": folder_instead(PHOTO),
        "a photo as a link to itself": link_loop(PHOTO),
        "a photo of one pixel": picture(PHOTO, (1, 1)).says("photo_3"),
        "photos elsewhere": rename(C + "images", "photos").says("photo_0.jpg"),
        "a mask of another size": picture("segmentations/002.Bird_1/photo_3.png", (7, 9), "L"),
        "a mask missing": remove("segmentations/002.Bird_1/photo_3.png").says("it is part of segmentations.tgz, http"),
        "a mask cut": cut("segmentations/002.Bird_1/photo_3.png", 0.8),
        "masks as a link to themselves": link_loop("segmentations").says(None),
        "no masks": remove_folder("segmentations").says(None),
        "the root of the photos": nothing.says("at another level", at=C + "images"),
        "no root": nothing.says("there is none at", at="elsewhere"),
        "a file as root": nothing.says("there is none at", at="attributes.txt"),
        "main folder as a link to itself": link_loop("CUB_200_2011").says("images.txt"),
    },
    "nico": {
        "a photo cut": cut("cat/on grass/photo 1.jpg", 0.5).says(None),
        "a photo empty": empty("cat/on grass/photo 1.jpg").says(None),
        "a photo of noise": noise("cat/on grass/photo 1.jpg").says(None),
        "a photo as a folder": folder_instead("cat/on grass/photo 1.jpg").says(None),
        "a photo as a link to itself": link_loop("cat/on grass/photo 1.jpg").says(None),
        "a context as a link to itself": link_loop("cat/on grass").says(None),
        "a context as a link to the root": link("cat/all", "..").says(None),
        "a loose file": new_file("cat/notes.txt").says(None),
        "a class without contexts": new_file("fox/photo.jpg").says("fox"),
        "one class before snow only": rename("cat", "dog/cat").says(None),
        "a photo as root": nothing.says("there is none at", at="cat/on grass/photo 1.jpg"),
        "a name that is no UTF-8": Damage(lambda root: os.mkdir(os.fsencode(root / "cat") + b"/\xff"), None),
        "a photo's name is no UTF-8": no_utf8("cat/autumn/photo 0.jpg").says("not UTF-8"),
    },
    "awa2": {
        "classes cut": cut(A + "classes.txt", 0.7),
        "classes in Latin-1": encoded(A + "classes.txt", "latin-1"),
        "a class doubled": rows(A + "classes.txt", lambda r: [*r, "     4\tbat"]),
        "two classes swapped": rows(A + "classes.txt", lambda r: [r[1], r[0], *r[2:]]),
        "a class of another number": text(A + "classes.txt", "^     2", "     7").says("row 2: .* but got '7 bat'"),
        "a class of another name": text(A + "classes.txt", "bat", "rat").says("'rat' .* 0 images.*'bat' .* no row"),
        "a predicate of another name": text(A + "predicates.txt", "black", "dark").says("but got 48 of them"),
        "a predicate doubled": text(A + "predicates.txt", "\tblack", "\twhite").says("but got 51 in 52 rows"),
        "a binary 2": text(A + "predicate-matrix-binary.txt", "1 0", "2 0").says("0 and 1 only, but got 0 to 2"),
        "a binary less": text(A + "predicate-matrix-binary.txt", "1 0", "1").says("numbers in rows of equal length"),
        "a binary row less": rows(A + "predicate-matrix-binary.txt", lambda r: r[:-1]).says("but got 2 of 52"),
        "a continuous 140": text(A + "predicate-matrix-continuous.txt", "40.00", "140.00").says("but got 0 to 140"),
        "a predicate less": rows(A + "predicates.txt", lambda r: r[:-1]).says("predicate"),
        "a binary nan": text(A + "predicate-matrix-binary.txt", "1", "nan"),
        "binary cut": cut(A + "predicate-matrix-binary.txt"),
        "binary as a folder": folder_instead(A + "predicate-matrix-binary.txt"),
        "continuous empty": empty(A + "predicate-matrix-continuous.txt"),
        "continuous of words": text(A + "predicate-matrix-continuous.txt", "4.*", "many words"),
        "continuous as noise": noise(A + "predicate-matrix-continuous.txt"),
        "a class folder less": remove_folder(A + "JPEGImages/bat"),
        "a class folder more": new_file(A + "JPEGImages/fox/fox_1.jpg").says("fox"),
        "photos missing": remove_folder(A + "JPEGImages").says(r"JPEGImages/ is missing; it is part of AwA2-data\.zip"),
        "other files": new_file(A + "Features/x.jpg").says(None),
        "a photo cut": cut(A + "JPEGImages/bat/bat_10002.jpg"),
        "a photo as a folder": folder_instead(A + "JPEGImages/bat/bat_10002.jpg").says(None),
        "a photo as a link to itself": link_loop(A + "JPEGImages/bat/bat_10002.jpg"),
        "photos as a link to themselves": link_loop(A + "JPEGImages"),
        "a link to a folder above": link(A + "JPEGImages/bat/loop", "..").says(None),
        "a photo's name is no UTF-8": no_utf8(A + "JPEGImages/bat/bat_10002.jpg").says("not UTF-8"),
    },
    "cars": {
        "names cut": cut(S + "devkit/cars_meta.mat"),
        "names empty": empty(S + "devkit/cars_meta.mat"),
        "names as noise": noise(S + "devkit/cars_meta.mat"),
        "names as a folder": folder_instead(S + "devkit/cars_meta.mat").says("stanford_cars"),
        "training list cut": cut(S + "devkit/cars_train_annos.mat", 0.8),
        "another table as training list": Damage(
            lambda root: shutil.copy(root / S / "devkit/cars_meta.mat", root / S / "devkit/cars_train_annos.mat")
        ).says("cars_train_annos.mat"),
        "training list missing": remove(S + "devkit/cars_train_annos.mat").says("is missing; it is part of the devkit"),
        "a car of no class": train_cars(lambda r: [(5, 7, 24, 18, 3, "00001.jpg"), *r[1:]]).says("00001.* but got 3"),
        "a car of class 0": train_cars(lambda r: [(5, 7, 24, 18, 0, "00001.jpg"), *r[1:]]).says("1..2 .* but got 0"),
        "an empty box": train_cars(lambda r: [(25, 7, 24, 18, 1, "00001.jpg"), *r[1:]]).says("00001.* corners"),
        "a box from 0": train_cars(lambda r: [(0, 7, 24, 18, 1, "00001.jpg"), *r[1:]]).says("expected corners"),
        "the box of another photo": train_cars(lambda r: [*r[:3], (45, 7, 64, 18, 2, "00004.jpg"), *r[4:]]).says(
            r"1 problem:\n.*cars_train_annos\.mat, row 4: the box \(44 6 63 17\) lies outside .*/00004\.jpg"
        ),
        **{
            f"a cell of {field} {value}": train_cars(
                lambda r, place=place, value=value: [*r[:2], (*r[2][:place], value, *r[2][place + 1 :]), *r[3:]]
            ).says(
                rf"cars_train_annos\.mat, row 3: expected `{field}` to be a whole number, but got {re.escape(shown)}"
            )
            for place, field, value, shown in (
                (4, "class", 1.5, "1.5"),
                (4, "class", np.nan, "nan"),
                (4, "class", [], "array([]"),
                (0, "bbox_x1", "a", "'a'"),
                (2, "bbox_x2", np.inf, "inf"),
                (1, "bbox_y1", [], "array([]"),
            )
        },
        "a photo missing": remove(S + "cars_test/00002.jpg").says(r"cars_test_\w+\.mat, row 2 names it"),
        "test list missing": remove(S + "cars_test_annos_withlabels.mat"),
        "test list as noise": noise(S + "cars_test_annos_withlabels.mat"),
        "a photo cut": cut(S + "cars_train/00002.jpg"),
        "photos as a link to themselves": link_loop(S + "cars_train").says("cars_train/00001.jpg"),
    },
    "cars in one": {
        "table cut": cut("cars_annos.mat", 0.9),
        "table as text": new_file("cars_annos.mat", b"1 2 3\n"),
        "photos missing": remove_folder("car_ims").says("000001.jpg"),
    },
    "funnybirds": {
        "parts of another type": new_file("parts.json", b"[1, 2]"),
        "classes in UTF-16": encoded("classes.json", "utf-16"),
        "classes as null": new_file("classes.json", b"null"),
        "a variant as a word": text("classes.json", r'"beak": *\d+', '"beak": "x"'),
        "test table as a folder": folder_instead("dataset_test.json"),
        "test table of numbers": new_file("dataset_test.json", b"[1, 2, 3, 4]"),
        "a class of no bird": text("dataset_train.json", r'"class_idx": *\d', '"class_idx": 99'),
        "a key lost": text("dataset_train.json", '"class_idx"', '"class"'),
        "training table cut": cut("dataset_train.json").says(r"dataset_train\.json to hold strict JSON, .*truncated"),
        "training table swapped": Damage(
            lambda root: shutil.copy(root / "dataset_test.json", root / "dataset_train.json"),
            "train/0 should hold 1 images according to dataset_train.*holds 2 others",
        ),
        "an image empty": empty("train/2/000010.png").says(r"train/2/000010\.png.*the file is empty"),
        "images elsewhere": rename("train", "training").says("train/0 should hold 3"),
        "an intervention cut": cut("test_interventions/1/000001/body_eye.png").says("body_eye.png to be an image"),
        "a part map of another size": picture("test_part_map/1/000001.png", (16, 16)).says("16x16 pixels .* has 32x32"),
        "a part map of a removed part": paint("train_part_map/6/000014.png", (255, 255, 0)).says(
            "14.png shows the beak"
        ),
        "an image as a folder": folder_instead("test/1/000001.png"),
        "an image as a link to itself": link_loop("test/1/000001.png"),
        "an image renamed": rename("test/1/000001.png", "1.png").says("test/1"),
        "a part map of noise": noise("test_part_map/1/000001.png"),
    },
    "folders": {
        "table cut": cut("table.csv", 0.6),
        "table in UTF-16": encoded("table.csv", "utf-16"),
        "table in Latin-1": encoded("table.csv", "latin-1"),
        "table with NUL bytes": text("table.csv", "ant", "a\0nt"),
        "table as a folder": folder_instead("table.csv"),
        "class file in Latin-1": encoded("classes.txt", "latin-1"),
        "a photo cut": cut("photos/train/ant/1.jpg"),
        "a photo as a link to itself": link_loop("photos/train/ant/1.jpg"),
        "a link to a folder above": link("photos/train/ant/loop", "../..").says(None),
        "a photo's name is no UTF-8": no_utf8("photos/train/ant/1.jpg").says("not UTF-8"),
        "photos missing": remove_folder("photos"),
    },
    "own table": {
        "table cut": cut("photos.csv", 0.6),
        "table empty": empty("photos.csv"),
        "table in UTF-16": encoded("photos.csv", "utf-16"),
        "table with NUL bytes": text("photos.csv", "ant", "a\0nt"),
        "table of noise": noise("photos.csv"),
        "table as a folder": folder_instead("photos.csv"),
        "table missing": remove("photos.csv"),
        "a mask cut": cut("masks/3.png"),
        "a mask missing": remove("masks/3.png"),
        "a mask of another size": picture("masks/3.png", (16, 16)).says("16x16"),
        "a photo of another size": picture("ant/1.jpg", (4, 4)),
        "a photo missing": remove("ant/1.jpg"),
        "a photo more": new_file("ant/9.jpg").says(r"no row for 1 of 17 .*ant/9\.jpg"),
        "a photo's name is no UTF-8": no_utf8("ant/1.jpg").says("not UTF-8"),
    },
    "flat": {
        "a photo empty": empty("ant_1.JPEG"),
        "a photo as a folder": folder_instead("ant_1.JPEG").says(None),
        "a photo as a link to itself": link_loop("ant_1.JPEG"),
        "a photo's name is no UTF-8": no_utf8("ant_1.JPEG").says("not UTF-8"),
        "one photo of a class": new_file("fox_1.JPEG").says("fox"),
    },
}
for table, (there, got) in {
    "images.txt": (17, 18),
    "image_class_labels.txt": (18, 17),
    "train_test_split.txt": (18, 17),
    "bounding_boxes.txt": (18, 17),
    "parts/part_locs.txt": (270, 269),
}.items():
    CASES["cub"] |= {
        f"{table} missing": remove(C + table).says(rf"{table} is missing; it is part of CUB_200_2011\.tgz.*https://"),
        f"{table} empty": empty(C + table).says(f"{table} is empty"),
        f"{table} cut in a row": cut_in_row(C + table).says(
            rf"{table}, row \d+: expected \d columns .* may be truncated"
        ),
        f"{table} without its last row": rows(C + table, lambda r: r[:-1]).says(
            f"expected {there} .* but got {got}.* differs is 18"
        ),
    }
for table in ("classes.txt", "parts/parts.txt"):
    for number in (9999, 1):
        CASES["cub"][f"{table} with the id {number}"] = text(C + table, "^2 ", f"{number} ").says(
            rf"{table}, row 2: expected the ids 1\.\.\d+, each once, but got '{number} "
        )
for table in ("predicates.txt", "predicate-matrix-binary.txt", "predicate-matrix-continuous.txt"):
    CASES["awa2"][f"{table} missing"] = remove(A + table).says(rf"{table} is missing; it is part of AwA2.*https://")
TABLES = {
    "cub": [C + name for name in ("bounding_boxes.txt", "image_class_labels.txt", "images.txt", "parts/parts.txt")],
    "awa2": [A + f"{name}.txt" for name in ("classes", "predicates", "predicate-matrix-binary")],
    "funnybirds": ["classes.json", "parts.json", "dataset_train.json"],
    "folders": ["table.csv", "classes.txt"],
    "own table": ["photos.csv"],
}
for layout, tables in TABLES.items():
    CASES[layout] |= {f"{table} with a mark": marked(table).says(None) for table in tables}
LISTS = {"schema": 1, "folds": 0, "dataset": "nico", "scheme": "hsv", "seed": 1, "content_sha256": "", "exclude": []}
SPLIT_FILES = {
    "cut": b'{"schema": 1, "dataset": "nico", "te', "null": b"null", "another schema": b'{"schema": 7, "folds": 0}',
    "UTF-16": '{"schema": 1}'.encode("utf-16"), "noise": bytes(range(256)), "another type": b'"split"',
    "numbers for lists": json.dumps({**LISTS, "test": 1, "val": [], "rest": []}).encode(),
}  # fmt: skip


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Layout -> a sound tree, written at its first use and only copied afterwards."""
    folder = tmp_path_factory.mktemp("originals")

    def original(layout: str) -> Path:
        if not (folder / layout).exists():
            LAYOUTS[layout][0](folder / layout)
        return folder / layout

    return original


@pytest.fixture(autouse=True)
def no_hang():
    """An endless loop becomes an error."""

    def stop(number, frame):
        raise TimeoutError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def read_everything(layout: str, root: Path, **options: object) -> None:
    data = LAYOUTS[layout][1](root, image_size=16, augmentation="none", **options)
    data.num_classes  # noqa: B018 - the command line asks for it first
    data.prepare_data()
    data.setup()
    for split in SPLITS:
        dataset = data.dataset(split)
        for index in range(len(dataset)):
            dataset[index]


@pytest.mark.parametrize(("layout", "name"), [(layout, name) for layout, cases in CASES.items() for name in cases])
def test_damage(layout, name, originals, tmp_path):
    root, damage = tmp_path / "root", CASES[layout][name]
    shutil.copytree(originals(layout), root, symlinks=True)
    damage.do(root)
    before = fingerprint(root)
    result = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read_everything(layout, root / damage.at)
        except (ValueError, FileNotFoundError) as error:
            result = error
    assert fingerprint(root) == before
    assert (result is None) == (damage.named is None), result or "the damage went unnoticed"
    assert re.search(damage.named or "", str(result), re.DOTALL), result
    assert isinstance(result, FileNotFoundError) or not re.search("is missing; it|there is no file", str(result))


@pytest.mark.parametrize("damage", SPLIT_FILES)
def test_split_files(damage, originals, tmp_path):
    path = tmp_path / "split.json"
    path.write_bytes(SPLIT_FILES[damage])
    with pytest.raises(ValueError, match=r"split\.json"):
        read_everything("nico", originals("nico"), split_file=str(path))
