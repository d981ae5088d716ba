"""What all data modules of photos share: splits, checks before a run, variants, the promise before a download."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules import splits
from protometry.datamodules.photos.download import Archive
from tests.datamodules.toy_photos import Toy, ToyDataset, make_toy, toy
from tests.photo_trees import fingerprint, noise_picture

EVEN = [f"{name}_{i}.png" for name in ("ant", "bee") for i in (0, 2, 4, 6)]
PARTS = ("train", "val", "test")


@pytest.fixture
def root(tmp_path):
    return make_toy(tmp_path / "toy")


@pytest.fixture
def split_file(root, tmp_path):
    """The official split without two photos."""
    path = tmp_path / "split.json"
    path.write_text(json.dumps(toy(root, exclude=["bee_7.png", "bee_5.png"]).split_record()))
    return path


def test_what_is_printed_of_data(root, tmp_path):
    """Nothing is read for it."""
    missing = toy(tmp_path / "none")
    assert str(missing) == f"Toy(root='{tmp_path}/none', image_size=(16, 16)): not set up; `setup()` reads the data"
    data = toy(root)
    data.setup()
    size = f"Toy(root='{root}', image_size=(16, 16))"
    assert repr(data) == str(data) == f"{size}: train 6, val 2, test 8 images; 2 classes: ant, bee"


class TestSplits:
    def test_official(self, root):
        data = toy(root)
        assert [len(data.dataset(split)) for split in splits.SPLITS] == [6, 6, 2, 8]
        assert data.dataset("test").sample_ids == data.split_record()["test"] == EVEN
        assert data.class_weights.tolist() == [1, 1]
        assert (data.split_record()["seed"], data.split_record()["folds"]) == (42, 1)

    def test_without_validation(self, root):
        data = toy(root, fold=None)
        assert not data.has_validation
        assert (data.val_dataloader(), [len(data.dataset(split)) for split in PARTS]) == ([], [8, 0, 8])

    @pytest.mark.parametrize("fold", [1, 3, None])
    def test_folds_of_cv70(self, root, fold):
        data = toy(root, fold=fold)
        data.scheme = "cv70"
        record = data.split_record()
        expected = [] if fold is None else record["val"][fold]
        assert sorted(data.dataset("val").sample_ids) == sorted(expected)
        assert data.has_validation == (fold is not None)
        assert sum(len(data.dataset(split)) for split in PARTS) == 16

    def test_class_weights_count_training_photos(self, root):
        data = toy(root, exclude=["bee_1.png", "bee_3.png"], fold=None)
        data.setup()
        torch.testing.assert_close(data.class_weights, 6 / (2 * torch.tensor([4.0, 2.0])))

    def test_without_official_split(self, root):
        class Plain(Toy):
            def photo_dataset(self):
                return ToyDataset(self.root, is_test=None)

        with pytest.raises(ValueError, match="`scheme` to be 'cv70', as Toy has no official split, but got 'official'"):
            Plain(str(root)).setup()

    def test_empty_part(self, root):
        with pytest.raises(ValueError, match="to have images in the test split, but `scheme: official` leaves none"):
            toy(root, exclude=EVEN).dataset("test")

    def test_a_data_set_may_divide_by_a_rule_of_its_own_and_learns_from_its_training_photos(self, root):
        class Learning(ToyDataset):
            def learn(self, train_rows):
                self.learnt = [self.table.files[row].sample_id for row in train_rows]

        class Own(Toy):
            kind = Learning

            def make_splits(self, population, rows):
                assert [self.photos.table.files[row].sample_id for row in rows] == population.ids
                return splits.given(population, "own", 0, population.ids[:4], [population.ids[-4:]])

        data = Own(str(root), exclude=["ant_0.png"])
        record = data.split_record()
        assert (record["scheme"], record["exclude"], record["folds"]) == ("own", ["ant_0.png"], 1)
        assert data.dataset("val").sample_ids == [f"bee_{i}.png" for i in (4, 5, 6, 7)]
        trained = [*(f"ant_{i}.png" for i in (5, 6, 7)), *(f"bee_{i}.png" for i in range(4))]
        assert data.dataset("projection").learnt == data.dataset("train").sample_ids == trained

    def test_tables_are_read_once(self, root):
        class Counting(Toy):
            count = 0

            def photo_dataset(self):
                self.count += 1
                return super().photo_dataset()

        data = Counting(str(root))
        assert data.num_classes == 2
        data.setup("fit")
        record = data.split_record()
        data.setup("test")
        assert (data.split_record(), data.count) == (record, 1)

    def test_split_file_beats_scheme(self, root, split_file):
        data = toy(root, split_file=str(split_file))
        data.scheme = "cv70"
        assert data.split_record() == json.loads(split_file.read_text())

    def test_photo_that_the_split_file_leaves_out_may_be_gone(self, root, split_file):
        (root / "bee_7.png").unlink()
        for exclude in ([], ["bee_7.png"]):
            data = toy(root, split_file=str(split_file), exclude=exclude)
            data.prepare_data()
            assert data.split_record() == json.loads(split_file.read_text())
        names = {name for part in PARTS for name in data.dataset(part).sample_ids}
        assert len(names) == 14
        assert not {"bee_5.png", "bee_7.png"} & names
        (root / "bee_6.png").unlink()
        with pytest.raises(ValueError, match=r"but 1 is gone, such as 'bee_6\.png'\. Restore"):
            toy(root, split_file=str(split_file)).setup()

    def test_repeated_ids(self, root):
        class Twice(ToyDataset):
            def __init__(self, *arguments):
                super().__init__(*arguments)
                self.table.files[1] = self.table.files[0]

        class Odd(Toy):
            kind = Twice

        with pytest.raises(ValueError, match=r"photo once, but 1 are named several times; the first is 'ant_0\.png'"):
            Odd(str(root)).setup()


class TestTraining:
    def test_projection_is_the_training_part_without_augmentation(self, root):
        noise_picture(root / "ant_1.png", (40, 30))
        data = toy(root)
        train, projection = data.dataset("train"), data.dataset("projection")
        assert train.sample_ids == projection.sample_ids
        assert torch.equal(projection[0]["image"], data.photos[train.rows[0]]["image"])
        assert not torch.equal(train[0]["image"], projection[0]["image"])
        plain = toy(root, augmentation="none").dataset("train")
        assert torch.equal(plain[2]["image"], projection[2]["image"])

    def test_the_seed_of_the_run_decides_augmentation(self, root):
        for path in root.iterdir():
            noise_picture(path, (40, 30))
        first, same, other = (toy(root, seed=seed).dataset("train")[1]["image"] for seed in (1, 1, 2))
        assert torch.equal(first, same)
        assert not torch.equal(first, other)


class TestVariant:
    def test_quanproto_resizes_linearly(self, root):
        stripes = np.zeros((64, 64, 3), np.uint8)
        stripes[:, ::4] = 255  # averages to 64; sampling the middle of each four columns sees none
        Image.fromarray(stripes).save(root / "ant_2.png")
        for split, name in (("test", "ant_2.png"), ("train", "ant_1.png")):
            Image.fromarray(stripes).save(root / name)
            for variant, level in (("paper", 64), ("quanproto", 0)):
                dataset = toy(root, variant=variant, augmentation="none", fold=None).dataset(split)
                image = dataset[dataset.sample_ids.index(name)]["image"]
                assert (image * 255 - level).abs().max() <= 1


class TestPrepare:
    @pytest.mark.parametrize(("content", "words"), [
        (b"", "the file is empty"), (b"hello", "cannot identify"), (None, r"truncated|incomplete|broken|not process"),
    ])  # fmt: skip
    def test_bad_image(self, root, content, words):
        path = root / "bee_3.png"
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (90, 90, 3), dtype=np.uint8)).save(path)
        path.write_bytes(path.read_bytes()[:4000] if content is None else content)
        before = fingerprint(root)
        problem = rf"(?si)Toy in .*1 problem:.*image bee_3\.png: .*({words}).*exclude.*Draw it"
        with pytest.raises(ValueError, match=problem):
            toy(root).prepare_data()
        toy(root, exclude=["bee_3.png"]).prepare_data()
        assert fingerprint(root) == before

    def test_missing_image(self, root):
        data = toy(root)
        photos = data.photos
        (root / "ant_0.png").unlink()
        data.photo_dataset = lambda: photos
        with pytest.raises(FileNotFoundError, match=r"(?s)image ant_0\.png: there is no file .*Draw it again"):
            data.prepare_data()


def test_the_promise_before_a_download_is_kept_or_stops(root, tmp_path):
    class Fetched(Toy):
        archives = (Archive("file:///nowhere.zip", None, 1),)
        promised_classes = 3
        download = True

    data = Fetched(str(tmp_path / "new"))
    assert data.num_classes == 3
    root.rename(tmp_path / "new")
    with pytest.raises(ValueError, match="to have the 3 classes the model was built for, but it has 2"):
        data.setup()
    assert data.num_classes == 2
