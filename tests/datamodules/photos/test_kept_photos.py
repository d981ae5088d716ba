"""Photos that are kept: equal to those of a run without a cache, whoever fills it, and whatever happens to files."""

import os
import pickle
import resource
import shutil

import numpy as np
import PIL.features
import pytest
import torch

from protometry.datamodules import ImageFolder
from protometry.datamodules.check.sample import same_sample
from protometry.datamodules.photos import dataset as dataset_file
from protometry.datamodules.photos.kept_photos import KeptPhotos
from protometry.datamodules.splits import SPLITS
from protometry.datamodules.transforms.crop_and_augment import Photo, PhotoTransform
from tests.datamodules.registry import SETS
from tests.datamodules.toy_photos import Toy, ToyDataset, toy
from tests.photo_trees import make_table, noise_picture


def make_noise(root):
    """The photos of the toy data set, all of other pixels, 8 of them for test."""
    for number in range(16):
        noise_picture(root / f"{('ant', 'bee')[number // 8]}_{number % 8}.png", (40, 30), seed=number)
    return root


def reads(monkeypatch):
    """The files that are decoded from now on."""
    paths, decode = [], dataset_file.decode_image
    monkeypatch.setattr(dataset_file, "decode_image", lambda path, *more: paths.append(path) or decode(path, *more))
    return paths


def pictures(data, split="test"):
    return torch.stack([sample["image"] for sample in map(data.dataset(split).__getitem__, range(8))])


def samples(data):
    indices = [(epoch, position) for epoch in (0, 2) for position in range(6)]
    datasets = [data.dataset(split) for split in SPLITS]
    return [dataset[epoch, i] for dataset in datasets for epoch, i in indices if i < len(dataset)]


def replaced(path, seed):
    """Another photo of the same size in bytes, with the same time of change."""
    before = path.stat()
    noise_picture(path, (40, 30), seed)
    path.write_bytes(path.read_bytes() + b"\0" * (before.st_size - path.stat().st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return path.stat().st_size == before.st_size


def make_equal(root, seed):
    """The photos of the toy data set, of noise, all as large and from the same moment."""
    root.mkdir(exist_ok=True)
    for number in range(16):
        path = root / f"{('ant', 'bee')[number // 8]}_{number % 8}.png"
        noise_picture(path, (40, 30), seed + number)
        path.write_bytes(path.read_bytes().ljust(5000, b"\0"))
        os.utime(path, ns=(10**18, 10**18))


def exchanged(root, new):
    for old, name in (("ant_0.png", "free"), ("ant_2.png", "ant_0.png"), ("free", "ant_2.png")):
        (root / old).rename(root / name)


def linked(root, new, link):
    for path in new.iterdir():
        (root / path.name).unlink()
        link(path, root / path.name)


def in_place(root, new):
    with (root / "ant_0.png").open("r+b") as file:
        file.write((new / "ant_0.png").read_bytes())


WAYS = {  # to other photos under the same names: in place of those of `root`, those of `new`
    "written again": lambda root, new: make_equal(root, 50),
    "written in place": in_place,
    "of another size": lambda root, new: noise_picture(root / "ant_0.png", (30, 40), 50),
    "exchanged": exchanged,
    "folder replaced": lambda root, new: (shutil.rmtree(root), new.rename(root)),
    "folder linked": lambda root, new: (root.rename(root.with_name("before")), root.symlink_to(new)),
    "copied with times": lambda root, new: shutil.copytree(new, root, dirs_exist_ok=True),
    "linked": lambda root, new: linked(root, new, os.symlink),
    "linked hard": lambda root, new: linked(root, new, os.link),
}


def version_of(name):
    return lambda patch: patch.setattr("PIL.features.version", lambda it, v=PIL.features.version: (v(it), it == name))


CODE = {
    **{f"version of {name}": version_of(name) for name in ("pil", "jpg", "webp", "libtiff", "zlib")},
    "build of OpenCV": lambda patch: patch.setattr("cv2.getBuildInformation", lambda: "another"),
    "processor": lambda patch: patch.setattr("cv2.getCPUFeaturesLine", lambda: "NEON"),
    "OpenCV unoptimised": lambda patch: patch.setattr("cv2.useOptimized", lambda: False),
    "truncated photos": lambda patch: patch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True),
    "our code": lambda patch: patch.setattr("inspect.getsource", lambda module: module.__name__),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_other_photo_is_served_stale(tmp_path, way):
    root, new, cache = tmp_path / "root", tmp_path / "new", str(tmp_path / "cache")
    make_equal(root, 0)
    make_equal(new, 100)
    data = toy(root, cache=cache)
    before = pictures(data)
    WAYS[way](root, new)
    after = pictures(toy(root))
    assert not torch.equal(after, before)
    assert torch.equal(pictures(data), after)
    assert torch.equal(pictures(toy(root, cache=cache)), after)


@pytest.mark.parametrize("name", SETS)
def test_samples_of_all_data_sets_are_those_without_a_cache(name, tmp_path, monkeypatch):
    root, decoded = tmp_path / "root", reads(monkeypatch)
    SETS[name].write(root)
    for _ in range(2):  # kept by the first, read by the second
        data = SETS[name].read(root, image_size=(24, 32), seed=3, cache=str(tmp_path / "cache"))
        decoded.clear()
        found = samples(data)
    assert not {file.path for file in data.photos.table.files} & {*decoded}
    assert all(map(same_sample, found, samples(SETS[name].read(root, image_size=(24, 32), seed=3))))


class TestFolder:
    @pytest.mark.parametrize("settings", [
        {"image_size": (16, 12)}, {"geometry": "letterbox"}, {"geometry": "shorter_crop"}, {"variant": "quanproto"},
        {"crop": "box"}, {"augmentation": "none"},
    ])  # fmt: skip
    def test_every_transform_has_photos_of_its_own(self, tmp_path, settings):
        make_table(tmp_path / "root")
        for path in (tmp_path / "root").glob("*/*.jpg"):
            noise_picture(path, (40, 30))
        usual = {"root": str(tmp_path / "root"), "table": str(tmp_path / "root/photos.csv"), "image_size": 16}
        cache = {"cache": str(tmp_path / "cache")}
        for options in (usual, usual | settings):
            for split in ("test", "train"):
                plain, kept = ImageFolder(**options).dataset(split), ImageFolder(**options, **cache).dataset(split)
                assert same_sample(kept[0], plain[0])
        assert len([*(tmp_path / "cache/photos").iterdir()]) == 2 - ("augmentation" in settings)

    def test_photos_as_stored_are_not_those_turned_upright(self, tmp_path):
        stored, upright = (KeptPhotos(tmp_path, PhotoTransform((8, 8)), turned) for turned in (False, True))
        assert stored.folder != upright.folder

    @pytest.mark.parametrize("change", CODE)
    def test_other_code_has_photos_of_its_own(self, tmp_path, monkeypatch, change):
        before = KeptPhotos(tmp_path, PhotoTransform((8, 8)), True)
        CODE[change](monkeypatch)
        assert KeptPhotos(tmp_path, PhotoTransform((8, 8)), True).folder != before.folder

    @pytest.mark.parametrize("part", ["decoded", "transform"])
    def test_photos_that_a_data_set_makes_in_its_own_way_are_not_kept(self, tmp_path, part):
        class Inverted(ToyDataset):
            def decoded(self, row, path, mode="RGB"):
                return 255 - super().decoded(row, path, mode)

        class Grey(PhotoTransform):
            pass

        kind = type(
            "Data", (Toy,), {"kind": Inverted} if part == "decoded" else {"transform": lambda *_: Grey((16, 16))}
        )
        root, cache = make_noise(tmp_path / "root"), str(tmp_path / "cache")
        pictures(toy(root, cache=cache))
        mine, plain = (kind(str(root), image_size=16, cache=place) for place in (cache, None))
        assert torch.equal(pictures(mine), pictures(plain))
        assert mine.photos.kept is None


class TestFiles:
    def test_a_photo_that_is_replaced_is_read_again_and_one_that_is_gone_missed(self, tmp_path, monkeypatch):
        root, cache = make_noise(tmp_path / "root"), str(tmp_path / "cache")
        data = toy(root, cache=cache)
        before, decoded = pictures(data), reads(monkeypatch)
        assert torch.equal(pictures(data), before)
        assert decoded == []
        names = data.dataset("test").sample_ids
        assert replaced(root / names[2], seed=50)
        after = pictures(data)
        assert decoded == [root / names[2]]
        assert torch.equal(after, pictures(toy(root)))
        assert not torch.equal(after, before)
        (root / names[2]).write_bytes(b"no photo")
        with pytest.raises(ValueError, match="cannot be decoded"):
            pictures(data)
        (root / names[2]).unlink()
        with pytest.raises(FileNotFoundError, match=names[2]):
            pictures(data)

    def test_what_a_killed_process_left_half_written_is_not_read(self, tmp_path):
        root, cache = make_noise(tmp_path / "root"), tmp_path / "cache"
        before = pictures(toy(root, cache=str(cache)))
        for path in [*cache.rglob("*.keys"), *cache.rglob("*.rows")]:
            with path.open("ab") as file:
                file.write(b"\1" * 7)
        data = toy(root, cache=str(cache))
        assert len(data.photos.kept) == 8
        assert torch.equal(pictures(data), before)

    def test_a_full_disk_is_warned_of_once_and_costs_time_only(self, tmp_path):
        data = toy(make_noise(tmp_path / "root"), cache=str(tmp_path / "cache"))
        plain, limits = pictures(toy(tmp_path / "root")), resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # a photo has 768 bytes
        try:
            with pytest.warns(UserWarning, match="cannot be kept") as warnings:
                assert torch.equal(pictures(data), plain)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert len(warnings) == 1
        assert torch.equal(pictures(data), plain)
        again = toy(tmp_path / "root", cache=str(tmp_path / "cache"))
        assert len(again.photos.kept) == 2
        assert torch.equal(pictures(again), plain)

    @pytest.mark.parametrize("damage", ["remove", "shorten"])
    def test_a_cache_that_is_damaged_meanwhile_costs_time_only(self, tmp_path, damage):
        root, cache = make_noise(tmp_path / "root"), tmp_path / "cache"
        writer, reader = toy(root, cache=str(cache)), toy(root, cache=str(cache))
        first, plain = writer.dataset("test")[0], pictures(toy(root))
        reader.setup()  # which reads the key, but no pixels yet
        if damage == "remove":
            shutil.rmtree(cache)
            with pytest.warns(UserWarning, match="cannot be kept"):  # not in files that begin again with another photo
                assert torch.equal(pictures(writer), plain)
        else:
            os.truncate(next(cache.rglob("*.rows")), 100)
            with pytest.warns(UserWarning, match="Some photos in .* are damaged: they are made again"):
                assert torch.equal(pictures(reader), plain)
        assert same_sample(reader.dataset("test")[0], first)
        assert torch.equal(pictures(reader), plain)


class TestProcesses:
    def test_runs_at_once_and_their_workers_share_what_they_keep(self, tmp_path, monkeypatch):
        root, options = make_noise(tmp_path / "root"), {"cache": str(tmp_path / "cache"), "batch_size": 2}
        early = toy(root, **options)
        early.setup()  # before the others keep anything
        runs = [toy(root, num_workers=2, **options) for _ in range(2)]
        plain = pictures(toy(root))
        batches = [*zip(*(run.test_dataloader() for run in runs), strict=True)]  # both at once
        for run in zip(*batches, strict=True):
            assert torch.equal(torch.cat([batch["image"] for batch in run]), plain)
        decoded = reads(monkeypatch)
        assert torch.equal(pictures(early), plain)
        assert decoded == []
        assert 2 <= len([*(tmp_path / "cache").rglob("*.keys")]) <= 4  # a worker may find all photos of its batch kept

    def test_a_pickled_copy_takes_no_pixels_along(self, tmp_path):
        data = toy(make_noise(tmp_path / "root"), cache=str(tmp_path / "cache"))
        before, pickled = pictures(data), pickle.dumps(data.dataset("test"))
        assert len(pickled) < 8000  # eight photos have 6,144 bytes
        assert torch.equal(pickle.loads(pickled)[0]["image"], before[0])


@pytest.mark.parametrize(("crop", "blind"), [("none", False), ("none", True), ("box", True)])
def test_a_mark_that_looks_at_pixels_or_brings_the_box_gets_them(tmp_path, crop, blind):
    class Marked(ToyDataset):
        marks_without_pixels = blind

        def mark(self, row, photo):
            return Photo(photo.image, label_map=photo.image[..., 0], box=np.array([3, 4, 20, 25], np.float32))

    kind = type("Data", (Toy,), {"kind": Marked, "crop": crop})
    data = kind(str(make_noise(tmp_path / "root")), image_size=16, cache=str(tmp_path / "cache"))
    first, second = (torch.stack([data.dataset("test")[i]["label_map"] for i in range(4)]) for _ in range(2))
    assert torch.equal(first, second) is (crop == "box" or not blind)
