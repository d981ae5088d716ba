"""What all data sets of photos share, seen through the smallest one that can be written."""

import json

import numpy as np
import pytest
import torch
from lightning import Trainer
from PIL import Image

from datamodules.photos.data_module import AUGMENTED, PhotoDataModule, PhotoTable
from datamodules.photos.download import Archive
from datamodules.photos.files import ImageFile
from tests.photo_trees import fingerprint, photo


class Toy(PhotoDataModule):
    """Files ``<class>_<i>.png``; the official test photos are those with an even number."""

    title, remedy = "Toy", "Draw it again."
    official = True
    boxes = contexts = None

    def table(self):
        from pathlib import Path

        folder = Path(self.root)
        names = sorted(path.name for path in folder.iterdir())
        classes = sorted({name.split("_")[0] for name in names})
        test = np.array([int(name.split("_")[1][:-4]) % 2 == 0 for name in names])
        return PhotoTable(
            dataset="toy",
            folder=folder,
            class_names=classes,
            files=[ImageFile(name, folder / name) for name in names],
            labels=np.array([classes.index(name.split("_")[0]) for name in names]),
            is_test=test if self.official else None,
            boxes=None if self.boxes is None else np.array([self.boxes] * len(names), dtype=np.float64),
            contexts=None if self.contexts is None else np.arange(len(names)) % self.contexts,
        )


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "toy"
    for c, name in enumerate(("ant", "bee")):
        for i in range(8):
            photo(folder / f"{name}_{i}.png", 8 * c + i + 1)
    return folder


def toy(root, **options):
    return Toy(str(root), **{"image_size": 16, **options})


class TestSamples:
    def test_by_hand(self, root):
        data = toy(root, image_size=(60, 80), scheme="official")
        data.boxes, data.contexts = (-3, 6, 23, 99), 3  # exceeds the 40x30 photo on the left and below
        sample = data.dataset("test")[1]  # ant_2, the third file
        assert (sample["sample_id"], int(sample["label"]), int(sample["context"])) == ("ant_2.png", 0, 2)
        assert (sample["image"] == 6 / 255).all()
        assert sample["bounding_box"].tolist() == [0, 12, 47, 59]  # 0..23 x 6..29, doubled
        training = data.dataset("train")[0]
        assert training.keys() == {"image", "label", "sample_id", "sample_key", "context"}
        flags = data.capabilities("train")
        assert (flags.bounding_box, flags.context, flags.object_mask) == (AUGMENTED, True, "no segmentations")
        assert data.capabilities("val").bounding_box is True

    @pytest.mark.parametrize("box", [(40, 0, 50, 9), (0, 30, 9, 35), (-9, 0, -1, 9), (0, -5, 9, -1)])
    def test_box_of_another_photo(self, root, box):
        data = toy(root, scheme="official")
        data.boxes = box
        with pytest.raises(ValueError, match=r"box of .*ant_1\.png to lie on its 40x30 pixels .* but got corners"):
            data.dataset("train")[0]

    def test_box_that_the_frame_does_not_show(self, root):
        def boxed(**options):
            data = toy(root, scheme="official", **options)
            data.boxes = (0, 0, 3, 9)  # the 40x30 photo is cut to columns 12..27
            return data

        data = boxed(geometry="center_crop")
        with pytest.raises(ValueError, match=r"toy/ant_2\.png: Expected the box 0 0 3 9 .* Use `geometry: stretch` or"):
            data.dataset("test")[1]
        assert data.dataset("train")[0]["image"].shape == (3, 16, 16)
        for remedy in ({"geometry": "stretch"}, {"geometry": "center_crop", "crop": "box"}):
            assert boxed(**remedy).dataset("test")[1]["bounding_box"][2] > 0

    def test_crop_without_boxes_stops_before_the_run(self, root):
        with pytest.raises(ValueError, match="`crop` to be 'none' because Toy has no boxes, but got 'box'"):
            toy(root, crop="box").prepare_data()

    def test_mask_is_where_most_annotators_agree(self, root, tmp_path):
        grey = np.zeros((30, 40), np.uint8)
        grey[:, :10], grey[:, 10:20] = 100, 51  # 51 > 100 / 2, so both are object
        grey[:, 20:30] = 50
        Image.fromarray(grey).save(tmp_path / "mask.png")

        class Masked(Toy):
            def table(self):
                table = super().table()
                files = [ImageFile(file.sample_id, file.path, tmp_path / "mask.png") for file in table.files]
                return PhotoTable("toy", table.folder, table.class_names, files, table.labels)

        data = Masked(str(root), image_size=(30, 40))
        mask = data.dataset("test")[0]["object_mask"]
        assert mask[:, :20].all()
        assert not mask[:, 20:].any()
        assert data.capabilities("test").object_mask is True

    def test_hooks_complete_a_sample(self, root):
        class More(Toy):
            def mark(self, row, photo):
                points = np.array([[10 + row, 5]], np.float32)
                return type(photo)(photo.image, points=points, visible=np.array([True]))

            def add_targets(self, batch, rows):
                batch["labels"] = torch.from_numpy(rows % 2 == 0)[:, None]

            def annotate(self, batch, rows):
                batch["concepts"] = torch.tensor([[batch["image"].shape[1:] == (60, 80, 3)]] * len(rows))

        data = More(str(root), image_size=(60, 80), scheme="official")
        training, test = data.dataset("train")[0], data.dataset("test")[1]
        assert training["labels"].tolist() == [False]  # ant_1, the second file
        assert training.keys() == {"image", "label", "sample_id", "sample_key", "labels"}
        assert (test["labels"].tolist(), test["concepts"].tolist()) == ([True], [True])
        assert test["part_points"].tolist() == [[24, 10]]
        assert test["part_visible"].tolist() == [True]

    def test_annotations_of_some_photos_only(self, root):
        class Some(Toy):
            def mark(self, row, photo):
                return type(photo)(photo.image, label_map=photo.image[..., 0] if row % 2 else None)

        dataset = Some(str(root), image_size=(60, 80)).dataset("projection")
        kept = {row: position for position, row in enumerate(dataset.rows)}
        odd, even = (next(kept[row] for row in kept if row % 2 == parity) for parity in (1, 0))
        for first, second in ((odd, even), (even, odd)):
            with pytest.raises(ValueError, match=r"_\d\.png to have the fields of .*_\d\.png, .*, but it has"):
                dataset.batch([first, second])

    @pytest.mark.parametrize("odd", [np.zeros((1, 2), np.float32), np.zeros((2, 2), np.int64)])
    def test_points_of_another_shape_or_type(self, root, odd):
        class Uneven(Toy):
            def mark(self, row, photo):
                return type(photo)(photo.image, points=odd if row % 2 else np.zeros((2, 2), np.float32))

        dataset = Uneven(str(root), image_size=(60, 80)).dataset("projection")
        with pytest.raises(ValueError, match=r"_\d\.png to have the fields of .*_\d\.png, .*'points'.* but it has"):
            dataset.batch(range(len(dataset)))

    @pytest.mark.parametrize("name", ["object_mask", "label_map"])
    def test_map_of_another_size(self, root, name):
        class Large(Toy):
            def mark(self, row, photo):
                return type(photo)(photo.image, **{name: np.zeros((60, 80), bool)})

        with pytest.raises(ValueError, match=r"\.png: Expected the .* as the photo, 40x30 pixels .* got 80x60"):
            Large(str(root)).dataset("test")[0]

    def test_a_data_set_does_not_take_the_trainer_along(self, root):
        data = toy(root)
        data.trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
        assert data.dataset("train").source.trainer is None
        assert data.trainer is not None


class TestArguments:
    @pytest.mark.parametrize("size", [0, -3, (32,), (32, 0), (8, 8, 3), ()])
    def test_image_size(self, root, size):
        with pytest.raises(ValueError, match="`image_size` to be one or two positive numbers of pixels, but got"):
            toy(root, image_size=size)

    def test_seed(self, root):
        with pytest.raises(ValueError, match="`seed` to be at least 0, but got -1"):
            toy(root, seed=-1)


class TestSplits:
    def test_official(self, root):
        data = toy(root, scheme="official", val_fraction=0.5)
        sizes = [len(data.dataset(split)) for split in ("train", "projection", "val", "test")]
        assert sizes == [4, 4, 4, 8]
        assert set(data.split_record()["test"]) == {f"{c}_{i}.png" for c in ("ant", "bee") for i in (0, 2, 4, 6)}
        assert data.class_weights.tolist() == [1, 1]

    def test_official_without_validation(self, root):
        data = toy(root, scheme="official", val_fraction=0)
        assert not data.has_validation
        assert data.val_dataloader() == []
        assert [len(data.dataset(split)) for split in ("train", "val", "test")] == [8, 0, 8]

    def test_without_official_split(self, root):
        data = toy(root, scheme="official")
        data.official = False
        with pytest.raises(ValueError, match="`scheme` to be 'cv70', as Toy has no official split, but got 'official'"):
            data.setup()

    def test_empty_part(self, root):
        data = toy(root, scheme="official")
        odd = [f"{c}_{i}.png" for c in ("ant", "bee") for i in (0, 2, 4, 6)]
        data = toy(root, scheme="official", exclude=odd)
        with pytest.raises(
            ValueError, match="Toy to have images in the test split, but `scheme: official` leaves none"
        ):
            data.dataset("test")

    def test_a_data_set_may_divide_by_a_rule_of_its_own(self, root):
        class Own(Toy):
            def make_splits(self, population, rows):
                assert [self.photos.files[row].sample_id for row in rows] == population.ids
                from datamodules import splits

                return splits.given(population, "own", 0, population.ids[:4], [population.ids[-4:]])

        data = Own(str(root), exclude=["ant_0.png"])
        record = data.split_record()
        assert (record["scheme"], record["exclude"], record["folds"]) == ("own", ["ant_0.png"], 1)
        assert data.dataset("val").sample_ids == [f"bee_{i}.png" for i in (4, 5, 6, 7)]
        assert len(data.dataset("train")) == 16 - 1 - 8

    def test_split_file_beats_scheme(self, root, tmp_path):
        path = tmp_path / "split.json"
        record = toy(root, scheme="official", exclude=["bee_7.png"]).split_record()
        path.write_text(json.dumps(record))
        assert toy(root, split_file=str(path)).split_record() == record

    def test_photo_that_the_split_file_leaves_out_may_be_gone(self, root, tmp_path):
        path = tmp_path / "split.json"
        record = toy(root, scheme="official", exclude=["bee_7.png", "bee_5.png"]).split_record()
        path.write_text(json.dumps(record))
        (root / "bee_7.png").unlink()
        for exclude in ([], ["bee_7.png"]):
            data = toy(root, split_file=str(path), exclude=exclude)
            data.prepare_data()
            assert data.split_record() == record
        assert not {"bee_5.png", "bee_7.png"} & {
            name for part in ("train", "test") for name in data.dataset(part).sample_ids
        }
        (root / "bee_6.png").unlink()
        with pytest.raises(ValueError, match=r"0 ids are new and 1 are gone; the first is 'bee_6\.png'"):
            toy(root, split_file=str(path)).setup()

    def test_split_file_of_other_data_says_so(self, root, tmp_path):
        path = tmp_path / "split.json"
        record = toy(root, scheme="official", exclude=["bee_7.png"]).split_record()
        path.write_text(json.dumps({**record, "dataset": "birds", "exclude": ["1.png"]}))
        with pytest.raises(ValueError, match="`split_file` to be a split of toy, but got one of birds"):
            toy(root, split_file=str(path)).prepare_data()

    @pytest.mark.parametrize("seed", [-1, 2**32])
    def test_seed_out_of_range(self, root, seed):
        with pytest.raises(ValueError, match=rf"`split_seed` to be from 0 to 2\*\*32 - 1, but got {seed}"):
            toy(root, split_seed=seed)

    def test_repeated_ids(self, root):
        class Twice(Toy):
            def table(self):
                table = super().table()
                table.files[1] = table.files[0]
                return table

        with pytest.raises(
            ValueError, match=r"name every photo once, but 1 are named several times; the first is 'ant_0\.png'"
        ):
            Twice(str(root), scheme="official").setup()


class TestPrepare:
    @pytest.mark.parametrize(
        ("content", "words"),
        [(b"", "the file is empty"), (b"hello", "cannot identify"), (None, r"truncated|incomplete|broken|not process")],
    )
    def test_bad_image(self, root, content, words):
        path = root / "bee_3.png"
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8)).save(path)
        path.write_bytes(path.read_bytes()[:4000] if content is None else content)
        before = fingerprint(root)
        with pytest.raises(
            ValueError, match=rf"(?si)Toy in .*1 problem:.*image bee_3\.png: .*({words}).*exclude.*Draw it"
        ):
            toy(root).prepare_data()
        toy(root, exclude=["bee_3.png"]).prepare_data()
        assert fingerprint(root) == before

    def test_missing_image(self, root):
        data = toy(root)
        table = data.table()
        (root / "ant_0.png").unlink()
        data.table = lambda: table
        with pytest.raises(FileNotFoundError, match=r"(?s)image ant_0\.png: there is no file .*Draw it again"):
            data.prepare_data()

    def test_modes_of_images(self, root):
        wide = np.full((30, 40), 40000, np.uint16)
        Image.fromarray(wide).save(root / "ant_0.png")
        Image.new("L", (40, 30), 7).save(root / "ant_1.png")
        Image.new("RGBA", (40, 30), (1, 2, 3, 255)).save(root / "ant_2.png")
        Image.new("LA", (40, 30), (9, 255)).save(root / "ant_3.png")
        data = toy(root, scheme="official", augmentation="none")
        data.prepare_data()
        seen = {
            sample["sample_id"]: (sample["image"][:, 3, 3] * 255).round().int().tolist()
            for split in ("projection", "val", "test")
            for sample in (data.dataset(split)[i] for i in range(len(data.dataset(split))))
        }
        expected = {"ant_0.png": [156] * 3, "ant_1.png": [7] * 3, "ant_2.png": [1, 2, 3], "ant_3.png": [9] * 3}
        assert {name: seen[name] for name in expected} == expected

    def test_too_few_for_folds(self, root):
        for i in range(1, 6):
            (root / f"bee_{i}.png").unlink()
        with pytest.raises(ValueError, match=r"at least 4 samples for the folds, but .*first is 'bee' with 3"):
            toy(root).setup()


class TestDownload:
    def test_without_archive(self, root):
        with pytest.raises(
            ValueError, match=r"`download` to be false because Toy has no public archive.*Draw it again"
        ):
            toy(root, download=True)

    def test_promise_is_kept_or_stops(self, root, tmp_path):
        class Fetched(Toy):
            archives = (Archive("file:///nowhere.zip", None, 1),)

            def promised_classes(self):
                return 3

        data = Fetched(str(tmp_path / "new"), download=True)
        assert data.num_classes == 3
        root.rename(tmp_path / "new")
        with pytest.raises(ValueError, match="to have the 3 classes the model was built for, but it has 2"):
            data.setup()
        assert data.num_classes == 2
