"""Arguments of every data module, and what its loaders hand out."""

from types import SimpleNamespace

import pytest

from protometry.datamodules import Cub200, SketchBirds
from protometry.datamodules.dataset import CPU


def birds(**options):
    return SketchBirds("tiny", train_size=16, val_size=8, test_size=8, image_size=32, **options)


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        *(
            ("image_size", size, "one or two positive numbers of pixels")
            for size in (0, -3, (32,), (32, 0), (8, 8, 3), (), 100_000, (16, 100_000))
        ),
        ("batch_size", 0, "at least 1, but got 0"),
        ("batch_size", None, "at least 1, but got None"),
        ("eval_batch_size", 0, "at least 1, but got 0"),
        ("num_workers", -1, "at least 0, but got -1"),
        ("seed", -1, "at least 0, but got -1"),
    ],
)
def test_numbers_out_of_range(name, value, found):
    with pytest.raises(ValueError, match=f"`{name}` to be {found}"):
        Cub200("nowhere", **{name: value})


@pytest.mark.parametrize("below", ["", "deep"])
def test_a_cache_in_a_file(tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"`data.cache` to be a folder, but .*/file is a file"):
        birds(cache=str(tmp_path / "file" / below))


class TestLoading:
    @pytest.mark.parametrize(("changes", "split", "count"), [({}, "test", 8), ({"split": "val", "limit": 4}, "val", 4)])
    def test_the_split_of_the_test_loader_and_how_much_of_it(self, changes, split, count):
        data = birds()
        data.configure_loaders(**changes)
        names = [name for batch in data.test_dataloader() for name in batch["sample_id"]]
        assert (len(names), {name.split("/")[0] for name in names}) == (count, {split})
        left_out = [name for batch in data.left_out_dataloader() for name in batch["sample_id"]]
        assert sorted([*names, *left_out]) == sorted(data.dataset(split).sample_ids)

    def test_a_process_may_have_no_image_that_a_limit_leaves_out(self):
        counts = []
        for rank in (0, 1):
            data = birds()
            data.configure_loaders(limit=7)
            data.trainer = SimpleNamespace(global_rank=rank, world_size=2, strategy=SimpleNamespace(root_device=CPU))
            counts.append(sum(len(batch["sample_id"]) for batch in data.left_out_dataloader()))
        assert counts == [1, 0]

    def test_what_is_not_named_stays(self):
        data = birds()
        data.configure_loaders(limit=3)
        data.configure_loaders(split="val")
        assert (data.loading.limit, data.loading.split, data.loading.two_views) == (3, "val", False)
        data.configure_loaders(limit=None)
        assert len(data.test_dataloader().dataset) == 8

    def test_unknown_names_and_empty_splits_are_refused(self):
        with pytest.raises(TypeError, match="views"):
            birds().configure_loaders(views=True)
        with pytest.raises(ValueError, match="`limit` to be at least 1 image, but got 0"):
            birds().configure_loaders(limit=0)


class TestBatches:
    def test_training_drops_nothing_and_evaluation_has_its_own_size(self):
        data = birds(batch_size=6, eval_batch_size=5)
        assert [len(batch["label"]) for batch in data.train_dataloader()] == [6, 6, 4]
        assert [len(batch["label"]) for batch in data.val_dataloader()] == [5, 3]
        assert [len(batch["label"]) for batch in birds(batch_size=6).val_dataloader()] == [6, 2]

    def test_the_seed_of_the_run_decides_the_order(self):
        def order(**options):
            return [name for batch in birds(**options).train_dataloader() for name in batch["sample_id"]]

        assert order(seed=1) == order(seed=1) == order(seed=1, batch_size=5)
        assert sorted(order(seed=1)) == sorted(order(seed=2)) != order(seed=1) != order(seed=2)
