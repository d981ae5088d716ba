"""Projection: exact over batches, orders and processes; afterwards every prototype is its own patch."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from lightning import Callback, LightningModule
from torch import nn

import protometry.callbacks.phases.projection
from protometry.callbacks.phases.action_words import listed
from protometry.callbacks.phases.projection import (
    LARGEST,
    NearestPatches,
    distinct_patches,
    nearest_patches,
    patches_of_nearest_images,
    project,
)
from protometry.datamodules.sample import sample_key
from protometry.lightning_modules import ProtoPNet
from protometry.lightning_modules.bases.geometry import Geometry
from protometry.lightning_modules.contract import ModelOutput, SourceTable, UnitTable
from protometry.lightning_modules.heads.prototypes import PrototypeLayer
from tests.lightning_modules.registry import SHORT, TINY_PROTOPNET, tiny_birds, tiny_trainer

BEST = math.log(1e4)
# A patch computed again, alone, differs by up to 2e-5 (`tests.rounding`, 1,700 terms of size 1) in each of 8 channels:
# a squared distance of 4e-9, which takes 4e-9 / 1e-4 = 4e-5 off log((d + 1) / (d + 1e-4)), that is off 9.2.
OWN_PATCH = 1e-5


# -- a model whose latent map is the image: small whole numbers, so that distances are exact and ties are many --------
class Transparent(LightningModule):
    def __init__(self, vectors: torch.Tensor, classes: int):
        super().__init__()
        self.vectors = nn.Parameter(vectors)
        self.register_buffer("active", torch.ones(len(vectors), dtype=torch.bool))
        self.classes = classes
        self.loaded = None

    def forward(self, images):
        maps = -self.distance_maps(images)
        scores = maps.amax((2, 3))
        return ModelOutput(scores[:, : self.classes], scores, maps, images)

    def embed(self, images):
        return images

    def distance_maps(self, latent, units=None):
        vectors = self.vectors if units is None else self.vectors[units]
        return (latent[:, None] - vectors[..., None, None]).square().sum(2)

    def owner(self):
        return torch.arange(len(self.vectors))[:, None] % self.classes == torch.arange(self.classes)

    def allowed(self, targets):
        return self.owner().T[targets]

    def units(self):
        return UnitTable("prototype", self.active, self.owner(), "max", vectors=self.vectors)

    @property
    def geometry(self):
        return Geometry((6, 8), (3, 4), 2, 2, 1.0)

    def load_patches(self, patches, valid, source):
        with torch.no_grad():
            self.vectors.copy_(torch.where(valid[:, None], patches, self.vectors))
        self.loaded = source


def draw(count=17, units=9, channels=2, classes=3, seed=0):
    """Images with values 0..2; the last images repeat the first, with keys of their own."""
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.randint(0, 3, (count, channels, 3, 4), generator=generator).float()
    labels = torch.randint(0, classes - 1, (count,), generator=generator)  # the last class has no image
    pictures[-4:], labels[-4:] = pictures[:4], labels[:4]
    data = {"image": pictures, "label": labels, "sample_key": torch.randperm(count, generator=generator) * 1000 + 1}
    vectors = torch.randint(0, 3, (units, channels), generator=generator).float() + 0.5
    vectors[3] = vectors[0]  # same class: will share a patch
    return data, Transparent(vectors, classes).eval()


def batches(data, size, order=None):
    order = torch.arange(len(data["label"])) if order is None else order
    return [{name: tensor[part] for name, tensor in data.items()} for part in order.split(size)]


def nearest_images(data, model, own):
    """The smallest (distance, sample key, cell) of every unit in each image, in order, one comparison at a time."""
    collected = []
    for unit in range(len(model.vectors)):
        nearest = []
        for image, label, key in zip(data["image"], data["label"].tolist(), data["sample_key"].tolist(), strict=True):
            allowed = unit % model.classes == label
            patches = [(((p - model.vectors[unit]) ** 2).sum().item(), p) for p in image.flatten(1).T]
            cell = min(range(len(patches)), key=lambda index: patches[index][0])
            if allowed or not own:
                nearest.append((patches[cell][0], key, cell, label, patches[cell][1].tolist(), allowed))
        collected.append(sorted(nearest))
    return collected


def brute_force(data, model):
    nothing = (math.inf, LARGEST, LARGEST, -1, [0.0] * model.vectors.shape[1], False)
    return [each[0] if each else nothing for each in nearest_images(data, model, own=True)]


def as_rows(nearest: NearestPatches):
    columns = (nearest.distance, nearest.sample_key, nearest.cell, nearest.label, nearest.patch, nearest.own)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def six_nearest(model, loader):
    """The rows of every unit in the six images nearest to it, of whatever class."""
    nearest = patches_of_nearest_images(model, loader, torch.device("cpu"), 6, own=False)
    ranks = [as_rows(nearest.at(torch.full_like(nearest.cell[0], rank))) for rank in range(6)]
    return [[row for row in rows if math.isfinite(row[0])] for rows in zip(*ranks, strict=True)]


@pytest.mark.parametrize(("seed", "size"), [(0, 1), (1, 4), (2, 17)])
def test_any_order_and_batch_size_equals_brute_force(seed, size):
    """Also where images are seen twice, and where there are fewer than are looked for."""
    data, model = draw(seed=seed)
    order = torch.randperm(17, generator=torch.Generator().manual_seed(seed))
    expected, six = brute_force(data, model), [each[:6] for each in nearest_images(data, model, own=False)]
    for chosen in (None, order, order.flip(0), torch.cat([order, torch.tensor([0, 0, 16])])):
        assert as_rows(nearest_patches(model, batches(data, size, chosen), model.device)) == expected
        assert six_nearest(model, batches(data, size, chosen)) == six
    few = {name: tensor[:2] for name, tensor in data.items()}
    assert six_nearest(model, batches(few, size)) == nearest_images(few, model, own=False)


@pytest.mark.parametrize(("size", "candidates"), [(1, 8), (4, 2)])
def test_distinct_patches_share_no_image(monkeypatch, size, candidates):
    monkeypatch.setattr(protometry.callbacks.phases.projection, "CANDIDATES", candidates)
    data, model = draw()
    shared = nearest_patches(model, batches(data, size), model.device)
    apart, least = distinct_patches(model, batches(data, size), model.device)
    assert least.tolist() == shared.distance.tolist()
    # an image for the nearest unit, the others go on without it: one comparison at a time
    barred, rows = set(), dict(enumerate(brute_force(data, model)))
    while again := {
        (unit, row[1])
        for unit, row in rows.items()
        if any(other[1] == row[1] < LARGEST and (other[0], v) < (row[0], unit) for v, other in rows.items())
    }:
        barred |= again
        for unit, _ in again:
            kept = ~torch.isin(data["sample_key"], torch.tensor([key for u, key in barred if u == unit]))
            rows[unit] = brute_force({name: tensor[kept] for name, tensor in data.items()}, model)[unit]
    assert as_rows(apart) == [rows[unit] for unit in range(len(rows))]
    result = apart.sample_key[torch.isfinite(apart.distance)].tolist()
    assert len(set(result)) == len(result) > len(set(shared.sample_key.tolist())) - 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("size", [1, 4, 17])
def test_own_units_alone_give_the_bits_of_all(monkeypatch, seed, size):
    """Also where images have several labels, or none."""
    data, _ = draw(seed=seed)
    generator = torch.Generator().manual_seed(seed)
    data["image"] = torch.rand(17, 3, 12, 16, generator=generator)
    model = ProtoPNet(num_classes=3, image_size=(12, 16), prototypes_per_class=4, prototype_channels=64).eval()
    several = data | {"labels": torch.rand(17, 3, generator=generator) < 0.4}
    compared = []
    own, layer = PrototypeLayer.distances, PrototypeLayer

    def counted(self, latent, exact=None, units=None):
        compared.append(12 if units is None else units.shape[1])
        return own(self, latent, exact, units)

    def all_units(self, latent, exact=None, units=None):
        result = own(self, latent, exact)
        return result if units is None else result.gather(1, units[..., None, None].expand(-1, -1, *result.shape[2:]))

    for batch in (data, several):
        result = []
        for distances in (counted, all_units):
            monkeypatch.setattr(layer, "distances", distances)
            result.append(as_rows(nearest_patches(model, batches(batch, size), model.device)))
        assert result[0] == result[1]
    forwards = -(-17 // size)
    assert compared[:forwards] == [4] * forwards
    assert max(compared[forwards:]) > 4


def test_ties_by_sample_key_then_cell():
    """Two units at 0 and 1; key 2 and key 9 hold both values, the values sit at cells 5 and 7 of every image."""
    pictures = torch.full((3, 1, 3, 4), 8.0)
    pictures[:2].view(2, -1)[:, [5, 7]] = torch.tensor([0.0, 0.0])
    data = {"image": pictures, "label": torch.zeros(3, dtype=torch.int64), "sample_key": torch.tensor([9, 2, 1])}
    nearest = nearest_patches(Transparent(torch.tensor([[0.0]]), 1), batches(data, 1), torch.device("cpu"))
    assert (nearest.sample_key.item(), nearest.cell.item(), nearest.distance.item()) == (2, 5, 0.0)


# -- two processes ---------------------------------------------------------------------------------------------------


# -- the action ------------------------------------------------------------------------------------------------------
class Loader(list):
    def __init__(self, data, size, order=None):
        super().__init__(batches(data, size, order))
        self.dataset = SimpleNamespace(sample_ids=[f"image {i}" for i in range(len(data["label"]))])


def trainer_of(data, size=4, order=None):
    data["sample_key"] = torch.tensor([sample_key(f"image {i}") for i in range(len(data["label"]))])
    return SimpleNamespace(datamodule=SimpleNamespace(
        projection_dataloader=lambda: Loader(data, size, order), has_validation=False
    ))  # fmt: skip


@pytest.mark.parametrize("size", [1, 4, 5])
def test_sources_tell_where_each_unit_comes_from(size):
    """An identity is an image, never a batch index times a batch size."""
    data, model = draw()
    trainer = trainer_of(data, size, torch.randperm(17, generator=torch.Generator().manual_seed(size)))
    expected = brute_force(data, model)
    report = project(trainer, model)
    source: SourceTable = model.loaded
    for unit, (distance, key, cell, label, patch, _) in enumerate(expected):
        if math.isinf(distance):
            continue
        row, col = divmod(cell, 4)
        assert sample_key(source.sample_id[unit]) == source.sample_key[unit].item() == key
        assert (source.row[unit].item(), source.col[unit].item(), source.label[unit].item()) == (row, col, label)
        assert source.distance[unit].item() == distance
        assert source.box[unit].tolist() == [2 * col, 2 * row, 2 * col + 1, 2 * row + 1]  # cells of 2x2 pixels
        assert model.vectors[unit].tolist() == patch
    finite = [row[0] for row in expected if math.isfinite(row[0])]
    assert report["moved_mean"] == pytest.approx(sum(finite) / len(finite))
    assert report["moved_max"] == max(finite)


@pytest.fixture
def messages(monkeypatch):
    texts: list[str] = []
    monkeypatch.setattr(protometry.callbacks.phases.projection, "rank_zero_info", texts.append)
    return texts


def test_classes_without_images_and_units_that_share_a_patch_are_listed_and_kept(messages):
    data, model = draw()
    before = model.vectors.detach().clone()
    report = project(trainer_of(data), model)
    assert torch.equal(model.vectors[2::3], before[2::3])
    assert not model.loaded.found[2::3].any()
    assert model.loaded.found[0::3].all()
    assert model.loaded.sample_id[2] == ""
    assert model.loaded.box[2].tolist() == [-1, -1, -1, -1]
    assert (model.loaded.row[2], model.loaded.col[2], model.loaded.label[2]) == (-1, -1, -1)
    assert report["without_patch"] == 3
    assert any("image may stand for prototypes 2, 5 and 8:" in text for text in messages)
    groups = model.loaded.duplicates()
    assert any({0, 3} <= set(group) for group in groups)
    assert report["duplicates"] == sum(len(group) - 1 for group in groups)
    assert report["unique"] + report["duplicates"] + report["without_patch"] == 9
    assert any(text.endswith(f"image: {'; '.join(map(listed, groups))}.") for text in messages)
    assert model.active.all()


def test_units_that_another_one_displaces_are_named_with_the_distance_it_costs(messages):
    """Units at 0, 1 and 5 of one class; images of 0, 3 and 9: the unit at 1 moves by 4 in place of 1, to 3."""
    pictures = torch.tensor([0.0, 3.0, 9.0])[:, None, None, None].expand(3, 1, 2, 2)
    data = {"image": pictures, "label": torch.zeros(3, dtype=torch.int64)}
    model = Transparent(torch.tensor([[0.0], [1.0], [5.0]]), 1)
    report = project(trainer_of(data), model, distinct=True)
    assert model.loaded.sample_id == ["image 0", "image 1", "image 2"]
    assert model.loaded.distance.tolist() == [0.0, 4.0, 16.0]
    assert (report["displaced"], report["farther_mean"], report["farther_max"]) == (2.0, 7.5, 12.0)
    assert any(text.endswith("2 (by 12) and 1 (by 3).") for text in messages)
    assert "displaced" not in project(trainer_of(data), model)


def test_inactive_units_are_not_projected(messages):
    data, model = draw()
    model.active[[0, 2]] = False
    before = model.vectors.detach().clone()
    report = project(trainer_of(data), model)
    assert torch.equal(model.vectors[0], before[0])
    assert not model.loaded.found[0]
    assert report["without_patch"] == 2  # units 5 and 8; 2 is inactive, not missing
    assert any("5 and 8:" in text for text in messages)


# -- ProtoPNet on drawn birds ----------------------------------------------------------------------------------------
def own_similarities(model, birds):
    """Every prototype's similarity to its own source cell, recomputed from the image, one image at a time."""
    dataset = birds.dataset("projection")
    index = {sample_id: i for i, sample_id in enumerate(dataset.sample_ids)}
    source, values = model.units().source, []
    model.eval()
    with torch.no_grad():
        for unit, sample_id in enumerate(source.sample_id):
            image = dataset[index[sample_id]]["image"]
            assert dataset[index[sample_id]]["label"] == source.label[unit]
            output = model(image[None])
            assert output.scores[0, unit] == output.maps[0, unit].amax()
            values.append(output.maps[0, unit, source.row[unit], source.col[unit]])
    return torch.stack(values)


def trained_a_little(**options):
    torch.manual_seed(0)
    model = TINY_PROTOPNET(**({"num_classes": 8, "image_size": (32, 32)} | options))
    for batch in tiny_birds().train_dataloader():  # moves BatchNorm's statistics
        model.train()(batch["image"])
    return model


@pytest.mark.parametrize(("options", "best"), [({}, BEST), ({"similarity": "cosine"}, 1.0), ({"epsilon": 1e-3}, None)])
def test_every_prototype_scores_the_maximum_on_its_own_patch(options, best):
    model, birds = trained_a_little(**options), tiny_birds()
    modes = {name: part.training for name, part in model.named_modules()}
    statistics = {name: b.clone() for name, b in model.backbone.named_buffers()}
    with torch.autocast("cpu", torch.bfloat16):  # projection is float32 all the same
        project(SimpleNamespace(datamodule=birds), model)
    assert {name: part.training for name, part in model.named_modules()} == modes
    assert all(torch.equal(b, statistics[name]) for name, b in model.backbone.named_buffers())
    assert model.units().source.found.all()
    expected = torch.full((16,), best if best else math.log(1e3))
    torch.testing.assert_close(own_similarities(model, birds), expected, rtol=OWN_PATCH, atol=0)


def test_the_whole_model_finds_what_brute_force_finds():
    model, birds = trained_a_little().eval(), tiny_birds(eval_batch_size=5)
    vectors = model.prototypes.vectors.detach().double().clone()
    dataset = birds.dataset("projection")
    best = torch.full((16,), math.inf, dtype=torch.float64)
    where = [("", -1)] * 16
    for sample in (dataset[i] for i in range(len(dataset))):
        with torch.no_grad():
            cells = model.addon(model.backbone(sample["image"][None]))[0].double().flatten(1).T
        for unit in range(16):
            distance, cell = ((cells - vectors[unit]) ** 2).sum(1).min(0)
            if unit // 2 == sample["label"] and distance < best[unit]:
                best[unit], where[unit] = distance, (sample["sample_id"], int(cell))
    project(SimpleNamespace(datamodule=birds), model)
    source = model.units().source
    assert where == list(zip(source.sample_id, (source.row * 4 + source.col).tolist(), strict=True))
    torch.testing.assert_close(source.distance.double(), best, rtol=1e-5, atol=0)


class KeepStatistics(Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if pl_module.phase.name == "last" and not hasattr(self, "before"):
            self.before = {name: b.clone() for name, b in pl_module.backbone.named_buffers()}


def test_a_last_layer_phase_leaves_prototypes_on_their_patches():
    """BatchNorm left in train mode would move every patch away from its prototype."""
    torch.manual_seed(0)
    phases = SHORT | {"last": {"epochs": 3}}
    model = TINY_PROTOPNET(num_classes=8, image_size=(32, 32), preset="original", phases=phases)
    birds, watch = tiny_birds(), KeepStatistics()
    tiny_trainer(watch).fit(model, datamodule=birds)
    assert all(torch.equal(b, watch.before[name]) for name, b in model.backbone.named_buffers())
    torch.testing.assert_close(own_similarities(model, birds), torch.full((16,), BEST), rtol=OWN_PATCH, atol=0)
