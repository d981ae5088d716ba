"""Pixels as files hold them, images as models read them, what loaders make of both, and in which order."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities.data import _update_dataloader
from torch.utils.data import ConcatDataset, DataLoader, RandomSampler

from protometry.datamodules import Cub200Dataset, ImageDataset, SketchBirds
from protometry.datamodules.check.sample import same_sample
from protometry.datamodules.dataset import EpochSampler, ExactSampler, ImageLoader, image_tensor, with_float_images
from protometry.datamodules.plot import image_pixels
from protometry.datamodules.views import SecondView, Stratified, TwoViews


def pixels(*shape):
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8))


def small_birds():
    return SketchBirds("tiny", train_size=8, val_size=6, test_size=6, image_size=32, batch_size=3)


class Floats(ImageDataset):
    """A data set that makes float images itself, 51 and 204 grey."""

    @property
    def sample_ids(self):
        return ["a", "b"]

    def __len__(self):
        return 2

    def __getitem__(self, index):
        position = index[1] if isinstance(index, tuple) else index
        image = torch.full((3, 4, 5), [0.2, 0.8][position])
        return {"image": image, "label": position, "sample_key": torch.tensor(position)}


class TestPixels:
    @pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
    def test_an_image_is_its_pixels_divided_by_255(self, batch):
        given = pixels(*batch, 4, 5, 3)
        image = image_tensor(given)
        assert image.shape == (*batch, 3, 4, 5)
        assert image.dtype == torch.float32
        assert image.is_contiguous()
        wanted = (given.numpy().astype(np.float64) / 255).astype(np.float32)
        assert np.array_equal(image.movedim(-3, -1).numpy(), wanted)

    def test_all_levels_come_back(self):
        levels = torch.arange(256, dtype=torch.uint8)[:, None, None, None].expand(256, 2, 1, 3)
        assert torch.equal(image_pixels(image_tensor(levels)), levels)

    def test_float_fields_and_maps_stay(self):
        sample = {"image": pixels(4, 4, 3), "second_view": torch.rand(3, 4, 4), "label_map": pixels(4, 4)}
        done = with_float_images(sample)
        assert torch.equal(done["image"], image_tensor(sample["image"]))
        assert done["second_view"] is sample["second_view"]
        assert done["label_map"] is sample["label_map"]
        assert sample["image"].dtype == torch.uint8


class TestLoader:
    @pytest.mark.parametrize(("loader", "workers"), [(ImageLoader, 0), (ImageLoader, 1), (DataLoader, 0)])
    @pytest.mark.parametrize("view", ["plain", "spread", "second", "two"])
    def test_batches_are_the_samples_stacked(self, loader, workers, view):
        birds = small_birds().dataset("train")
        views = {"plain": birds, "spread": Stratified(birds, 5)}
        views |= {"second": SecondView(birds, "paper", 3), "two": TwoViews(birds, 3)}
        dataset = views[view]
        batches = list(loader(dataset, batch_size=3, num_workers=workers))
        assert [name for batch in batches for name in batch["sample_id"]] == dataset.sample_ids
        rows = (
            {name: values[row] for name, values in batch.items()}
            for batch in batches
            for row in range(len(batch["label"]))
        )
        for index, row in enumerate(rows):
            assert same_sample(row, dataset[index])
            assert {row[field].dtype for field in ("image", "second_view") if field in row} == {torch.float32}

    def test_data_sets_of_float_images_need_no_more_than_getitem(self):
        (batch,) = ImageLoader(Floats(), batch_size=2)
        assert batch["image"].shape == (2, 3, 4, 5)
        (batch,) = ImageLoader(TwoViews(Floats(), 0), batch_size=2)
        assert torch.equal(batch["second_view"][1], TwoViews(Floats(), 0)[1]["second_view"])
        assert Stratified(Floats(), 9).labels.tolist() == [0, 1]

    def test_a_trainer_gets_float_images_on_its_device(self):
        birds = small_birds()
        strategy = SimpleNamespace(root_device=torch.device("meta"))
        birds.trainer = SimpleNamespace(global_rank=0, world_size=1, strategy=strategy)
        loader = birds._loader("val")
        for batch in (next(iter(loader)), next(iter(_update_dataloader(loader, RandomSampler(loader.dataset))))):
            assert (batch["image"].device, batch["image"].dtype) == (strategy.root_device, torch.float32)
            assert batch["label"].device == torch.device("cpu")

    def test_a_loader_of_torch_stacks_samples_too(self, cub_tree):
        (batch,) = DataLoader(ConcatDataset([Floats(), Floats()]), batch_size=4)
        assert batch["image"][:, 0, 0, 0].tolist() == pytest.approx([0.2, 0.8, 0.2, 0.8])
        photos = Cub200Dataset(str(cub_tree()))
        batch = next(iter(DataLoader(photos, batch_size=2)))
        assert same_sample({name: values[1] for name, values in batch.items()}, photos[1])

    @pytest.mark.parametrize("sampler", ["train", "val"])
    def test_a_loader_that_lightning_builds_again_gives_whole_float_batches(self, sampler):
        loader = small_birds()._loader(sampler)
        again = _update_dataloader(loader, RandomSampler(loader.dataset))
        assert isinstance(again, ImageLoader)
        assert again.dataset is loader.dataset
        batch = next(iter(again))
        assert (batch["image"].shape, batch["image"].dtype) == ((3, 3, 32, 32), torch.float32)

    def test_overfitting_a_batch_sees_the_same_whole_float_batch(self):
        seen = []

        class Model(LightningModule):
            def training_step(self, batch, index):
                seen.append((batch["sample_id"], batch["image"].dtype, tuple(batch["image"].shape)))

            def configure_optimizers(self):
                return None

        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
        Trainer(max_epochs=2, overfit_batches=1, enable_model_summary=False, **quiet).fit(Model(), small_birds())
        assert (len(seen), seen[0]) == (2, seen[1])
        assert seen[0][1:] == (torch.float32, (3, 3, 32, 32))


class TestSubclasses:
    @pytest.mark.parametrize("kind", [Cub200Dataset, type(small_birds().dataset("train")), Stratified])
    def test_a_getitem_that_loaders_would_overlook_is_refused(self, kind):
        with pytest.raises(TypeError, match=r"Expected Mine to override `batch`, .* but it overrides `__getitem__`"):

            class Mine(kind):
                def __getitem__(self, index):
                    return super().__getitem__(index)

    def test_a_data_set_without_samples(self):
        class Empty(ImageDataset):
            sample_ids = ()

            def __len__(self):
                return 1

        for ask in (lambda: Empty()[0], lambda: list(ImageLoader(Empty()))):
            with pytest.raises(NotImplementedError, match="Expected Empty to define `batch` or `__getitem__`"):
                ask()


class TestSamplers:
    @pytest.mark.parametrize(("count", "world"), [(7, 1), (7, 2), (8, 3), (3, 3)])
    def test_evaluation_sees_every_sample_once_over_all_processes(self, count, world):
        samplers = [ExactSampler(range(count), rank, world) for rank in range(world)]
        assert sorted(index for sampler in samplers for index in sampler) == list(range(count))
        assert [len(sampler) for sampler in samplers] == [len(list(sampler)) for sampler in samplers]

    def test_evaluation_with_more_processes_than_samples_is_refused(self):
        with pytest.raises(ValueError, match=r"got 2 samples for 3 processes\. Lower `--trainer\.devices`"):
            ExactSampler(range(2), 0, 3)

    def test_the_training_order_is_one_permutation_for_all_processes(self):
        ranks = [list(EpochSampler(range(7), lambda: 3, 5, rank, 2)) for rank in range(2)]
        (alone,) = [list(EpochSampler(range(7), lambda: 3, 5))]
        together = [index for pair in zip(*ranks, strict=True) for index in pair]
        assert together == [*alone, alone[0]]  # padded with its own beginning
        assert sorted(alone) == [(3, index) for index in range(7)]

    def test_the_training_order_depends_on_seed_and_epoch_alone(self):
        epoch = 0
        sampler = EpochSampler(range(50), lambda: epoch, seed=1)
        first = [index for _, index in sampler]
        torch.manual_seed(9)
        assert [index for _, index in sampler] == first
        epoch = 1  # read when iteration starts
        second = [index for _, index in sampler]
        other = [index for _, index in EpochSampler(range(50), lambda: 0, seed=2)]
        assert len({tuple(order) for order in (first, second, other, range(50))}) == 4
