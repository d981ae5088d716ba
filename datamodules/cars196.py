"""Stanford Cars (Krause et al. 2013): 196 car models with bounding boxes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from protometry.datamodules import splits
from protometry.datamodules.arguments import check_choice
from protometry.datamodules.photos.data_module import PhotoDataModule
from protometry.datamodules.photos.dataset import PhotoDataset, PhotoTable
from protometry.datamodules.photos.files import locate, on_disk
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile, Mark
from protometry.datamodules.transforms.crop_and_augment import Crop, PhotoTransform

FOLDER = "stanford_cars"
META, TRAIN, TEST = "cars_meta.mat", "cars_train_annos.mat", "cars_test_annos_withlabels.mat"
ALL_IN_ONE, IMAGES = "cars_annos.mat", "car_ims"
OFFICIAL_CLASSES, OFFICIAL_TRAIN, OFFICIAL_TEST = 196, 8144, 8041
REMEDY = (
    "The authors' server is gone. Put a copy in the layout of torchvision, `root` or `root/stanford_cars` with "
    f"devkit/{META}, devkit/{TRAIN}, cars_train/, cars_test/ and {TEST} (8,144 + 8,041 photos, 1.9 GB), or the one of "
    f"{ALL_IN_ONE} with {IMAGES}/."
)
CORNERS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


@dataclass(frozen=True, kw_only=True)
class CarTable(PhotoTable):
    """What the tables say about the photos; some class names hold a slash.

    Args:
        rows: table and row that name each photo.
    """

    rows: list[str]


class Cars196Dataset(PhotoDataset):
    """The photos of Stanford Cars with their boxes, as an evaluation sees them.

    Args:
        root: the folder ``stanford_cars`` or the one that holds it; only read.
        transform: what makes the model's frame; by default, photos are resized to 224 x 224 pixels.

    Raises:
        FileNotFoundError: if the folder or a table is missing.
        ValueError: if a table is malformed or two tables disagree.
    """

    table: CarTable

    def __init__(self, root: str, transform: PhotoTransform | None = None) -> None:
        super().__init__(read_cars(root), transform or PhotoTransform())

    def files_to_verify(self, problems: Problems) -> list[ImageFile]:
        """The photos with their boxes, which must not lie outside."""
        assert self.table.boxes is not None
        return [
            replace(self.table.files[row], marks=(Mark.box(f"{self.table.rows[row]}: the box", self.table.boxes[row]),))
            for row in self.rows.tolist()
        ]


class Cars196(PhotoDataModule):
    """Stanford Cars.

    A sample id is the path of the photo, such as ``cars_train/00001.jpg``. The devkit's own list of test photos has no
    classes: without ``cars_test_annos_withlabels.mat`` only ``scheme: official`` works, and only for training.

    Args:
        root: the folder ``stanford_cars`` or the one that holds it, in the layout of torchvision (``devkit/``,
            ``cars_train/``, ``cars_test/``) or with ``cars_annos.mat`` and ``car_ims/``; only read.
        scheme: ``cv70`` (70/30, four folds; Schlinge et al. 2025) or the ``official`` train and test lists, with a
            fifth of each class's training photos as the validation part of fold 0.
        crop: ``box`` cuts photos to the bounding box.
        photos: the other arguments of :class:`.PhotoDataModule`.

    Raises:
        ValueError: if an argument is out of range.
    """

    title = "Stanford Cars"
    remedy = REMEDY
    official_images = OFFICIAL_TRAIN + OFFICIAL_TEST

    def __init__(self, root: str, scheme: splits.Scheme = "cv70", crop: Crop = "none", **photos: Any) -> None:
        check_choice("scheme", scheme, ("cv70", "official"))
        self.scheme, self.crop = scheme, crop
        super().__init__(root, **photos)

    def photo_dataset(self) -> Cars196Dataset:
        """Read the tables of whichever layout is there."""
        cars = Cars196Dataset(self.root, self.transform())
        has_test = cars.table.is_test is not None and bool(cars.table.is_test.any())
        if self.scheme == "cv70" and not self.split_file and not has_test:
            raise FileNotFoundError(
                f"Expected {cars.table.folder} to hold {TEST}, because `scheme: cv70` needs the classes of the test "
                f"photos, which it names, but it does not. {REMEDY}"
            )
        return cars

    def dataset(self, split: splits.Split) -> PhotoDataset:
        """The samples of one split; "projection" is the training images through the evaluation transform."""
        self.setup()
        if split == "test" and not self._parts["test"]:
            raise FileNotFoundError(
                f"Expected {self.photos.table.folder} to hold {TEST}, with the classes of the test photos, but it does "
                "not. Add it, or evaluate the validation split."
            )
        return super().dataset(split)


def read_cars(root: str) -> CarTable:
    """Read and compare the tables; without the classes of the test photos, there are the training photos alone.

    Raises:
        FileNotFoundError: if the folder or a table is missing.
        ValueError: if a table is malformed or two tables disagree; all findings are in one message.
    """
    folder = locate(root, FOLDER, (f"devkit/{META}", META, ALL_IN_ONE), REMEDY)
    folder = folder.parent if folder.name == "devkit" else folder
    problems = Problems(f"Stanford Cars in {folder}", REMEDY)
    if (folder / ALL_IN_ONE).is_file():
        names = _load(folder / ALL_IN_ONE, "class_names", problems)
        lists = [_rows(folder / ALL_IN_ONE, "", None, problems)]
    else:
        devkit = folder / "devkit" if (folder / "devkit").is_dir() else folder
        names = _load(devkit / META, "class_names", problems)
        lists = [_rows(devkit / TRAIN, "cars_train/", False, problems)]
        with_labels = [place / TEST for place in (folder, devkit) if (place / TEST).is_file()]
        lists += [_rows(path, "cars_test/", True, problems) for path in with_labels[:1]]
    problems.raise_any()
    numbers = np.concatenate([rows.numbers for rows in lists])
    paths = [path for rows in lists for path in rows.paths]
    places = [place for rows in lists for place in rows.places]
    is_test = np.concatenate([rows.is_test for rows in lists])
    order = sorted(range(len(paths)), key=lambda row: paths[row])
    table = CarTable(
        dataset="cars196",
        folder=folder,
        class_names=[str(name) for name in names],
        files=[
            ImageFile(paths[row], on_disk(folder, paths[row]), sources=(f"{places[row]} names it", "")) for row in order
        ],
        labels=numbers[order, 4].astype(np.int64) - 1,
        boxes=numbers[order, :4] - 1,
        is_test=is_test[order],
        rows=[places[row] for row in order],
    )
    _check(table, problems)
    problems.raise_any()
    return table


@dataclass(frozen=True)
class _Rows:
    """Paths, numbers (four corners and the class, from 1), the official split and the places of rows in one table."""

    paths: list[str]
    numbers: NDArray[np.float64]
    is_test: NDArray[np.bool_]
    places: list[str]


def _rows(path: Path, prefix: str, is_test: bool | None, problems: Problems) -> _Rows:
    annotations = _load(path, "annotations", problems)
    name, flag = ("relative_im_path", ["test"]) if is_test is None else ("fname", [])
    wanted = [name, *CORNERS, "class", *flag]
    fields = annotations.dtype.names or ()
    lacking = [field for field in wanted if field not in fields]
    if lacking:
        if path.is_file():
            problems.wrong(f"{path.name}: expected annotations with the fields {wanted}, but {lacking} are not there")
        return _Rows([], np.zeros((0, 5)), np.zeros(0, dtype=np.bool_), [])
    paths = [f"{prefix}{text}" for text in annotations[name]]
    places = [f"{path.name}, row {row + 1}" for row in range(len(paths))]
    columns = [_whole_numbers(annotations, field, places, problems) for field in (*CORNERS, "class", *flag)]
    flags = columns[5] != 0 if is_test is None else np.full(len(paths), is_test)
    return _Rows(paths, np.stack(columns[:5], axis=1), flags, places)


def _whole_numbers(annotations: NDArray[Any], field: str, places: list[str], problems: Problems) -> NDArray[np.float64]:
    """One field of all rows; zeros after noting the first cell that is not a whole number."""
    numbers = np.array([_number(cell) for cell in annotations[field]])
    broken = np.flatnonzero(~np.isfinite(numbers) | (numbers != np.floor(numbers)))
    if len(broken):
        cell = annotations[field][broken[0]]
        problems.wrong(f"{places[broken[0]]}: expected `{field}` to be a whole number, but got {cell!r}")
        return np.zeros(len(numbers))
    return numbers


def _number(cell: Any) -> float:
    """The number in a cell, or nan if it is text or holds none or several."""
    try:
        return float(cell)
    except (TypeError, ValueError):
        return float("nan")


def _load(path: Path, key: str, problems: Problems) -> NDArray[Any]:
    """One variable of a .mat file, as an array with one axis."""
    nothing = np.zeros(0)
    if not path.is_file():
        problems.missing(f"{path.name} is missing; it is part of the devkit")
        return nothing
    try:
        return np.atleast_1d(loadmat(path, squeeze_me=True, variable_names=[key])[key])
    except KeyError:
        problems.wrong(f"{path.name}: expected a variable `{key}`, but there is none")
    except Exception as error:  # a damaged file leads SciPy's parser into errors of every kind, MemoryError among them
        problems.wrong(f"{path.name}: expected a table of MATLAB, but it cannot be read: {error}")
    return nothing


def _check(table: CarTable, problems: Problems) -> None:
    """Classes must exist and have photos, boxes must not be empty, and the full set must have the official totals."""
    assert table.boxes is not None
    assert table.is_test is not None
    count, boxes, paths = len(table.class_names), table.boxes, [file.sample_id for file in table.files]
    outside = np.flatnonzero((table.labels < 0) | (table.labels >= count))
    if len(outside):
        row = outside[0]
        problems.wrong(
            f"{table.rows[row]}, {paths[row]}: expected a class 1..{count} as named, but got {table.labels[row] + 1}"
        )
        return
    for empty in np.flatnonzero(np.bincount(table.labels, minlength=count) == 0):
        problems.wrong(f"class {table.class_names[empty]!r} has 0 images")
    for row in np.flatnonzero((boxes[:, :2] > boxes[:, 2:]).any(axis=1) | (boxes < 0).any(axis=1)):
        problems.wrong(
            f"{table.rows[row]}, {paths[row]}: expected corners x1 <= x2 and y1 <= y2 from 1 on, but got an empty box"
        )
    twice = len(paths) - len(set(paths))
    if twice:
        problems.wrong(f"{twice} photos are listed more than once")
    totals = (int((~table.is_test).sum()), int(table.is_test.sum()))
    allowed = ((OFFICIAL_TRAIN, OFFICIAL_TEST), (OFFICIAL_TRAIN, 0))
    if count == OFFICIAL_CLASSES and totals not in allowed:
        problems.wrong(f"expected (train, test) counts {allowed[0]}, but got {totals}")
