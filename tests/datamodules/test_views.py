"""Views of data sets: some samples, two colour augmentations, a second view; and that loaders make them when asked."""

import numpy as np
import pytest
import torch

from protometry.datamodules import Cub200, SketchBirds
from protometry.datamodules.check.sample import same_sample
from protometry.datamodules.dataset import image_tensor
from protometry.datamodules.plot import image_pixels
from protometry.datamodules.sample import sample_key
from protometry.datamodules.splits import SPLITS
from protometry.datamodules.transforms.continuity import continuity_view
from protometry.datamodules.transforms.crop_and_augment import geometric_part
from protometry.datamodules.transforms.training_views import _colour_augmentation, training_views
from protometry.datamodules.views import SecondView, Stratified, TwoViews, stratified_rows


def picture(seed=0, side=16):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8))


def sketch_birds(cub_tree, **options):
    return SketchBirds("tiny", train_size=8, test_size=8, batch_size=3, image_size=32, **options)


def cub(cub_tree, **options):
    return Cub200(str(cub_tree()), image_size=32, batch_size=3, **options)


class TestTrainingViews:
    def test_steps_and_parameters(self):
        jitter, posterize, blur = _colour_augmentation().transforms
        colours = jitter.get_transform_init_args()
        assert [colours[name] for name in ("brightness", "contrast", "saturation")] == [(0.75, 1.25)] * 3
        assert colours["hue"] == (-0.05, 0.05)
        assert posterize.get_transform_init_args()["num_bits"] == (2, 8)
        assert blur.get_transform_init_args()["blur_limit"] == (3, 3)
        assert [step.p for step in (jitter, posterize, blur)] == [1.0, 1.0, 0.5]
        assert _colour_augmentation().strict

    def test_dtype_and_input_unchanged(self):
        image = picture()
        kept = image.clone()
        for view in training_views(image, 3, 0, 0):
            assert (view.shape, view.dtype, view.is_contiguous()) == (image.shape, torch.uint8, True)
            assert (view != image).any()
        assert torch.equal(image, kept)

    def test_pure_function_of_seed_epoch_key_and_view(self):
        image = picture()
        arguments = [(5, 0, 0), (6, 0, 0), (5, 1, 0), (5, 0, 1)]
        views = [view.numpy().tobytes() for given in arguments for view in training_views(image, *given)]
        assert len(set(views)) == 8
        np.random.seed(3)
        again = [view.numpy().tobytes() for given in arguments[::-1] for view in training_views(image, *given)]
        assert again == [views[i] for i in (6, 7, 4, 5, 2, 3, 0, 1)]

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
        assert 75 <= sum(bool(view[5, 11, 0] > view[5, 5, 0]) for view in views) <= 125


def keys_of(names):
    return np.array([sample_key(name) for name in names])


class TestStratified:
    @pytest.mark.parametrize("limit", [1, 7, 20, 50, 70, 99])
    def test_every_class_before_any_twice_then_its_share(self, limit):
        """Cyclic classes as well as sorted ones, of 2 to 10 images; 60 in all."""
        names = [f"{label}-{n}" for label, count in enumerate([2, 10] * 5) for n in range(count)]
        labels = np.array([int(name[0]) for name in names])
        few = [names[row] for row in stratified_rows(labels, keys_of(names), limit)]
        counts = np.bincount([int(name[0]) for name in few], minlength=10)
        assert counts.sum() == min(limit, 60)
        assert counts.max() == 1 if limit <= 10 else counts.min() >= 1
        if limit == 20:  # beyond the first, a class of ten gives two and one of two nothing
            assert counts.tolist() == [1, 3] * 5
        other = np.random.default_rng(0).permutation(60)
        shuffled = [names[row] for row in other]
        assert set(few) == {shuffled[row] for row in stratified_rows(labels[other], keys_of(shuffled), limit)}
        assert set(few) <= {names[row] for row in stratified_rows(labels, keys_of(names), limit + 1)}

    def test_samples_are_in_the_order_of_the_data(self):
        train = sketch_birds(None).dataset("train")  # class-cyclic
        few = Stratified(train, train.labels.max() + 1)
        assert sorted(few.labels) == list(range(train.labels.max() + 1))
        assert few.sample_ids == [train.sample_ids[row] for row in sorted(few.rows)]

    def test_none_at_all_is_refused(self):
        with pytest.raises(ValueError, match="`limit` to be at least 1 image, but got 0"):
            Stratified(sketch_birds(None).dataset("train"), 0)

    def test_samples_are_those_of_the_epoch(self, cub_tree):
        train = cub(cub_tree).dataset("train")
        few = Stratified(train, 3)
        for position, row in enumerate(few.rows):
            assert torch.equal(few[2, position]["image"], train[2, row]["image"])
        assert not all(torch.equal(few[2, index]["image"], few[1, index]["image"]) for index in range(3))


def loaded(data, epoch=0):
    """Image and second view of every training sample, by its key."""
    data._epoch = lambda: epoch
    batches = list(data.train_dataloader())
    keys, *views = (torch.cat([batch[name] for batch in batches]) for name in ("sample_key", "image", "second_view"))
    return {key: torch.stack(pair) for key, *pair in zip(keys.tolist(), *views, strict=True)}


@pytest.mark.parametrize("make", [sketch_birds, cub])
class TestLoaders:
    def test_training_views_for_training_only_and_only_if_asked(self, make, cub_tree):
        data = make(cub_tree)
        assert "second_view" not in next(iter(data.train_dataloader()))
        data.configure_loaders(two_views=True)
        result = {split for split in SPLITS if "second_view" in next(iter(data._loader(split)))}
        assert result == {"train"}

    def test_training_views_of_one_geometry(self, make, cub_tree):
        """What the data set itself shows without photometry, seen twice; ``image`` is a view too."""
        data = make(cub_tree, seed=4)
        data.configure_loaders(two_views=True)
        dataset, rows = data.dataset("train"), loaded(data, epoch=2)
        assert len(rows) == len(dataset)
        for index in range(len(dataset)):
            sample = dataset[2, index]
            key = int(sample["sample_key"])
            wanted = training_views(image_pixels(sample["image"]), key, 4, 2)
            assert torch.equal(rows[key], image_tensor(torch.stack(wanted)))

    def test_epochs_differ_and_workers_do_not_matter(self, make, cub_tree):
        data = make(cub_tree)
        data.configure_loaders(two_views=True)
        first, second = loaded(data), loaded(data, epoch=1)
        data.num_workers, data.batch_size = 2, 4
        again = loaded(data)
        assert first.keys() == second.keys() == again.keys()
        assert all(torch.equal(views, again[key]) for key, views in first.items())
        assert any((views[0] != second[key][0]).any() for key, views in first.items())

    def test_second_view_of_evaluated_splits_only(self, make, cub_tree):
        data = make(cub_tree)
        plain = {split: next(iter(data._loader(split))) for split in SPLITS}
        data.configure_loaders(continuity="paper", continuity_seed=4)
        for split, expected in plain.items():
            batch = next(iter(data._loader(split)))
            view = batch.pop("second_view", None)
            assert (view is not None) == (split in ("val", "test"))
            assert same_sample(batch, expected)
            if view is not None:
                pairs = zip(batch["image"], batch["sample_key"].tolist(), strict=True)
                assert torch.equal(view, torch.stack([continuity_view(*pair, seed=4) for pair in pairs]))

    def test_second_views_depend_on_neither_workers_nor_batches(self, make, cub_tree):
        data = make(cub_tree)
        data.configure_loaders(continuity="quanproto")
        alone = torch.cat([batch["second_view"] for batch in data.test_dataloader()])
        assert len(alone) == len(data.dataset("test"))
        data.num_workers, data.eval_batch_size = 2, 8
        assert torch.equal(torch.cat([batch["second_view"] for batch in data.test_dataloader()]), alone)
        data.configure_loaders(limit=2)
        (batch,) = data.test_dataloader()
        chosen = [data.dataset("test").sample_ids.index(name) for name in batch["sample_id"]]
        assert torch.equal(batch["second_view"], alone[chosen])

    @pytest.mark.parametrize("view", [TwoViews, lambda dataset, seed: SecondView(dataset, "identity", seed)])
    def test_a_view_is_its_data_set_with_a_field_more(self, make, cub_tree, view):
        inner = make(cub_tree).dataset("train")
        seen = view(inner, 0)
        assert (len(seen), seen.sample_ids) == (len(inner), inner.sample_ids)
        assert same_sample(seen[1], seen[0, 1])
        assert seen[1].keys() == inner[1].keys() | {"second_view"}
        if isinstance(seen, SecondView):
            assert torch.equal(seen[1]["second_view"], inner[1]["image"])


@pytest.mark.parametrize(("augmentation", "shared"), [
    ("none", "none"), ("geometric", "geometric"), ("photometric", "none"), ("geometric_photometric", "geometric"),
])  # fmt: skip
def test_photometry_gives_way_to_that_of_the_views(augmentation, shared, cub_tree):
    root = str(cub_tree())
    data, plain = (Cub200(root, image_size=32, augmentation=kind) for kind in (augmentation, shared))
    assert geometric_part(augmentation) == shared
    data.configure_loaders(two_views=True)
    for index in range(3):
        assert torch.equal(data.dataset("train")[1, index]["image"], plain.dataset("train")[1, index]["image"])
