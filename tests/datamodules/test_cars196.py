import json

import numpy as np
import pytest
from scipy.io import savemat

from protometry.datamodules.cars196 import Cars196, read_cars
from tests.photo_trees import CORNERS, make_cars, make_cars_in_one, save_annotations

FIELDS = (*CORNERS, "class", "fname")
NAMES = ("AM General Hummer", "Ram C/V Van")


def cars(root, **options):
    return Cars196(str(root), **{"image_size": (60, 80), **options})


@pytest.fixture
def root(tmp_path):
    return make_cars(tmp_path / "cars")


@pytest.fixture
def folder(root):
    return root / "stanford_cars"


class TestLayouts:
    def test_torchvision(self, root):
        data = cars(root, scheme="official")
        data.prepare_data()
        data.setup()
        assert (data.class_names, data.num_classes) == (list(NAMES), 2)
        ids = data.photos.sample_ids
        assert ids == [f"cars_test/{i:05d}.jpg" for i in range(1, 7)] + [
            f"cars_train/{i:05d}.jpg" for i in range(1, 13)
        ]
        assert (data.photos.table.labels.tolist(), data.dataset("test").sample_ids) == ([0, 1] * 9, ids[:6])
        sample = data.dataset("test")[3]
        assert abs(sample["image"][:, 0, 0] * 255 - 2 * (4 + 12)).max() < 2  # cars_test/00004.jpg is the 16th photo
        assert sample["bounding_box"].tolist() == [8, 12, 47, 35]  # 4..23 x 6..17 of 40x30, doubled
        assert data.capabilities("test").bounding_box is True
        assert data.capabilities("test").missing("object_mask") == "no segmentations"

    def test_one_table(self, tmp_path):
        data = cars(make_cars_in_one(tmp_path / "cars"), scheme="official")
        data.prepare_data()
        assert data.dataset("test").sample_ids == [f"car_ims/{i:06d}.jpg" for i in (3, 6, 9, 12)]
        assert [int(data.dataset("test")[i]["label"]) for i in range(4)] == [0, 1, 0, 1]
        assert data.dataset("test")[0]["bounding_box"].tolist() == [8, 12, 47, 35]

    def test_cv70_takes_both_lists(self, root):
        data = cars(root)
        assert sum(len(data.dataset(split)) for split in ("train", "val", "test")) == 18
        assert {name.split("/")[0] for name in data.split_record()["test"]} == {"cars_train", "cars_test"}

    def test_crop_to_box(self, root):
        sample = cars(root, crop="box").dataset("test")[0]
        assert sample["bounding_box"].tolist() == [0, 0, 79, 59]

    @pytest.mark.parametrize("place", ["", "stanford_cars", "stanford_cars/devkit"])
    def test_levels_of_root(self, root, folder, place):
        assert read_cars(str(root / place)).folder == folder

    def test_tables_beside_the_photos(self, folder):
        for path in (folder / "devkit").iterdir():
            path.rename(folder / path.name)
        (folder / "devkit").rmdir()
        cars(folder).prepare_data()


class TestWithoutTestLabels:
    @pytest.fixture
    def unlabelled(self, root, folder):
        (folder / "cars_test_annos_withlabels.mat").unlink()
        rows = [(5, 7, 24, 18, f"{i + 1:05d}.jpg") for i in range(6)]
        save_annotations(folder / "devkit/cars_test_annos.mat", rows, (*CORNERS, "fname"))
        return root

    def test_cv70_stops(self, unlabelled):
        with pytest.raises(
            FileNotFoundError,
            match=r"to hold cars_test_annos_withlabels\.mat, because `scheme: cv70` needs the classes",
        ):
            cars(unlabelled).prepare_data()

    def test_split_file_stands_in_for_scheme(self, unlabelled, tmp_path):
        record = cars(unlabelled, scheme="official").split_record()
        (tmp_path / "split.json").write_text(json.dumps(record))
        data = cars(unlabelled, split_file=str(tmp_path / "split.json"))
        data.prepare_data()
        assert data.split_record() == record

    def test_official_trains(self, unlabelled):
        data = cars(unlabelled, scheme="official")
        data.prepare_data()
        assert (len(data.dataset("train")), len(data.dataset("val"))) == (10, 2)
        with pytest.raises(FileNotFoundError, match=r"hold cars_test_annos_withlabels\.mat.* evaluate the validation"):
            data.dataset("test")


class TestBadInput:
    @pytest.mark.parametrize("error", [UnboundLocalError, ZeroDivisionError, MemoryError])
    def test_table_that_breaks_its_parser(self, folder, monkeypatch, error):
        """Flipped bytes of uncompressed tables made SciPy 1.17 raise each of these."""

        def broken(path, **options):
            raise error("in the parser")

        monkeypatch.setattr("protometry.datamodules.cars196.loadmat", broken)
        with pytest.raises(ValueError, match=r"cars_meta\.mat: .* cannot be read: in the parser"):
            read_cars(str(folder))

    def test_other_content(self, folder):
        savemat(folder / "devkit/cars_train_annos.mat", {"other": np.zeros(3)})
        with pytest.raises(ValueError, match=r"cars_train_annos\.mat: expected a variable `annotations`"):
            cars(folder).prepare_data()
        save_annotations(folder / "devkit/cars_train_annos.mat", [(1, 2, 3, 4, "a.jpg")], (*CORNERS, "fname"))
        with pytest.raises(ValueError, match=r"fields .*, but \['class'\] are not there"):
            cars(folder).prepare_data()

    def test_class_without_photos_and_photo_twice(self, folder):
        for path in (folder / "devkit/cars_train_annos.mat", folder / "cars_test_annos_withlabels.mat"):
            save_annotations(path, [(5, 7, 24, 18, 1, "00001.jpg")] * 2, FIELDS)
        with pytest.raises(ValueError, match=r"(?s)'Ram C/V Van' has 0 images.*2 photos are listed more than once"):
            cars(folder).prepare_data()

    def test_official_totals(self, tmp_path):
        root = make_cars(tmp_path / "cars", names=tuple(f"car {i}" for i in range(196)), train=1, test=1)
        with pytest.raises(ValueError, match=r"\(train, test\) counts \(8144, 8041\), but got \(196, 196\)"):
            read_cars(str(root))
