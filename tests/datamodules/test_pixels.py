"""Pixels as files hold them, images as models read them, and what loaders make of both."""

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader

from datamodules import Cub200, ImageDataset, SketchBirds
from datamodules.dataset import ImageLoader, SecondView, Spread, TwoViews
from datamodules.pixels import image_pixels, image_tensor, with_float_images


def pixels(*shape):
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8))


class Floats(ImageDataset):
    """A data set that makes float images itself, 51 and 204 grey."""

    @property
    def sample_ids(self):
        return ["a", "b"]

    def __len__(self):
        return 2

    def __getitem__(self, index):
        position = index[1] if isinstance(index, tuple) else index
        return {"image": torch.full((3, 4, 5), [0.2, 0.8][position]), "sample_key": torch.tensor(position)}


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_an_image_is_its_pixels_divided_by_255(batch):
    given = pixels(*batch, 4, 5, 3)
    image = image_tensor(given)
    assert image.shape == (*batch, 3, 4, 5)
    assert image.dtype == torch.float32
    assert image.is_contiguous()
    wanted = (given.numpy().astype(np.float64) / 255).astype(np.float32)
    assert np.array_equal(image.movedim(-3, -1).numpy(), wanted)


def test_all_levels_come_back():
    levels = torch.arange(256, dtype=torch.uint8)[:, None, None, None].expand(256, 2, 1, 3)
    assert torch.equal(image_pixels(image_tensor(levels)), levels)


def test_float_fields_and_maps_stay():
    sample = {"image": pixels(4, 4, 3), "second_view": torch.rand(3, 4, 4), "label_map": pixels(4, 4)}
    done = with_float_images(sample)
    assert torch.equal(done["image"], image_tensor(sample["image"]))
    assert done["second_view"] is sample["second_view"]
    assert done["label_map"] is sample["label_map"]
    assert sample["image"].dtype == torch.uint8


@pytest.mark.parametrize(("loader", "workers"), [(ImageLoader, 0), (ImageLoader, 1), (DataLoader, 0)])
@pytest.mark.parametrize("view", ["plain", "spread", "second", "two"])
def test_batches_are_the_samples_stacked(loader, workers, view):
    birds = SketchBirds("tiny", train_size=8, image_size=32).dataset("train")
    dataset = {
        "plain": birds,
        "spread": Spread(birds, 5),
        "second": SecondView(birds, "paper", 3),
        "two": TwoViews(birds, 3),
    }[view]
    batches = list(loader(dataset, batch_size=3, num_workers=workers))
    rows = [
        {name: values[row] for name, values in batch.items()} for batch in batches for row in range(len(batch["label"]))
    ]
    assert [row["sample_id"] for row in rows] == dataset.sample_ids
    for index, row in enumerate(rows):
        sample = dataset[index]
        assert row.keys() == sample.keys()
        assert all(
            row[name] == value if name == "sample_id" else torch.equal(row[name], value)
            for name, value in sample.items()
        )
        assert row["image"].dtype == torch.float32


def test_data_sets_of_float_images_need_no_more_than_getitem():
    (batch,) = ImageLoader(Floats(), batch_size=2)
    assert batch["image"].shape == (2, 3, 4, 5)
    (batch,) = ImageLoader(TwoViews(Floats(), 0), batch_size=2)
    assert torch.equal(batch["second_view"][1], TwoViews(Floats(), 0)[1]["second_view"])
    assert torch.equal(Spread(Floats(), 1)[0]["image"], Floats()[0]["image"])


def test_samples_of_an_epoch_through_a_spread(cub_tree):
    train = Cub200(str(cub_tree()), image_size=32).dataset("train")
    few = Spread(train, 3)
    for position, row in enumerate(few.rows):
        assert torch.equal(few[2, position]["image"], train[2, row]["image"])
        assert not torch.equal(few[2, position]["image"], few[1, position]["image"])


def test_a_list_of_samples_is_stacked():
    """Such as torch's own ConcatDataset hands on."""
    (batch,) = ImageLoader(ConcatDataset([Floats(), Floats()]), batch_size=4)
    assert batch["image"][:, 0, 0, 0].tolist() == pytest.approx([0.2, 0.8, 0.2, 0.8])


def test_loaders_never_overlook_a_getitem():
    birds = SketchBirds("tiny", train_size=8, image_size=32).dataset("train")
    with pytest.raises(TypeError, match="Expected Mine to override `batch`"):

        class Mine(type(birds)):
            def __getitem__(self, index):
                return super().__getitem__(index)


def test_a_data_set_without_samples():
    class Empty(ImageDataset):
        sample_ids = ()

        def __len__(self):
            return 1

    with pytest.raises(NotImplementedError, match="Expected Empty to define `batch` or `__getitem__`"):
        Empty()[0]
    with pytest.raises(NotImplementedError, match="Expected Empty to define"):
        list(ImageLoader(Empty()))
