"""``python -m datamodules``: what it finds, what it writes, and what it refuses."""

import hashlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from datamodules import Cars196, Cub200, ImageFolder, SketchBirds
from datamodules.__main__ import main
from datamodules.base import ImageDataModule
from datamodules.check.check import check_data
from datamodules.check.report import new_folder, reserved, show_check, write_check
from datamodules.dataset import ImageDataset
from tests.photo_trees import make_cars, make_folders


def cub(root, **options):
    return Cub200(str(root), **{"image_size": 32, **options})


def check_cub(root, *flags):
    return main(["check", "--data", "datamodules.Cub200", "--data.root", str(root), "--data.image_size", "32", *flags])


class TestFindings:
    def test_cub(self, cub_tree):
        data = cub(cub_tree(masks=True))
        found = check_data(data)
        record = found.record()
        assert (record["data"], record["dataset"], record["images"], record["classes"]) == ("Cub200", "cub200", 24, 3)
        assert record["official_images"] == 11788
        assert record["content_sha256"] == data.split_record()["content_sha256"]
        assert {name: split["samples"] for name, split in record["splits"].items()} == {
            **{"train": 12, "projection": 12, "val": 4, "test": 8}
        }
        test = record["splits"]["test"]
        assert test["checked"] == 8
        numbers = sorted(data.split_record()["test"], key=int)
        assert test["ids_sha256"] == hashlib.sha256("\n".join(numbers).encode()).hexdigest()
        assert 2 <= test["per_class"]["min"] <= test["per_class"]["max"] <= 3
        assert record["splits"]["train"]["per_class"] == record["splits"]["projection"]["per_class"]
        assert test["flags"]["object_mask"] is True
        assert test["flags"]["label_map"] == "no part maps"

    def test_sketch_birds_has_no_split_record(self):
        sizes = {"image_size": 32, "train_size": 16, "val_size": 24}
        first, second = (check_data(SketchBirds("tiny", test_size=size, **sizes)).record() for size in (8, 9))
        assert first["split_sha256"] is first["official_images"] is None
        assert len(first["content_sha256"]) == 64
        assert first["splits"]["val"]["per_class"] == {"min": 3, "max": 3}
        assert first["content_sha256"] != second["content_sha256"]

    def test_limit(self):
        record = check_data(SketchBirds("tiny"), limit=5).record()
        assert record["splits"]["test"]["samples"] == 64
        assert record["splits"]["test"]["checked"] == 5
        assert record["content_sha256"] is None

    def test_several_labels(self):
        found = check_data(SketchBirds("tiny", task="attributes"))
        assert found.record()["splits"]["test"]["per_class"] == {"min": 8, "max": 8}
        assert found.sheet_tiles()[0].text.endswith(" labels")

    def test_workers_find_the_same(self, cub_tree):
        root = cub_tree()
        assert check_data(cub(root)).record() == check_data(cub(root, num_workers=1)).record()

    def test_without_validation(self, cub_tree):
        assert set(check_data(cub(cub_tree(), fold=None)).splits) == {"train", "projection", "test"}

    def test_without_test_photos(self, tmp_path):
        root = make_cars(tmp_path / "cars")
        (root / "stanford_cars/cars_test_annos_withlabels.mat").unlink()
        found = check_data(Cars196(str(root), scheme="official", image_size=16))
        assert {split: check.samples for split, check in found.splits.items()} == {
            **{"train": 10, "projection": 10, "val": 2}
        }
        assert "\nbounding_box       projection, val" in show_check(found)

    def test_photos_for_test_only(self, tmp_path):
        data = ImageFolder(str(make_folders(tmp_path / "photos")), scheme="test", image_size=16)
        record = check_data(data).record()
        assert list(record["splits"]) == ["test"]
        assert record["splits"]["test"]["per_class"] == {"min": 8, "max": 8}

    def test_table(self, cub_tree):
        text = show_check(check_data(cub(cub_tree())))
        assert text.startswith("Cub200: 24 images (of 11788 in the official data set), 3 classes\n")
        assert "\nobject_mask        -                             no segmentations/ under root\n" in text
        assert "\npart_points        projection, val, test         training images are augmented" in text

    def test_known_hashes(self, shared_data):
        splits = check_data(cub(shared_data("cub"), verify="none"), limit=6).record()["splits"]
        assert splits["test"]["ids_sha256"].startswith("d985e5ecc228faf3")
        assert splits["val"]["ids_sha256"].startswith("45f77abce92cd4d4")


class Changed(ImageDataset):
    """A data set whose sample 2 is changed, or an error."""

    def __init__(self, dataset, change):
        self.dataset, self.change, self.times = dataset, change, 0

    @property
    def sample_ids(self):
        return self.dataset.sample_ids

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        self.times += 1
        sample = self.dataset[index]
        return self.change(sample, self.times) if index in (0, 2) else sample


def broken(monkeypatch, change):
    """SketchBirds whose test samples 0 and 2 are changed."""
    birds = SketchBirds("tiny")
    dataset = birds.dataset
    monkeypatch.setattr(birds, "dataset", lambda s: Changed(dataset(s), change) if s == "test" else dataset(s))
    return birds


def fail(sample, times):
    raise ValueError(f"Expected {sample['sample_id']}.png to be an image")


class TestWrongData:
    def test_all_problems_are_counted(self, monkeypatch):
        birds = broken(monkeypatch, lambda sample, times: {**sample, "image": sample["image"] + 2})
        with pytest.raises(ValueError, match=r"got 2 problems:\n  test, sample 'test/00000': `image` is not in 0..1"):
            check_data(birds)

    def test_errors_of_files_are_collected(self, monkeypatch):
        with pytest.raises(ValueError, match=r"got 2 problems:\n  test: sample 'test/00000': Expected test/00000\.png"):
            check_data(broken(monkeypatch, fail))

    def test_a_sample_that_changes(self, monkeypatch):
        birds = broken(monkeypatch, lambda sample, times: {**sample, "image": torch.full((3, 64, 64), 1 / (1 + times))})
        with pytest.raises(ValueError, match=r"test, sample 'test/00000': asked for twice, it differs"):
            check_data(birds)

    def test_equal_ids(self, monkeypatch):
        birds = SketchBirds("tiny")
        monkeypatch.setattr(type(birds.dataset("val")), "sample_ids", ["one"] * 64)
        with pytest.raises(ValueError, match="val: 64 samples have 1 different ids"):
            check_data(birds, limit=2)


class TestFolder:
    def test_numbers(self, cub_tree, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        data = cub(cub_tree())
        assert new_folder(None, data) == Path("runs/check/cub200/1")
        (tmp_path / "runs/check/cub200/9").mkdir(parents=True)
        (tmp_path / "runs/check/cub200/notes").mkdir()
        assert new_folder(None, data) == Path("runs/check/cub200/10")

    def test_two_checks_at_once_take_two_numbers(self, cub_tree, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        data = cub(cub_tree())
        check = check_data(data, limit=1)
        paths = [new_folder(None, data) for _ in range(2)]  # both look before one is made
        with reserved(paths[0], numbered=True) as first, reserved(paths[1], numbered=True) as second:
            write_check(check, first)
            write_check(check, second)
        assert [str(folder) for folder in (first, second)] == ["runs/check/cub200/1", "runs/check/cub200/2"]
        assert all((folder / "contact_sheet.png").is_file() for folder in (first, second))

    def test_a_named_folder_is_not_written_twice(self, tmp_path):
        check = check_data(SketchBirds("tiny"), limit=1)
        for _ in range(2):
            with reserved(tmp_path / "out", numbered=False) as folder:
                assert folder == tmp_path / "out"
        assert not (tmp_path / "out").exists()  # nothing was written
        (tmp_path / "out").mkdir()  # empty: welcome, and left
        with reserved(tmp_path / "out", numbered=False):
            pass
        write_check(check, tmp_path / "out")
        with pytest.raises(FileExistsError, match=r"check\.json"):
            write_check(check, tmp_path / "out")

    def test_content_is_kept(self, cub_tree, tmp_path):
        (tmp_path / "mine").write_text("mine")
        for out in (tmp_path, tmp_path / "mine"):
            with pytest.raises(ValueError, match="`out` to be a folder that is missing or empty"):
                new_folder(str(out), cub(cub_tree(str(out.name) + "data") / "CUB_200_2011"))

    @pytest.mark.parametrize("below", ["", "new", "CUB_200_2011/deep/new"])
    def test_not_below_the_data(self, cub_tree, below):
        root = cub_tree()
        with pytest.raises(ValueError, match="`out` to lie outside the data"):
            new_folder(str(root / below), cub(root))

    def test_default_below_the_data(self, cub_tree, monkeypatch):
        root = cub_tree()
        monkeypatch.chdir(root)
        with pytest.raises(ValueError, match="`out` to lie outside the data"):
            new_folder(None, cub("."))


class TestCommand:
    def test_check(self, cub_tree, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        root = cub_tree()
        assert check_cub(root) == check_cub(root) == 0
        folder = tmp_path / "runs/check/cub200"
        assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]
        assert json.loads((folder / "1/check.json").read_text())["splits"]["test"]["checked"] == 8
        with Image.open(folder / "1/contact_sheet.png") as sheet:
            assert sheet.width > 800
        assert "Cub200: 24 images" in capsys.readouterr().out

    def test_wrong_data(self, cub_tree, tmp_path, capsys):
        root = cub_tree()
        path = root / "CUB_200_2011/images/002.Bird_1/photo_3.jpg"
        path.write_bytes(path.read_bytes()[:200])
        assert check_cub(root, "--out", str(tmp_path / "out")) == 1
        error = capsys.readouterr().err
        assert "photo_3.jpg" in error
        assert "Traceback" not in error
        assert not (tmp_path / "out").exists()

    def test_folder_that_cannot_be_made_stops_before_the_work(self, cub_tree, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("datamodules.__main__.check_data", lambda *_: pytest.fail("the work has begun"))
        (tmp_path / "runs").touch()
        assert check_cub(cub_tree()) == 1
        assert "runs" in capsys.readouterr().err

    def test_config_file(self, cub_tree, tmp_path):
        (tmp_path / "data.yaml").write_text(
            f"data:\n  class_path: datamodules.Cub200\n  init_args:\n    root: {cub_tree()}\n    image_size: 32\n"
        )
        out = tmp_path / "out"
        assert main(["check", "--config", str(tmp_path / "data.yaml"), "--limit", "3", "--out", str(out)]) == 0
        assert json.loads((out / "check.json").read_text())["splits"]["test"]["checked"] == 3

    def test_export_then_check(self, tmp_path, capsys):
        flags = [
            "--preset",
            "tiny",
            "--num_birds",
            "6",
            "--train_size",
            "48",
            "--image_size",
            "32",
            "--part_removal",
            "0",
        ]
        assert main(["export", "--layout", "nico", *flags, "--out", str(tmp_path / "nico")]) == 0
        assert f"check --data Nico --data.root {tmp_path / 'nico'}\n" in capsys.readouterr().out
        kinds = {path.name for path in (tmp_path / "nico").glob("*/*")}
        assert kinds == {"on grass", "in snow", "at water", "autumn"}
        flags = ["--data.root", str(tmp_path / "nico"), "--data.image_size", "32", "--out", str(tmp_path / "out")]
        assert main(["check", "--data", "Nico", *flags]) == 0
        assert json.loads((tmp_path / "out/check.json").read_text())["images"] == 176

    def test_export_with_contexts(self, tmp_path):
        flags = ["--preset", "tiny", "--image_size", "32", "--contexts", "2", "--context_correlation", "1"]
        assert main(["export", "--layout", "nico", *flags, "--out", str(tmp_path / "nico")]) == 0
        train = {path.parts[-3:-1] for path in (tmp_path / "nico").rglob("train_*.jpg")}
        assert train == {(f"bird {i}", ("on grass", "in snow")[i % 2]) for i in range(8)}

    def test_every_option_of_the_birds_has_a_flag(self, capsys):
        with pytest.raises(SystemExit):
            main(["export", "--help"])
        flags = set(re.findall(r"--(\w+)", capsys.readouterr().out))
        assert flags >= set(inspect.signature(SketchBirds).parameters) - {
            "task",
            *ImageDataModule.__init__.__annotations__,
        }
        assert {"layout", "out", "image_size", "contexts"} <= flags

    def test_export_refuses_content(self, tmp_path, capsys):
        (tmp_path / "mine").write_text("mine")
        assert main(["export", "--layout", "cub", "--preset", "tiny", "--out", str(tmp_path)]) == 1
        assert "has content" in capsys.readouterr().err

    @pytest.mark.parametrize("flags", [[], ["check"], ["export", "--layout", "coco", "--out", "x"], ["tidy"]])
    def test_wrong_command_lines(self, flags, capsys):
        with pytest.raises(SystemExit):
            main(flags)
        assert "error" in capsys.readouterr().err

    @pytest.mark.slow
    def test_as_a_process(self, tmp_path):
        command = [sys.executable, "-m", "datamodules", "check", "--data", "Cub200", "--data.root", str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
        assert done.returncode == 1
        assert "to hold CUB_200_2011/images.txt" in done.stderr
        assert "Traceback" not in done.stderr
