import warnings

import albumentations as A
import numpy as np
import pytest
import torch

from datamodules import Cub200, SketchBirds
from datamodules.dataset import TwoViews
from datamodules.pixels import image_pixels, image_tensor
from datamodules.training_views import photometry_steps, training_views
from datamodules.transforms.photo import geometric_part


def picture(seed=0, side=16):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8))


class TestViews:
    def test_steps_and_parameters(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            jitter, posterize, blur = photometry_steps()
            A.Compose(photometry_steps(), strict=True)
        colours = jitter.get_transform_init_args()
        assert [colours[name] for name in ("brightness", "contrast", "saturation")] == [(0.75, 1.25)] * 3
        assert colours["hue"] == (-0.05, 0.05)
        assert posterize.get_transform_init_args()["num_bits"] == (2, 8)
        assert blur.get_transform_init_args()["blur_limit"] == (3, 3)
        assert [step.p for step in (jitter, posterize, blur)] == [1.0, 1.0, 0.5]

    def test_dtype_and_input_unchanged(self):
        image = picture()
        kept = image.clone()
        for view in training_views(image, 3, 0, 0):
            assert view.shape == image.shape
            assert view.dtype == torch.uint8
            assert view.is_contiguous()
            assert (view != image).any()
        assert torch.equal(image, kept)

    def test_pure_function_of_seed_epoch_key_and_view(self):
        image = picture()
        arguments = [(5, 0, 0), (6, 0, 0), (5, 1, 0), (5, 0, 1)]
        views = [view for key, seed, epoch in arguments for view in training_views(image, key, seed, epoch)]
        assert len({view.numpy().tobytes() for view in views}) == 8
        np.random.seed(3)
        again = [view for key, seed, epoch in reversed(arguments) for view in training_views(image, key, seed, epoch)]
        assert {view.numpy().tobytes() for view in again} == {view.numpy().tobytes() for view in views}
        assert torch.equal(again[-2], views[0])
        assert torch.equal(again[-1], views[1])

    def test_nothing_moves(self):
        """A white square on black stays where it is, but for the pixel along its edge that the blur mixes."""
        image = torch.zeros(24, 24, 3, dtype=torch.uint8)
        image[8:16, 4:18] = 255
        inside, outside = torch.zeros(24, 24, dtype=torch.bool), torch.ones(24, 24, dtype=torch.bool)
        inside[9:15, 5:17] = True
        outside[7:17, 3:19] = False
        for key in range(20):
            for view in training_views(image, key, 0, 0):
                assert view[inside].min() > 127.5 > view[outside].max()

    def test_half_of_the_views_are_blurred(self):
        image = torch.zeros(24, 24, 3, dtype=torch.uint8)
        image[:, 12:] = 255
        views = [view for key in range(100) for view in training_views(image, key, 0, 0)]
        blurred = sum(bool(view[5, 11, 0] > view[5, 5, 0]) for view in views)
        assert 75 <= blurred <= 125


def sketch_birds(cub_tree, **options):
    return SketchBirds("tiny", train_size=8, batch_size=3, image_size=32, **options)


def cub(cub_tree, **options):
    return Cub200(str(cub_tree()), image_size=32, batch_size=3, **options)


def loaded(data, epoch=None):
    """Image and second view of every training sample, by its key."""
    if epoch is not None:
        data._epoch = lambda: epoch
    rows = {}
    for batch in data.train_dataloader():
        for key, *views in zip(batch["sample_key"].tolist(), batch["image"], batch["second_view"], strict=True):
            rows[key] = views
    return rows


@pytest.mark.parametrize("make", [sketch_birds, cub])
class TestLoaders:
    def test_training_samples_only_and_only_if_asked(self, make, cub_tree):
        data = make(cub_tree)
        assert "second_view" not in next(iter(data.train_dataloader()))
        data.configure_loaders(two_views=True)
        assert "second_view" in next(iter(data.train_dataloader()))
        for split in ("projection", "val", "test"):
            assert "second_view" not in next(iter(data._loader(split)))

    def test_views_of_one_geometry(self, make, cub_tree):
        """What the data set itself shows without photometry, seen twice; ``image`` is a view too."""
        data = make(cub_tree, seed=4)
        data.configure_loaders(two_views=True)
        dataset = data.dataset("train")
        rows = loaded(data, epoch=2)
        assert len(rows) == len(dataset)
        for index in range(len(dataset)):
            sample = dataset[2, index]
            key = int(sample["sample_key"])
            wanted = training_views(image_pixels(sample["image"]), key, 4, 2)
            for view, pixels in zip(rows[key], wanted, strict=True):
                assert torch.equal(view, image_tensor(pixels))

    def test_epochs_differ_and_workers_do_not_matter(self, make, cub_tree):
        data = make(cub_tree)
        data.configure_loaders(two_views=True)
        first, second = loaded(data, epoch=0), loaded(data, epoch=1)
        data.num_workers, data.batch_size = 2, 4
        again = loaded(data, epoch=0)
        assert first.keys() == second.keys() == again.keys()
        for key, views in first.items():
            assert torch.equal(torch.stack(views), torch.stack(again[key]))
        assert any((views[0] != second[key][0]).any() for key, views in first.items())

    def test_wrapper(self, make, cub_tree):
        inner = make(cub_tree).dataset("train")
        wrapped = TwoViews(inner, seed=0)
        assert len(wrapped) == len(inner)
        assert wrapped.sample_ids == inner.sample_ids
        assert torch.equal(wrapped[1]["second_view"], wrapped[0, 1]["second_view"])
        assert wrapped[1].keys() == inner[1].keys() | {"second_view"}


@pytest.mark.parametrize(
    ("augmentation", "shared"),
    [("none", "none"), ("geometric", "geometric"), ("photometric", "none"), ("geometric_photometric", "geometric")],
)
def test_photometry_gives_way_to_that_of_the_views(augmentation, shared, cub_tree):
    root = str(cub_tree())
    data, plain = (Cub200(root, image_size=32, augmentation=kind) for kind in (augmentation, shared))
    assert geometric_part(augmentation) == shared
    data.configure_loaders(two_views=True)
    for index in range(3):
        assert torch.equal(data.dataset("train")[1, index]["image"], plain.dataset("train")[1, index]["image"])
