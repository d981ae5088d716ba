"""NICO: folders read as they are, the split by colour, what is left alone."""

import os
import warnings
from pathlib import PurePath

import pytest
from PIL import Image

from protometry.datamodules import Nico, NicoDataset
from protometry.datamodules.nico import files as nico_files
from protometry.datamodules.splits import SPLITS
from tests.nico_tree import CLASSES, make_nico
from tests.photo_trees import cut, fingerprint


@pytest.fixture
def root(tmp_path):
    return make_nico(tmp_path / "Animal")


def module(root, **options):
    return Nico(str(root), **{"image_size": 32, "batch_size": 4, **options})


def groups(root, **options):
    """Group of every photo by its path."""
    photos = NicoDataset(str(root), **options)
    return dict(zip(photos.sample_ids, photos.table.groups, strict=True))


def samples(data, split):
    dataset = data.dataset(split)
    return [dataset[i] for i in range(len(dataset))]


class TestReading:
    def test_sample(self, root):
        data = module(root)
        assert data.class_names == ["cat", "dog", "polar bear"]
        assert data.tables.context_names == ["at sea", "autumn", "in snow", "on grass"]
        for split in SPLITS:
            for sample in samples(data, split):
                kind, context, _ = sample["sample_id"].split("/")
                assert data.class_names[sample["label"]] == kind
                assert data.tables.context_names[sample["context"]] == context

    def test_contexts_of_one_class_only(self, root):
        make_nico(root, classes=["horse"], contexts=["on grass"])
        Image.new("RGB", (40, 30), (40, 150, 40)).save(root / "cat/on grass/another.PNG")
        (root / "cat/a context of cats").mkdir()
        Image.new("RGB", (40, 30), (40, 150, 40)).save(root / "cat/a context of cats/x.jpeg")
        data = module(root)
        assert data.tables.context_names == ["a context of cats", "at sea", "autumn", "in snow", "on grass"]
        assert data.num_classes == 4

    def test_the_order_is_that_of_the_paths(self, root):
        names = NicoDataset(str(root)).sample_ids
        assert (names, len(names), names[0]) == (sorted(names), 72, "cat/at sea/photo 0.jpg")

    def test_the_order_of_classes_is_that_of_their_names_on_every_platform(self, root, monkeypatch):
        (root / "cat").rename(root / "Zebra")
        monkeypatch.setattr(PurePath, "__lt__", lambda a, b: str(a).lower() < str(b).lower())  # as on Windows
        assert module(root).class_names[0] == "Zebra"

    def test_animals_and_vehicles(self, root):
        make_nico(root.parent / "Vehicle", classes=["car", "bus"])
        with pytest.raises(ValueError, match=r"one set of classes, but .* holds Animal, Vehicle. Choose one"):
            module(root.parent).setup()

    def test_hidden_files_do_not_count(self, root):
        (root / ".DS_Store").write_bytes(b"x")
        (root / "cat/on grass/.photo 0.jpg").write_bytes(b"x")
        (root / ".cache").mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(NicoDataset(str(root))) == 72

    def test_other_files_are_listed_and_left_alone(self, root):
        for name in ("cat/on grass/notes.txt", "dog/at sea/movie.gif", "dog/loose.jpg"):
            (root / name).write_bytes(b"mine")
        (root / "cat/on grass/folder.jpg").mkdir()
        before = fingerprint(root)
        listed = (
            "4 files are not jpg, jpeg or png in a context folder and are left alone: cat/on grass/folder.jpg, cat/on"
        )
        with pytest.warns(UserWarning, match=listed):
            module(root).prepare_data()
        assert fingerprint(root) == before

    def test_broken_photos_are_listed_and_left_alone(self, root):
        cut(root / "cat/on grass/photo 1.jpg")
        (root / "dog/at sea/photo 2.jpg").write_bytes(b"")
        before = fingerprint(root)
        data = module(root)
        listed = "2 files do not decode and are left alone: cat/on grass/photo 1.jpg, dog/at sea/photo 2.jpg"
        with pytest.warns(UserWarning, match=listed):
            data.prepare_data()
        with pytest.warns(UserWarning, match=listed):
            data.setup()
        assert (sum(len(data.dataset(split)) for split in ("train", "val", "test")), fingerprint(root)) == (70, before)

    def test_upper_case_grey_and_palette(self, root):
        folder = root / "cat/on grass"
        Image.new("L", (40, 30), 200).save(folder / "grey.JPG")
        Image.new("RGB", (40, 30), (40, 150, 40)).convert("P").save(folder / "palette.png")
        Image.new("CMYK", (40, 30), (200, 0, 200, 0)).save(folder / "print.jpg")
        Image.new("RGBA", (40, 30), (40, 150, 40, 255)).save(folder / "clear.png")
        added = {f"cat/on grass/{name}" for name in ("grey.JPG", "palette.png", "print.jpg", "clear.png")}
        ours, theirs = groups(root), groups(root, variant="quanproto")
        assert added <= set(ours)
        assert set(ours) - set(theirs) == {"cat/on grass/grey.JPG", "cat/on grass/print.jpg"}
        assert [ours[f"cat/on grass/{name}"] for name in ("grey.JPG", "palette.png")] == ["pale", "foliage"]
        assert set(module(root, variant="quanproto").photos.sample_ids) == set(theirs)


class TestErrors:
    def test_other_content(self, tmp_path):
        (tmp_path / "notes.txt").write_bytes(b"x")
        with pytest.raises(FileNotFoundError, match=r"hold <class>/<context>/<image>, but .* holds notes\.txt\. Get"):
            module(tmp_path).prepare_data()

    def test_class_without_photos(self, root):
        (root / "fox/on grass").mkdir(parents=True)
        (root / "owl").mkdir()
        with pytest.raises(ValueError, match=r"2 problems:\n  class 'fox' has 0 photos .*\n  class 'owl' has 0 photos"):
            module(root).prepare_data()

    def test_class_without_sound_photos(self, root):
        (root / "fox/on grass").mkdir(parents=True)
        (root / "fox/on grass/photo.jpg").write_bytes(b"")
        with (
            pytest.warns(UserWarning, match="1 files do not decode"),
            pytest.raises(ValueError, match="class 'fox' has 0 photos that can be used"),
        ):
            module(root).prepare_data()

    def test_nothing_pale(self, tmp_path):
        with pytest.raises(ValueError, match=r"`scheme` to be 'cv70' because no photo has a pale .*'foliage': 18"):
            module(make_nico(tmp_path / "a", contexts=["on grass", "at sea"])).setup()

    def test_pale_only(self, tmp_path):
        root = make_nico(tmp_path / "a")
        make_nico(root, classes=["seal"], contexts=["in snow"])
        with pytest.raises(ValueError, match=r"is not pale.*'seal' with 0\. Add images, or leave the class out\.$"):
            module(root).setup()
        module(root, scheme="cv70").setup()


class TestSplit:
    def test_pale_photos_are_the_test_set(self, root):
        record = module(root).split_record()
        assert record["scheme"] == "hsv"
        assert record["test"] == [f"{kind}/in snow/photo {i}.jpg" for kind in sorted(CLASSES) for i in range(6)]
        assert record["rest"] == []

    def test_groups(self, root):
        meant = {"on grass": "foliage", "in snow": "pale", "at sea": "sky_water", "autumn": "rest"}
        assert all(group == meant[name.split("/")[1]] for name, group in groups(root).items())

    def test_one_pale_photo_elsewhere(self, root):
        Image.new("RGB", (40, 30), (200, 200, 200)).save(root / "cat/autumn/fog.jpg")
        assert "cat/autumn/fog.jpg" in module(root).split_record()["test"]

    def test_folds_by_definition(self, root):
        from sklearn.model_selection import StratifiedKFold

        data = module(root)
        ids = [name for name, group in sorted(groups(root).items()) if group != "pale"]
        labels = [name.split("/")[0] for name in ids]
        folds = StratifiedKFold(4, shuffle=True, random_state=42).split(ids, labels)
        assert data.split_record()["val"] == [[ids[i] for i in part] for _, part in folds]

    def test_cv70(self, root):
        record = module(root, scheme="cv70").split_record()
        assert record["scheme"] == "cv70"
        assert len(record["test"]) == 22  # 30 % of 72


class TestLooks:
    def test_photos_are_looked_at_once(self, root, monkeypatch, private_cache):
        data = module(root)
        data.prepare_data()
        assert len(list((private_cache / "nico").iterdir())) == 1
        monkeypatch.setattr(nico_files, "decode_image", lambda path: pytest.fail("decoded again"))
        data.setup()
        assert len(groups(root)) == 72

    def test_a_broken_cache_file_is_made_again(self, root, private_cache):
        first = groups(root)
        (cached,) = (private_cache / "nico").iterdir()
        whole = cached.read_bytes()
        cached.write_bytes(whole[:50])
        assert (groups(root), cached.read_bytes()) == (first, whole)

    @pytest.mark.parametrize("size", [40, 41])
    def test_another_photo_is_looked_at_whatever_its_size_and_time(self, root, size):
        path = root / "cat/autumn/photo 0.jpg"
        before, first = path.stat(), groups(root)
        Image.new("RGB", (size, 30), (255, 255, 255)).save(path)
        os.utime(path, ns=(before.st_mtime_ns, before.st_mtime_ns))
        assert groups(root)["cat/autumn/photo 0.jpg"] != first["cat/autumn/photo 0.jpg"]

    def test_workers_see_the_same(self, root, private_cache, monkeypatch):
        plain = groups(root)
        monkeypatch.setenv("PROTOMETRY_CACHE", str(private_cache / "other"))
        assert groups(root, num_workers=1) == plain
