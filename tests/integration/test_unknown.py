"""What nobody annotated: the value that a table leaves empty decides nothing, in any loss, metric or correction.

The same photos are read twice, with the values of unknown attributes as the table has them and with the opposite ones.
"""

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import default_collate

from protometry.datamodules import ImageFolder
from protometry.datamodules.check.check import check_data
from protometry.datamodules.check.report import show_check
from protometry.lightning_modules import ConceptBottleneck, ProtoTree
from protometry.lightning_modules.pipnet import paired
from protometry.metrics.primitives.truth import truth_of
from tests.lightning_modules.registry import MODELS

CLASSES, EACH, L, SIZE = 8, 6, 20, 32
WHAT = [f"question {index // 2}::{index}" for index in range(L)]


class Flipped(ImageFolder):
    """Own photos whose unknown attributes are stored as the opposite of what is read."""

    def photo_dataset(self):
        photos = super().photo_dataset()
        attributes = photos.found.attributes
        np.logical_xor(attributes.present, attributes.certainty == 0, out=attributes.present)
        photos.learn(np.arange(len(photos)))
        return photos


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Photos of a colour by class, and attributes by class with errors, a third of them empty; WHAT[3] is all empty."""
    root, draw = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    rows = [["image", *(f"attribute:{name}" for name in WHAT), f"certainty:{WHAT[0]}"]]
    of_class = draw.random((CLASSES, L)) < 0.5
    for label in range(CLASSES):
        for number in range(EACH):
            path = root / f"c{label}" / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            pixels = draw.integers(0, 60, (SIZE, SIZE, 3)) + 20 * np.array([label, 7 - label, 3 * (label % 2)])
            Image.fromarray(pixels.astype(np.uint8)).save(path)
            present = of_class[label] ^ (draw.random(L) < 0.1)
            known = (draw.random(L) < 2 / 3) & (np.arange(L) != 3)
            cells = ["" if not sure else int(value) for value, sure in zip(present, known, strict=True)]
            rows.append([path.relative_to(root).as_posix(), *cells, 3 if number else 0])
    with (root / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return root


def read(root: Path, flipped=False, **options):
    kind = Flipped if flipped else ImageFolder
    data = kind(str(root), table="table.csv", image_size=SIZE, batch_size=8, num_workers=0, **options)
    data.prepare_data()
    data.setup("fit")
    return data


@pytest.fixture(scope="module")
def both(table):
    return [read(table, flipped) for flipped in (False, True)]


def same(one, other):
    """Equal in every entry, NaN being equal to NaN."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (one != one and other != other)


def test_samples_differ_in_what_is_unknown_alone(both):
    samples = [default_collate([data.dataset("train")[i] for i in range(12)]) for data in both]
    unknown = samples[0]["concept_certainty"] == 0
    assert 0.3 < unknown.float().mean() < 0.45
    assert torch.equal(samples[0]["concepts"] ^ samples[1]["concepts"], unknown)
    truths = [truth_of(batch, "concepts") for batch in samples]
    assert torch.equal(truths[0].isnan(), unknown)
    assert torch.equal(truths[0].nan_to_num(), truths[1].nan_to_num())
    assert same(*(data.tables.class_truth.tolist() for data in both))


@pytest.mark.parametrize("level", ["image", "class"])
def test_labels_are_as_unknown_as_attributes(table, level):
    data = read(table, task="attributes", concept_level=level)
    batch = default_collate([data.dataset("test")[i] for i in range(8)])
    assert torch.equal(batch["label_certainty"], batch["concept_certainty"])
    assert (batch["label_certainty"][:, 3] == 0).all()
    assert data.capabilities("train").label_certainty is data.capabilities("train").concept_certainty is True


def batch_of(flip):
    """Four images with concepts and labels; half of both are unknown, and flipped if asked to."""
    generator = torch.Generator().manual_seed(0)
    batch = {"image": torch.rand(4, 3, SIZE, SIZE, generator=generator), "sample_key": torch.arange(4) * 7919}
    batch |= {"second_view": batch["image"].flip(3), "label": torch.arange(4)}
    for name, count in (("concepts", L), ("labels", CLASSES)):
        known = torch.rand(4, count, generator=generator) < 0.5
        known[0], known[-1] = False, True  # nothing is known of the first image, and of the last all is
        batch[name] = (torch.rand(4, count, generator=generator) < 0.5) ^ (flip & ~known)
        batch[f"{name.removesuffix('s')}_certainty"] = torch.where(known, 4, 0).to(torch.uint8)
    return batch


def losses_of(name, task, batch):
    """Every loss term of a model, with the sum of its gradient, and whether images are right."""
    torch.manual_seed(0)
    model = MODELS[name](num_classes=CLASSES, image_size=(SIZE, SIZE), task=task).train()
    batch = paired(batch) if name == "PIPNet" else batch
    output, values = model(batch["image"]), {}
    for key, term in model.loss_terms().items():
        value = term(output, batch) if task == "multilabel" or "multilabel" not in key else torch.zeros(())
        slopes = [0.0]
        if value.requires_grad:
            gradients = torch.autograd.grad(value, list(model.parameters()), retain_graph=True, allow_unused=True)
            slopes = [float(slope.double().abs().sum()) for slope in gradients if slope is not None]
        values[key] = [float(value.detach()), sum(slopes)]
    return values | {"right": model.is_correct(output.logits, model.targets(batch)).tolist()}


def tasks_of(name):
    """For which the model reads unknown concepts or labels in its losses."""
    kind = {"ProtoTree": ProtoTree}.get(name, getattr(MODELS[name], "func", MODELS[name]))
    reads = isinstance(kind, type) and issubclass(kind, ConceptBottleneck)
    return [task for task in getattr(kind, "tasks", ()) if reads or task == "multilabel"]


@pytest.mark.parametrize(("name", "task"), [(name, task) for name in MODELS for task in tasks_of(name)])
def test_losses_do_not_read_what_is_unknown(name, task):
    plain, flipped = (losses_of(name, task, batch_of(flip)) for flip in (False, True))
    assert same(plain, flipped)
    assert all(math.isfinite(number) for pair in list(plain.values())[:-1] for number in pair)
    known = batch_of(flip=False)
    for field in ("concepts", "labels"):
        known[field][-1] ^= True  # of the last image all is known
    assert not same(plain, losses_of(name, task, known))


def test_what_is_unknown_is_said_before_training(table, capsys, caplog):
    text = show_check(check_data(read(table)))
    said = "".join(caplog.messages) + capsys.readouterr().err
    assert "values of attributes of training photos are unknown and left out" in said
    assert f"concepts unknown and left out, most often {WHAT[3]}" in text
    assert f"no image says whether it shows {WHAT[3]}" in text
