"""Map-style data sets of others under the sample contract."""

import pickle
from collections import UserList
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning import LightningDataModule, Trainer
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from protometry.callbacks import Interpretability, PhaseSchedule
from protometry.datamodules import SketchBirds, WrappedDatasets
from protometry.datamodules.check.check import check_data
from protometry.datamodules.check.sample import same_sample
from protometry.datamodules.dataset import image_tensor
from protometry.datamodules.sample import ClassTables
from protometry.lightning_modules import Classifier

PAIR = ["disc", "square"]


class Shapes(Dataset):
    """As torchvision's: PIL images of one size with their classes."""

    classes = PAIR

    def __init__(self, number, seed=0, places=False):
        self.number, self.seed, self.places = number, seed, places
        self.targets = [index % 2 for index in range(number)]

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        generator = np.random.default_rng((self.seed, index))
        image = Image.fromarray(generator.integers(0, 80, (60, 48, 3), dtype=np.uint8))
        x, y = generator.integers(2, 18, 2).tolist()
        draw = ImageDraw.Draw(image)
        (draw.rectangle if index % 2 else draw.ellipse)((x, y, x + 24, y + 24), fill="orange")
        if not self.places:
            return image, index % 2
        mask = np.zeros((60, 48), bool)
        mask[y : y + 25, x : x + 25] = True
        centre = [[x + 12.0, y + 12.0], [0.0, 0.0]]
        places = {"object_mask": mask, "bounding_box": [x, y, x + 24, y + 24], "part_points": centre}
        concepts = {"concepts": [index % 2, 1], "name": "not ours"}
        return {"image": image, "label": PAIR[index % 2], "part_visible": [True, False], **places, **concepts}


class OwnShapes(WrappedDatasets):
    """Data that a command line names."""

    def datasets(self):
        return {"train": Shapes(24), "val": Shapes(8, 1), "test": Shapes(8, 2)}


def annotated(**options):
    """Data with every kind of annotation."""
    tables = ClassTables(part_names=["middle", "hidden"], concept_names=["has_corners", "is_orange"])
    sets = Shapes(24, 0, True), Shapes(8, 1, True), Shapes(8, 2, True)
    return WrappedDatasets.from_datasets(*sets, tables=tables, classes=PAIR, **options)


def of(items, **options):
    """What an evaluation sees of items."""
    data = WrappedDatasets.from_datasets(items, None, items, **{"classes": PAIR, "image_size": 32, **options})
    return data.dataset("test")


def trainer(*callbacks):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(max_epochs=-1, accelerator="cpu", callbacks=list(callbacks), enable_model_summary=False, **quiet)


def classifier():
    return Classifier(num_classes=2, image_size=(32, 32), preset="sketch", phases={"train": {"epochs": 1}})


def test_every_sample_keeps_the_contract():
    data = annotated(image_size=40, augmentation="geometric")
    record = check_data(data).record
    assert (record["images"], record["splits"]["test"]["per_class"]) == (40, {"min": 4, "max": 4})
    flags = record["splits"]["train"]["flags"]
    assert flags["concepts_image"] is True
    assert flags["part_points"] == "no part annotations"  # training images are augmented
    dataset = data.dataset("test")
    assert same_sample(pickle.loads(pickle.dumps(dataset))[3], dataset[3])  # as workers get it


def test_places_move_with_the_image():
    box = annotated(image_size=(120, 96)).dataset("test")[0]["bounding_box"]
    sample = Shapes(8, 2, True)[0]
    x0, y0, x1, y1 = sample["bounding_box"]
    assert box.tolist() == [2 * x0, 2 * y0, 2 * x1 + 1, 2 * y1 + 1]


@pytest.mark.parametrize("image", [
    Image.new("RGB", (32, 32), (10, 10, 10)), Image.new("L", (32, 32), 10), np.full((32, 32, 3), 10, np.uint8),
    np.full((32, 32), 10, np.uint8), torch.full((3, 32, 32), 10, dtype=torch.uint8),
    torch.full((1, 32, 32), 10, dtype=torch.uint8), torch.full((3, 32, 32), 10) / 255,
], ids=lambda image: f"{type(image).__name__}")  # fmt: skip
def test_images_of_every_kind(image):
    expected = image_tensor(torch.full((32, 32, 3), 10, dtype=torch.uint8))
    assert torch.equal(of([(image, 0), (image, 1)])[0]["image"], expected)


def test_transparent_pixels_are_white():
    assert of([(Image.new("RGBA", (9, 9), (0, 0, 0, 0)), 0)])[0]["image"].unique().tolist() == [1.0]


def test_a_vector_of_labels_is_multilabel():
    items = [(Image.new("RGB", (8, 8)), torch.tensor(labels)) for labels in ([0, 1, 1], [0, 0, 0])]
    data = WrappedDatasets.from_datasets(items, classes=["a", "b", "c"], image_size=8)
    assert data.capabilities("train").multi_label is True
    samples = [data.dataset("train")[index] for index in (0, 1)]
    assert [sample["labels"].tolist() for sample in samples] == [[False, True, True], [False] * 3]
    assert (data.dataset("train").labels.tolist(), data.class_weights.tolist()) == ([1, 0], [1, 1, 1])


class Named(UserList):
    """As of Hugging Face: columns by name, names of classes in a feature."""

    column_names = ("image", "label")

    @property
    def features(self):
        return {"label": SimpleNamespace(names=PAIR)}

    def __getitem__(self, index):
        return [row[index] for row in self.data] if isinstance(index, str) else super().__getitem__(index)


def test_labels_are_read_without_images_where_they_are_listed(monkeypatch):
    rows = [{"image": Image.new("RGB", (8, 8)), "label": label} for label in (1, 0, 1)]
    found = {
        "torchvision": of(Shapes(3), classes=None),
        "subset": of(Subset(Shapes(6), [1, 2, 3]), classes=None),
        "columns": of(Named(rows), classes=None),
    }
    monkeypatch.setattr(Shapes, "__getitem__", None)
    assert {name: dataset.labels.tolist() for name, dataset in found.items()} == {
        "torchvision": [0, 1, 0],
        "subset": [1, 0, 1],
        "columns": [1, 0, 1],
    }
    assert all(dataset.classes == PAIR for dataset in found.values())


def test_equal_ids_with_other_images_have_another_fingerprint():
    one, other = (WrappedDatasets.from_datasets(Shapes(4), None, Shapes(4, seed), image_size=32) for seed in (1, 2))
    again = WrappedDatasets.from_datasets(Shapes(4), None, Shapes(4, 1), image_size=32)
    assert one.fingerprint == again.fingerprint != other.fingerprint


IMAGE = torch.zeros(3, 32, 32)


@pytest.mark.parametrize(("items", "reason"), [
    ([(IMAGE, 0, 1)], r"\(image, label\), or a mapping"),
    ([{"picture": IMAGE, "label": 0}], r"the keys \['label', 'picture'\]"), ([(IMAGE, 2)], "a label below 2"),
    ([(IMAGE, 0.5)], "a label below 2"), ([(IMAGE, "wren")], "among the 2 `classes`, but got 'wren'"),
    ([(IMAGE - 1, 0)], "leave out Normalize"), ([(IMAGE[:, :16], 0)], r"but got \(3, 16, 32\)"),
    ([(IMAGE.numpy(), 0)], "float32"), ([(Image.new("I;16", (8, 8)), 0)], "8 bits per channel"),
    ([], "`train` to have items"), (TensorDataset(torch.zeros(2, 5), torch.zeros(2, dtype=torch.int64)), r"\(5,\)"),
])  # fmt: skip
def test_other_items_are_refused_with_their_position(items, reason):
    with pytest.raises(ValueError, match=reason):
        WrappedDatasets.from_datasets(items, classes=PAIR, image_size=32).setup()


class Raises(Shapes):
    def __getitem__(self, index):
        raise KeyError("no such key in the archive")


PLACED = {"image": Image.new("RGB", (8, 8)), "label": 0}


@pytest.mark.parametrize(("item", "reason"), [
    ((None, 0), "`image` to be a PIL image.* but got NoneType object"),
    ((b"\x89PNG", 0), "`image` to be a PIL image.* but got bytes .*Decode it first"),
    ((np.zeros((0, 4, 3), np.uint8), 0), r"uint8 \(0, 4, 3\)"),
    (({"bytes": b"\x89PNG", "path": None}, 0), "but got dict .*Decode it first"),
    ((torch.full((3, 16, 16), torch.nan), 0), r"a float image to be .* in \[nan, nan\]"),
    ((IMAGE, None), "a label below 2.* but got None"), ((IMAGE, {"id": 0}), "a label below 2.* but got {'id': 0}"),
    (PLACED | {"object_mask": np.ones((4, 4))}, r"to be as large as the image, \(8, 8\), but got \(4"),
    (PLACED | {"bounding_box": [1, 2, 3]}, r"`bounding_box` to be numbers \(4,\), but got \(3,\)"),
    (PLACED | {"bounding_box": [1, 2, 3, None]}, r"`bounding_box` to be numbers \(4,\), but got \[1, 2, 3, None"),
    (PLACED | {"concepts": ["red", "blue"]}, "`concepts` to be numbers"),
])  # fmt: skip
def test_a_sample_that_cannot_be_used_is_named_with_its_field(item, reason):
    with pytest.raises(ValueError, match=rf"^Expected .*{reason}.* This is sample test/[01]\.$") as caught:
        of([item, item])[1]
    assert "\n" not in str(caught.value)


def test_a_data_set_that_raises_or_lacks_fields_names_the_sample():
    with pytest.raises(ValueError, match=r"^Expected an item, but got KeyError\('no such key.*This is sample test/1\."):
        of(Raises(4))[1]
    with pytest.raises(ValueError, match=r"only one of both has 'bounding_box'\. This is sample test/1\."):
        of([PLACED | {"bounding_box": [0, 0, 3, 3]}, PLACED | {"bounding_box": None}])[1]
    with pytest.raises(ValueError, match=r"a label below 2.* got None\. This is sample test/2\."):
        _ = of([(IMAGE, 0), (IMAGE, 1), (IMAGE, None)]).labels


def test_random_training_images_need_plain_ones():
    class Noisy(Shapes):
        def __getitem__(self, index):
            image, label = super().__getitem__(index)
            return image.rotate(90 * float(torch.rand(()))), label

    with pytest.raises(ValueError, match="set `augmentation`, or hand over the images"):
        WrappedDatasets.from_datasets(Noisy(4), image_size=32).setup()
    data = WrappedDatasets.from_datasets(Noisy(4), projection_dataset=Shapes(4), image_size=32)
    data.setup()
    assert not data.fixed_training_images


def test_one_data_set_as_two_parts_is_warned_of():
    shapes = Shapes(4)
    with pytest.warns(
        UserWarning, match="Two of `train`, `val` and `test` are one data set, so results are not on new images"
    ):
        WrappedDatasets.from_datasets(shapes, test_dataset=shapes, image_size=32).setup()


@pytest.mark.parametrize("classes", [None, ["wren"], ["wren", "wren"]])
def test_classes_need_names(classes):
    with pytest.raises(ValueError, match="`classes` to name at least two different classes of list"):
        _ = WrappedDatasets.from_datasets([(IMAGE, 0)], classes=classes).num_classes


def test_a_split_that_is_not_there():
    data = WrappedDatasets.from_datasets(Shapes(4), image_size=32)
    assert not data.has_validation
    with pytest.raises(ValueError, match="a data set `test`, but got train only"):
        data.test_dataloader()
    with pytest.raises(ValueError, match="a run does not store those"):
        type(data)(**data.hparams).setup()


class Foreign(LightningDataModule):
    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 0, 1])), batch_size=2)

    predict_dataloader = test_dataloader = train_dataloader


@pytest.mark.parametrize("callbacks", [[], [PhaseSchedule(), Interpretability(["general"])]], ids=["bare", "callbacks"])
@pytest.mark.parametrize("given", [Foreign(), Foreign().train_dataloader()], ids=["Foreign", "loaders"])
def test_loaders_of_others_are_told_how_to_go_on(given, callbacks, request):
    said = f"but got {request.node.callspec.id.split('-')[0]}.*`WrappedDatasets.from_datasets"
    for method in ("fit", "test"):
        with pytest.raises(TypeError, match=said):
            getattr(trainer(*callbacks), method)(classifier(), given)


def test_lightnings_own_way_to_wrap_data_sets_is_refused():
    with pytest.raises(TypeError, match=r"`WrappedDatasets\.from_datasets`, but got `SketchBirds\.from_datasets`"):
        SketchBirds.from_datasets(Shapes(4))


def test_predictions_take_any_loader():
    model = classifier().eval()
    images = DataLoader(torch.rand(4, 3, 32, 32), batch_size=2)
    for given in (Foreign(), Foreign().train_dataloader(), images):
        first, _ = trainer().predict(model, given)
        assert first["probabilities"].shape == (2, 2)


def test_training_without_a_schedule_and_tests_without_metrics_say_so():
    data = OwnShapes(image_size=32)
    with pytest.raises(ValueError, match="`PhaseSchedule\\(\\)` to be the first callback"):
        trainer().fit(classifier(), data)
    with pytest.warns(UserWarning, match="Nothing was measured: add `Interpretability"):
        trainer().test(classifier(), data)
