"""Samples of photos: tables, boxes, masks and hooks by hand, and what training leaves out."""

import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules.check.sample import same_sample
from protometry.datamodules.photos.dataset import AUGMENTED
from protometry.datamodules.photos.verify import ImageFile
from protometry.datamodules.transforms.crop_and_augment import PhotoTransform
from tests.datamodules.toy_photos import ToyDataset, make_toy
from tests.photo_trees import noise_picture, turned


@pytest.fixture
def root(tmp_path):
    return make_toy(tmp_path / "toy")


def boxes(*corners):
    return np.array([corners] * 16, dtype=np.float64)


class TestSamples:
    def test_by_hand(self, root):
        # the box exceeds the 40x30 photo on the left and below; the frame is twice as large
        photos = ToyDataset(root, boxes=boxes(-3, 6, 23, 99), contexts=np.arange(16) % 3)
        sample = photos[2]
        assert (sample["sample_id"], int(sample["label"]), int(sample["context"])) == ("ant_2.png", 0, 2)
        assert (sample["image"] == 6 / 255).all()
        assert sample["bounding_box"].tolist() == [0, 12, 47, 59]  # 0..23 x 6..29, doubled
        assert sample.keys() == {"image", "label", "sample_id", "sample_key", "context", "bounding_box"}
        flags = photos.capabilities()
        assert (flags.bounding_box, flags.context, flags.object_mask) == (True, True, "no segmentations")
        flags = photos.capabilities("train")
        assert (flags.bounding_box, flags.context, flags.object_mask) == (AUGMENTED, True, "no segmentations")

    def test_points_by_hand(self, root):
        points, visible = np.zeros((16, 2, 2), np.float32), np.zeros((16, 2), bool)
        points[5], visible[5, 1] = [[3, 4], [7.5, 9]], True
        photos = ToyDataset(root, points=points, visible=visible)
        assert photos[5]["part_points"].tolist() == [[0, 0], [15, 18]]
        assert photos[5]["part_visible"].tolist() == [False, True]
        assert photos.capabilities().part_points is True

    def test_annotated_pixels_are_read_as_they_are_stored(self, root):
        """A point at the white corner of a photo whose EXIF tag would turn it; without points it is turned."""
        pixels = np.zeros((30, 40, 3), np.uint8)
        pixels[:15, :20] = 255
        turned(root / "ant_0.png", pixels)
        points = np.full((16, 1, 2), 5, np.float32)
        assert ToyDataset(root, points=points)[0]["image"][:, 5, 5].tolist() == [1, 1, 1]
        assert ToyDataset(root)[0]["image"][:, 5, 5].tolist() == [0, 0, 0]

    @pytest.mark.parametrize("box", [(40, 0, 50, 9), (0, 30, 9, 35), (-9, 0, -1, 9), (0, -5, 9, -1)])
    def test_box_of_another_photo(self, root, box):
        photos = ToyDataset(root, boxes=boxes(*box))
        with pytest.raises(ValueError, match=r"box of .*ant_1\.png to lie on its 40x30 pixels .* but got corners"):
            photos[1]

    def test_box_that_the_frame_does_not_show(self, root):
        def seen(training=False, **options):  # the 40x30 photo is cut to columns 12..27
            transform = PhotoTransform((16, 16), **options)
            photos = ToyDataset(root, transform, boxes=boxes(0, 0, 3, 9))
            return (photos.training_part(range(16), transform, 0) if training else photos)[2]

        with pytest.raises(ValueError, match=r"toy/ant_2\.png: Expected the box 0 0 3 9 .* Use `geometry: stretch` or"):
            seen(geometry="center_crop")
        assert seen(training=True, geometry="center_crop")["image"].shape == (3, 16, 16)
        for remedy in ({"geometry": "stretch"}, {"geometry": "center_crop", "crop": "box"}):
            assert seen(**remedy)["bounding_box"][2] > 0

    def test_mask_is_where_most_annotators_agree(self, root, tmp_path):
        grey = np.zeros((30, 40), np.uint8)
        grey[:, :10], grey[:, 10:20] = 100, 51  # 51 > 100 / 2, so both are object
        grey[:, 20:30] = 50
        Image.fromarray(grey).save(tmp_path / "mask.png")
        files = [ImageFile(path.name, path, tmp_path / "mask.png") for path in sorted(root.iterdir())]
        photos = ToyDataset(root, PhotoTransform((30, 40)), files=files)
        mask = photos[3]["object_mask"]
        assert mask[:, :20].all()
        assert not mask[:, 20:].any()
        assert photos.capabilities().object_mask is True

    def test_a_photo_that_breaks_later_stops_the_run(self, root):
        photos = ToyDataset(root)
        (root / "ant_3.png").write_bytes(b"")
        with pytest.raises(ValueError, match=r"ant_3\.png to be an image, but .* the file is empty"):
            photos.batch([2, 3])


class TestParts:
    def test_a_part_has_the_same_samples_and_the_whole_stays(self, root):
        photos = ToyDataset(root)
        part = photos.part([12, 3])
        assert part.sample_ids == ["bee_4.png", "ant_3.png"]
        assert same_sample(part[0], photos[12])
        assert same_sample(part.part([3])[0], photos[3])
        assert len(photos) == 16

    def test_training_samples_are_augmented_by_seed_epoch_and_id(self, root):
        transform = PhotoTransform((16, 16), augmentation="photometric")
        for name in ("ant_4.png", "ant_5.png"):
            noise_picture(root / name, (40, 30))

        def image(seed=1, epoch=0, rows=(4, 5), position=1):
            return ToyDataset(root).training_part(rows, transform, seed)[epoch, position]["image"]

        assert torch.equal(image(), image(rows=(9, 7, 5), position=2))  # the id counts, not the position
        assert torch.equal(image(), ToyDataset(root).training_part((4, 5), transform, 1)[1]["image"])
        others = [image(), image(seed=2), image(epoch=1), image(position=0)]
        assert len({other.numpy().tobytes() for other in others}) == 4

    def test_training_samples_carry_no_annotations(self, root):
        photos = ToyDataset(root, boxes=boxes(4, 6, 23, 17), contexts=np.zeros(16, dtype=np.int64))
        part = photos.training_part([3], PhotoTransform((16, 16)), 0)
        assert part[0].keys() == {"image", "label", "sample_id", "sample_key", "context"}
        assert not photos.training

    def test_evaluation_does_not_depend_on_the_epoch(self, root):
        assert same_sample(ToyDataset(root)[7, 3], ToyDataset(root)[3])


class TestHooks:
    def test_hooks_complete_a_sample(self, root):
        class More(ToyDataset):
            def mark(self, row, photo):
                points = np.array([[10 + row, 5]], np.float32)
                return type(photo)(photo.image, points=points, visible=np.array([True]))

            def add_targets(self, batch, rows):
                batch["labels"] = torch.from_numpy(rows % 2 == 0)[:, None]

            def annotate(self, batch, rows):
                batch["concepts"] = torch.tensor([[batch["image"].shape[1:] == (60, 80, 3)]] * len(rows))

        photos = More(root)
        training, sample = photos.training_part([1], photos.transform, 0)[0], photos[2]
        assert training["labels"].tolist() == [False]
        assert training.keys() == {"image", "label", "sample_id", "sample_key", "labels"}
        assert (sample["labels"].tolist(), sample["concepts"].tolist()) == ([True], [True])
        assert (sample["part_points"].tolist(), sample["part_visible"].tolist()) == ([[24, 10]], [True])

    @pytest.mark.parametrize("order", [(1, 0), (0, 1)])
    @pytest.mark.parametrize("fields", [
        {"label_map": np.zeros((30, 40), np.uint8)},
        {"points": np.zeros((1, 2), np.float32), "visible": np.ones(1, bool)},
        {"points": np.zeros((2, 2), np.int64), "visible": np.ones(2, bool)},
    ])  # fmt: skip
    def test_photos_with_other_fields_shapes_or_types_do_not_mix(self, root, order, fields):
        usual = {} if "label_map" in fields else {"points": np.zeros((2, 2), np.float32), "visible": np.ones(2, bool)}

        class Uneven(ToyDataset):
            def mark(self, row, photo):
                return type(photo)(photo.image, **(fields if row % 2 else usual))

        with pytest.raises(ValueError, match=r"_\d\.png to have the fields of .*_\d\.png, .*, but it has .*`visible`"):
            Uneven(root).batch(order)

    @pytest.mark.parametrize("name", ["object_mask", "label_map"])
    def test_map_of_another_size(self, root, name):
        class Large(ToyDataset):
            def mark(self, row, photo):
                return type(photo)(photo.image, **{name: np.zeros((60, 80), bool)})

        with pytest.raises(ValueError, match=r"\.png: Expected the .* as the photo, 40x30 pixels .* got 80x60"):
            Large(root)[0]
