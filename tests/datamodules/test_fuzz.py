"""Data that was damaged in every way we could think of: one clear error that names the file, or a known acceptance.

Never another exception, never a hang, never a change below the root.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image

from datamodules import AwA2, Cars196, Cub200, FunnyBirds, ImageFolder, Nico
from datamodules.splits import SPLITS
from tests.cub_tree import make_cub
from tests.funnybirds_tree import make_funnybirds
from tests.nico_tree import make_nico
from tests.photo_trees import make_awa2, make_cars, make_cars_in_one, make_flat, make_folders, write_attributes

SECONDS = 20  # a case takes a tenth of a second
Damage = Callable[[Path], object]


def cub_with_image_labels(root):
    make_cub(root, per_class=6, masks=True)
    rows = [f"{i} {a} {(i + a) % 2} {1 + a % 4} 1.0" for i in range(1, 19) for a in range(1, 313)]
    (root / "CUB_200_2011/attributes/image_attribute_labels.txt").write_text("\n".join(rows) + "\n")


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
    "flat": (make_flat, lambda root, **o: ImageFolder(str(root), layout="flat", **o)),
}


@dataclass(frozen=True)
class Case:
    """One way to damage a tree.

    Args:
        layout: of the tree.
        name: of the damage.
        damage: does it.
        says: what the error must name, or None if the damage is accepted.
        at: folder below the tree that is given as root.
    """

    layout: str
    name: str
    damage: Damage
    says: str | None
    at: str = "."

    @property
    def id(self) -> str:
        return f"{self.layout}: {self.name}"


# --- damages -----------------------------------------------------------------------------------------------------


def cut(name: str, share: float = 0.5) -> Damage:
    """Keep the first part of a file."""
    return lambda root: _write(root / name, lambda data: data[: int(len(data) * share)])


def empty(name: str) -> Damage:
    return lambda root: _write(root / name, lambda data: b"")


def text(name: str, old: str, new: str) -> Damage:
    """Replace the first match of a pattern in a table."""

    def damage(root: Path) -> None:
        before = (root / name).read_bytes().decode()
        after = re.sub(old, new, before, count=1, flags=re.MULTILINE)
        assert after != before
        (root / name).write_bytes(after.encode())

    return damage


def rows(name: str, change: Callable[[list[str]], list[str]]) -> Damage:
    """Change the list of rows of a table."""
    return lambda root: (root / name).write_text("\n".join(change((root / name).read_text().splitlines())) + "\n")


def encoded(name: str, encoding: str) -> Damage:
    """Write a table, with a letter that is not ASCII, in another encoding."""
    return lambda root: _write(root / name, lambda data: (data.decode().rstrip("\n") + "é\n").encode(encoding))


def noise(name: str) -> Damage:
    """Bytes of no format."""
    return lambda root: _write(root / name, lambda data: bytes(range(256)) * 4)


def remove(name: str) -> Damage:
    return lambda root: (root / name).unlink()


def remove_folder(name: str) -> Damage:
    return lambda root: shutil.rmtree(root / name)


def rename(name: str, other: str) -> Damage:
    return lambda root: (root / name).rename(root / other)


def no_utf8(name: str) -> Damage:
    """Put a byte that is not UTF-8 before the extension of a name."""

    def damage(root: Path) -> None:
        path = root / name
        path.rename(os.fsdecode(os.fsencode(path.with_suffix("")) + b"\xff" + os.fsencode(path.suffix)))

    return damage


def folder_instead(name: str) -> Damage:
    def damage(root: Path) -> None:
        (root / name).unlink()
        (root / name).mkdir()

    return damage


def link_loop(name: str) -> Damage:
    """A link to itself in place of a file or folder."""

    def damage(root: Path) -> None:
        if (root / name).is_dir():
            shutil.rmtree(root / name)
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(root / name)

    return damage


def link(name: str, target: str) -> Damage:
    """A link below the tree, such as one to a folder above it."""
    return lambda root: (root / name).symlink_to(root / target)


def picture(name: str, size: tuple[int, int] = (7, 9), mode: str = "RGB") -> Damage:
    """A sound picture of another size."""
    return lambda root: Image.new(mode, size).save(root / name)


def new_file(name: str, content: bytes = b"mine") -> Damage:
    def damage(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)

    return damage


def nothing(root: Path) -> None:
    """The tree is sound; the root that is given is not."""


def _write(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


# --- cases -------------------------------------------------------------------------------------------------------

C = "CUB_200_2011/"
A = "Animals_with_Attributes2/"
S = "stanford_cars/"
PHOTO = C + "images/002.Bird_1/photo_3.jpg"
CASES = [
    Case("cub", "classes cut in a row", cut(C + "classes.txt", 0.4), "classes.txt"),
    Case("cub", "classes empty", empty(C + "classes.txt"), "classes.txt"),
    Case("cub", "classes in Latin-1", encoded(C + "classes.txt", "latin-1"), "classes.txt"),
    Case("cub", "classes in UTF-16", encoded(C + "classes.txt", "utf-16"), "classes.txt"),
    Case("cub", "a class doubled", rows(C + "classes.txt", lambda r: [*r, r[-1]]), "003.Bird_2"),
    Case("cub", "a class more", rows(C + "classes.txt", lambda r: [*r, "4 004.Bird_3"]), "004.Bird_3"),
    Case("cub", "classes with CRLF", rows(C + "classes.txt", lambda r: [f"{x}\r" for x in r]), None),
    Case("cub", "images cut in a row", cut(C + "images.txt", 0.55), "images.txt"),
    Case("cub", "images in UTF-16", encoded(C + "images.txt", "utf-16"), "images.txt"),
    Case("cub", "an image less", rows(C + "images.txt", lambda r: r[:-1]), "images.txt"),
    Case(
        "cub",
        "an image id doubled",
        rows(C + "images.txt", lambda r: [*r[:-1], "17 " + r[-1].split()[1]]),
        "images.txt",
    ),
    Case("cub", "two images swapped", rows(C + "images.txt", lambda r: [r[1], r[0], *r[2:]]), None),
    Case("cub", "an image path of its own", text(C + "images.txt", r"photo_0", "photo_99"), "photo_99"),
    Case("cub", "images as a folder", folder_instead(C + "images.txt"), "images.txt"),
    Case("cub", "a label of no class", text(C + "image_class_labels.txt", " 3$", " 9"), "image_class_labels.txt"),
    Case("cub", "a label 0", text(C + "image_class_labels.txt", " 1$", " 0"), "image_class_labels.txt"),
    Case("cub", "a label as a word", text(C + "image_class_labels.txt", " 1$", " one"), "image_class_labels.txt"),
    Case("cub", "a label nan", text(C + "image_class_labels.txt", " 1$", " nan"), "image_class_labels.txt"),
    Case("cub", "a label 1.5", text(C + "image_class_labels.txt", " 1$", " 1.5"), "image_class_labels.txt"),
    Case("cub", "labels cut", cut(C + "image_class_labels.txt"), "image_class_labels.txt"),
    Case("cub", "labels missing", remove(C + "image_class_labels.txt"), "image_class_labels.txt"),
    Case("cub", "labels as noise", noise(C + "image_class_labels.txt"), "image_class_labels.txt"),
    Case("cub", "a split flag 2", text(C + "train_test_split.txt", " 1$", " 2"), "train_test_split.txt"),
    Case("cub", "split cut", cut(C + "train_test_split.txt"), "train_test_split.txt"),
    Case("cub", "a box nan", text(C + "bounding_boxes.txt", " 4.5 ", " nan "), "bounding_boxes.txt"),
    Case("cub", "a box of negative width", text(C + "bounding_boxes.txt", " 20.0 ", " -20.0 "), "bounding_boxes.txt"),
    Case("cub", "a box outside", text(C + "bounding_boxes.txt", " 4.5 ", " 4000 "), "photo_0.jpg"),
    Case("cub", "a point outside", text(C + "parts/part_locs.txt", "7.0 1$", "-7.0 1"), "part_locs.txt"),
    Case("cub", "a photo twice", text(C + "images.txt", r"photo_1", "photo_0"), "images.txt"),
    Case("cub", "a column less in boxes", text(C + "bounding_boxes.txt", " 12.5$", ""), "bounding_boxes.txt"),
    Case("cub", "parts missing", remove(C + "parts/parts.txt"), "parts.txt"),
    Case("cub", "part rows cut", cut(C + "parts/part_locs.txt"), "part_locs.txt"),
    Case("cub", "a part row doubled", rows(C + "parts/part_locs.txt", lambda r: [*r, r[7]]), "part_locs.txt"),
    Case("cub", "a part row nan", text(C + "parts/part_locs.txt", "7.0 1$", "nan 1"), "part_locs.txt"),
    Case("cub", "a part seen twice as much", text(C + "parts/part_locs.txt", "7.0 1$", "7.0 2"), "part_locs.txt"),
    Case("cub", "attribute names cut", cut("attributes.txt"), "class_attribute_labels_continuous.txt"),
    Case("cub", "attribute names in Latin-1", encoded("attributes.txt", "latin-1"), "attributes.txt"),
    Case(
        *("cub", "class attributes cut", cut(C + "attributes/class_attribute_labels_continuous.txt", 0.6)),
        "class_attribute_labels_continuous.txt",
    ),
    Case(
        *(
            "cub",
            "a class attribute of 500 %",
            text(C + "attributes/class_attribute_labels_continuous.txt", "50.0", "500"),
        ),
        "class_attribute_labels_continuous.txt",
    ),
    Case(
        *(
            "cub",
            "a class attribute as a word",
            text(C + "attributes/class_attribute_labels_continuous.txt", "50.0", "x"),
        ),
        "class_attribute_labels_continuous.txt",
    ),
    Case(
        *("cub", "image attributes cut", cut(C + "attributes/image_attribute_labels.txt", 0.7)),
        "image_attribute_labels.txt",
    ),
    Case(
        *("cub", "image attributes as words", text(C + "attributes/image_attribute_labels.txt", "^3 .*", "3 x y z")),
        "image_attribute_labels.txt",
    ),
    Case(
        *("cub", "a certainty 9", text(C + "attributes/image_attribute_labels.txt", "^3 1 . .", "3 1 1 9")),
        "image_attribute_labels.txt",
    ),
    Case("cub", "a photo empty", empty(PHOTO), "photo_3.jpg"),
    Case("cub", "a photo cut", cut(PHOTO, 0.7), "photo_3.jpg"),
    Case("cub", "a photo of noise", noise(PHOTO), "photo_3.jpg"),
    Case("cub", "a photo missing", remove(PHOTO), "photo_3.jpg"),
    Case("cub", "a photo as a folder", folder_instead(PHOTO), "photo_3.jpg"),
    Case("cub", "a photo as a link to itself", link_loop(PHOTO), "photo_3.jpg"),
    Case("cub", "a photo of one pixel", picture(PHOTO, (1, 1)), "photo_3"),
    Case("cub", "photos elsewhere", rename(C + "images", C + "photos"), "photo_0.jpg"),
    Case("cub", "a mask missing", remove("segmentations/002.Bird_1/photo_3.png"), "photo_3.png"),
    Case("cub", "a mask of another size", picture("segmentations/002.Bird_1/photo_3.png", mode="L"), "photo_3.png"),
    Case("cub", "a mask cut", cut("segmentations/002.Bird_1/photo_3.png", 0.8), "photo_3.png"),
    Case("cub", "masks as a link to themselves", link_loop("segmentations"), None),
    Case("cub", "no masks", remove_folder("segmentations"), None),
    Case("cub", "the root of the photos", nothing, "one level off", at=C + "images"),
    Case("cub", "no root", nothing, "there is none at", at="elsewhere"),
    Case("cub", "a file as root", nothing, "there is none at", at="attributes.txt"),
    Case("cub", "main folder as a link to itself", link_loop("CUB_200_2011"), "images.txt"),
    Case("nico", "a photo cut", cut("cat/on grass/photo 1.jpg", 0.5), None),
    Case("nico", "a photo empty", empty("cat/on grass/photo 1.jpg"), None),
    Case("nico", "a photo of noise", noise("cat/on grass/photo 1.jpg"), None),
    Case("nico", "a photo as a folder", folder_instead("cat/on grass/photo 1.jpg"), None),
    Case("nico", "a photo as a link to itself", link_loop("cat/on grass/photo 1.jpg"), None),
    Case("nico", "a context as a link to itself", link_loop("cat/on grass"), None),
    Case("nico", "a context as a link to the root", link("cat/all", "."), None),
    Case("nico", "a loose file", new_file("cat/notes.txt"), None),
    Case("nico", "a class without contexts", new_file("fox/photo.jpg"), "fox"),
    Case("nico", "a class of broken photos", new_file("fox/on grass/photo.jpg"), "fox"),
    Case("nico", "no snow", lambda root: [shutil.rmtree(f) for f in root.glob("*/in snow")], "pale"),
    Case("nico", "one class before snow only", rename("cat", "dog/cat"), None),
    Case("nico", "a class as root", nothing, "data.root", at="cat"),
    Case("nico", "a context as root", nothing, "data.root", at="cat/on grass"),
    Case("nico", "a photo as root", nothing, "there is none at", at="cat/on grass/photo 1.jpg"),
    Case("nico", "a name that is no UTF-8", lambda root: os.mkdir(os.fsencode(root / "cat") + b"/\xff"), None),
    Case("nico", "a photo's name is no UTF-8", no_utf8("cat/autumn/photo 0.jpg"), "not UTF-8"),
    Case("awa2", "classes cut", cut(A + "classes.txt", 0.7), "classes.txt"),
    Case("awa2", "classes in Latin-1", encoded(A + "classes.txt", "latin-1"), "classes.txt"),
    Case("awa2", "classes empty", empty(A + "classes.txt"), "classes.txt"),
    Case("awa2", "a class doubled", rows(A + "classes.txt", lambda r: [*r, "     4\tbat"]), "classes.txt"),
    Case("awa2", "two classes swapped", rows(A + "classes.txt", lambda r: [r[1], r[0], *r[2:]]), "classes.txt"),
    Case("awa2", "a predicate less", rows(A + "predicates.txt", lambda r: r[:-1]), "predicate"),
    Case("awa2", "predicates missing", remove(A + "predicates.txt"), "predicates.txt"),
    Case("awa2", "a binary 2", text(A + "predicate-matrix-binary.txt", "1", "2"), "predicate-matrix-binary.txt"),
    Case("awa2", "a binary nan", text(A + "predicate-matrix-binary.txt", "1", "nan"), "predicate-matrix-binary.txt"),
    Case("awa2", "binary cut", cut(A + "predicate-matrix-binary.txt"), "predicate-matrix-binary.txt"),
    Case(
        "awa2", "binary as a folder", folder_instead(A + "predicate-matrix-binary.txt"), "predicate-matrix-binary.txt"
    ),
    Case("awa2", "continuous empty", empty(A + "predicate-matrix-continuous.txt"), "predicate-matrix-continuous.txt"),
    Case(
        *("awa2", "continuous of words", text(A + "predicate-matrix-continuous.txt", "4.*", "many words")),
        "predicate-matrix-continuous.txt",
    ),
    Case(
        "awa2", "continuous as noise", noise(A + "predicate-matrix-continuous.txt"), "predicate-matrix-continuous.txt"
    ),
    Case("awa2", "a class folder less", remove_folder(A + "JPEGImages/bat"), "bat"),
    Case("awa2", "a class folder more", new_file(A + "JPEGImages/fox/fox_1.jpg"), "fox"),
    Case("awa2", "a photo cut", cut(A + "JPEGImages/bat/bat_10002.jpg"), "bat_10002.jpg"),
    Case("awa2", "a photo as a folder", folder_instead(A + "JPEGImages/bat/bat_10002.jpg"), None),
    Case("awa2", "a photo as a link to itself", link_loop(A + "JPEGImages/bat/bat_10002.jpg"), "bat_10002.jpg"),
    Case("awa2", "photos as a link to themselves", link_loop(A + "JPEGImages"), "JPEGImages"),
    Case("awa2", "a link to a folder above", link(A + "JPEGImages/bat/loop", A + "JPEGImages"), "JPEGImages"),
    Case("awa2", "a wrong root", nothing, "data.root", at=A + "JPEGImages"),
    Case("awa2", "a photo's name is no UTF-8", no_utf8(A + "JPEGImages/bat/bat_10002.jpg"), "not UTF-8"),
    Case("cars", "names cut", cut(S + "devkit/cars_meta.mat"), "cars_meta.mat"),
    Case("cars", "names empty", empty(S + "devkit/cars_meta.mat"), "cars_meta.mat"),
    Case("cars", "names as noise", noise(S + "devkit/cars_meta.mat"), "cars_meta.mat"),
    Case("cars", "names as a folder", folder_instead(S + "devkit/cars_meta.mat"), "stanford_cars"),
    Case("cars", "training list cut", cut(S + "devkit/cars_train_annos.mat", 0.8), "cars_train_annos.mat"),
    Case("cars", "training list missing", remove(S + "devkit/cars_train_annos.mat"), "cars_train_annos.mat"),
    Case(
        *("cars", "another table as training list"),
        lambda root: shutil.copy(root / S / "devkit/cars_meta.mat", root / S / "devkit/cars_train_annos.mat"),
        "cars_train_annos.mat",
    ),
    Case("cars", "test list missing", remove(S + "cars_test_annos_withlabels.mat"), "cars_test_annos_withlabels.mat"),
    Case("cars", "test list as noise", noise(S + "cars_test_annos_withlabels.mat"), "cars_test_annos_withlabels.mat"),
    Case("cars", "a photo cut", cut(S + "cars_train/00002.jpg"), "00002.jpg"),
    Case("cars", "a photo missing", remove(S + "cars_test/00002.jpg"), "cars_test/00002.jpg"),
    Case("cars", "a photo smaller than its box", picture(S + "cars_train/00002.jpg", (3, 3)), "00002.jpg"),
    Case("cars", "photos as a link to themselves", link_loop(S + "cars_train"), "cars_train/00001.jpg"),
    Case("cars in one", "table cut", cut("cars_annos.mat", 0.9), "cars_annos.mat"),
    Case("cars in one", "table as text", new_file("cars_annos.mat", b"1 2 3\n"), "cars_annos.mat"),
    Case("cars in one", "photos missing", remove_folder("car_ims"), "000001.jpg"),
    Case("funnybirds", "parts cut", cut("parts.json"), "parts.json"),
    Case("funnybirds", "parts of another type", new_file("parts.json", b"[1, 2]"), "parts.json"),
    Case("funnybirds", "classes in UTF-16", encoded("classes.json", "utf-16"), "classes.json"),
    Case("funnybirds", "classes as null", new_file("classes.json", b"null"), "classes.json"),
    Case("funnybirds", "a variant out of range", text("classes.json", r'"beak": *\d+', '"beak": 77'), "classes.json"),
    Case("funnybirds", "a variant as a word", text("classes.json", r'"beak": *\d+', '"beak": "x"'), "classes.json"),
    Case("funnybirds", "test table empty", empty("dataset_test.json"), "dataset_test.json"),
    Case("funnybirds", "test table as a folder", folder_instead("dataset_test.json"), "dataset_test.json"),
    Case("funnybirds", "test table of numbers", new_file("dataset_test.json", b"[1, 2, 3, 4]"), "dataset_test.json"),
    Case(
        "funnybirds",
        "a class of no bird",
        text("dataset_train.json", r'"class_idx": *\d', '"class_idx": 99'),
        "dataset_train.json",
    ),
    Case("funnybirds", "a key lost", text("dataset_train.json", '"class_idx"', '"class"'), "dataset_train.json"),
    Case("funnybirds", "an image cut", cut("test/1/000001.png"), "000001.png"),
    Case("funnybirds", "an image as a folder", folder_instead("test/1/000001.png"), "000001.png"),
    Case("funnybirds", "an image as a link to itself", link_loop("test/1/000001.png"), "000001.png"),
    Case("funnybirds", "an image renamed", rename("test/1/000001.png", "test/1/1.png"), "test/1"),
    Case("funnybirds", "a part map of another size", picture("test_part_map/1/000001.png"), "000001.png"),
    Case("funnybirds", "a part map of noise", noise("test_part_map/1/000001.png"), "000001.png"),
    Case("funnybirds", "a wrong root", nothing, "data.root", at="test"),
    Case("folders", "table cut", cut("table.csv", 0.6), "table.csv"),
    Case("folders", "table in UTF-16", encoded("table.csv", "utf-16"), "table.csv"),
    Case("folders", "table in Latin-1", encoded("table.csv", "latin-1"), "table.csv"),
    Case("folders", "table with an open quote", text("table.csv", "ant", '"ant'), "table.csv"),
    Case("folders", "table with NUL bytes", text("table.csv", "ant", "a\0nt"), "table.csv"),
    Case("folders", "table as a folder", folder_instead("table.csv"), "table.csv"),
    Case("folders", "a class less in the class file", text("classes.txt", "bee\n", ""), "bee"),
    Case("folders", "class file in Latin-1", encoded("classes.txt", "latin-1"), "classes.txt"),
    Case("folders", "class file empty", empty("classes.txt"), "classes.txt"),
    Case("folders", "a photo cut", cut("photos/train/ant/1.jpg"), "1.jpg"),
    Case("folders", "a photo as a link to itself", link_loop("photos/train/ant/1.jpg"), "1.jpg"),
    Case("folders", "a link to a folder above", link("photos/train/ant/loop", "photos"), "loop"),
    Case("folders", "a class in test only", new_file("photos/test/fox/1.jpg"), "fox"),
    Case("folders", "a photo's name is no UTF-8", no_utf8("photos/train/ant/1.jpg"), "not UTF-8"),
    Case("folders", "photos missing", remove_folder("photos"), "photos"),
    Case("flat", "a photo without a class", rename("ant_1.JPEG", "ant.JPEG"), "ant.JPEG"),
    Case("flat", "a photo empty", empty("ant_1.JPEG"), "ant_1.JPEG"),
    Case("flat", "a photo as a folder", folder_instead("ant_1.JPEG"), None),
    Case("flat", "a photo as a link to itself", link_loop("ant_1.JPEG"), "ant_1.JPEG"),
    Case("flat", "a photo's name is no UTF-8", no_utf8("ant_1.JPEG"), "not UTF-8"),
    Case("flat", "one photo of a class", new_file("fox_1.JPEG"), "fox"),
]
SPLIT_FILES = {
    "cut": (b'{"schema": 1, "dataset": "nico", "te', "split.json"),
    "empty": (b"", "split.json"),
    "a list": (b"[]", "split.json"),
    "null": (b"null", "split.json"),
    "another schema": (b'{"schema": 7, "folds": 0}', "split.json"),
    "UTF-16": ('{"schema": 1}'.encode("utf-16"), "split.json"),
    "noise": (bytes(range(256)), "split.json"),
    "another type": (b'"split"', "split.json"),
    "numbers for lists": (
        b'{"schema": 1, "folds": 0, "dataset": "nico", "scheme": "hsv", "seed": 1, "content_sha256": "", "test": 1, '
        b'"val": [], "rest": [], "exclude": []}',
        "split.json",
    ),
}


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Layout -> a sound tree, written when it is first asked for and then only copied."""
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


def fingerprint(root: Path) -> str:
    """Names, times, contents and link targets of everything below a folder."""
    digest = hashlib.sha256()
    for place, folders, names in os.walk(os.fsencode(root)):
        folders.sort()
        for name in sorted([*names, *folders]):
            path = os.path.join(place, name)
            digest.update(path + str(os.lstat(path).st_mtime_ns).encode())
            if os.path.islink(path):
                digest.update(os.readlink(path))
            elif os.path.isfile(path):
                digest.update(Path(os.fsdecode(path)).read_bytes())
    return digest.hexdigest()


def read_everything(layout: str, root: Path, **options: object) -> None:
    data = LAYOUTS[layout][1](root, image_size=16, **options)
    data.num_classes  # noqa: B018 - the command line asks for it first
    data.prepare_data()
    data.setup()
    for split in SPLITS:
        dataset = data.dataset(split)
        for index in range(len(dataset)):
            dataset[index]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_damage(case, originals, tmp_path):
    root = tmp_path / "root"
    shutil.copytree(originals(case.layout), root, symlinks=True)
    case.damage(root)
    before = fingerprint(root)
    found = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read_everything(case.layout, root / case.at)
        except (ValueError, FileNotFoundError) as error:
            found = error
    assert fingerprint(root) == before
    if case.says is None:
        assert found is None
    else:
        assert found is not None, "the damage went unnoticed"
        assert case.says in str(found)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sound_trees_are_read(layout, originals):
    read_everything(layout, originals(layout))


@pytest.mark.parametrize("damage", SPLIT_FILES)
def test_split_files(damage, originals, tmp_path):
    content, says = SPLIT_FILES[damage]
    path = tmp_path / "split.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(says)):
        read_everything("nico", originals("nico"), split_file=str(path))


def test_there_are_many_cases():
    assert len({case.id for case in CASES}) == len(CASES) >= 60
