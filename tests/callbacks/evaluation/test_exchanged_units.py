"""Foreign patches in the place of prototypes, on images whose every cell is a colour."""

import copy

import pytest
import torch
from torch import nn

from protometry.callbacks.evaluation.exchanged_units import exchange_units, not_exchangeable
from protometry.callbacks.forward.observer import Images
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.lightning_modules.heads.linear_head import LinearHead
from tests.lightning_modules.registry import MODELS
from tests.planted.models import Planted
from tests.planted.scenes import SIZE

CELLS, CLASSES, UNITS, GREY = 8, 4, 12, 0.5
COLOURS = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]])


class Prototypes(LinearHead, Planted):
    """A unit is as similar to a cell as its colour; without learning, a cell is its mean colour."""

    task, num_classes, class_weights = "multiclass", CLASSES, None

    def __init__(self):
        owner = torch.eye(CLASSES, dtype=torch.bool).repeat_interleave(UNITS // CLASSES, dim=0)
        Planted.__init__(self, owner.T.float(), owner, SIZE // CELLS)
        self.backbone = nn.AvgPool2d(SIZE // CELLS)
        self.prototypes = nn.Parameter(COLOURS.repeat_interleave(UNITS // CLASSES, dim=0))

    def embed(self, images):
        return self.backbone(images)

    def distance_maps(self, latent, units=None):
        distances = torch.cdist(latent.flatten(2).transpose(1, 2), self.prototypes).transpose(1, 2)
        return distances.unflatten(2, latent.shape[2:])

    def allowed(self, targets):
        return self.owner.T[targets]

    def load_patches(self, patches, valid, source):
        self.prototypes.data[valid] = patches[valid]

    def load_weights(self, weight):
        self.weight.data = weight.float()

    def maps(self, latent):
        return -self.distance_maps(self.embed(latent * self.input_std + GREY))

    def units(self):
        return UnitTable("prototype", self.active, self.owner, "max", self.weight.detach(), self.prototypes.detach())

    def decide(self, scores):
        return ModelOutput(self.head(scores), scores, scores[:, :, None, None][..., :0])


class Painted:
    """Grey images with so many cells of the colour of the class, at random places."""

    image_size, has_validation = (SIZE, SIZE), True

    def __init__(self, cells, images=48):
        generator = torch.Generator().manual_seed(cells)
        self.samples = []
        for index in range(images):
            grid = torch.full((3, CELLS * CELLS), GREY)
            grid[:, torch.randperm(CELLS * CELLS, generator=generator)[:cells]] = COLOURS[index % CLASSES, :, None]
            image = grid.view(3, CELLS, CELLS).repeat_interleave(8, 1).repeat_interleave(8, 2)
            names = {"sample_key": index, "sample_id": f"{index}"}
            self.samples.append({"image": image, "label": index % CLASSES} | names)

    def shown(self, split):
        return self.samples

    def projection_dataloader(self):
        return [torch.utils.data.default_collate(self.samples)]

    val_dataloader = projection_dataloader


def accuracy(exchange, data):
    (batch,) = data.projection_dataloader()
    images = Images(batch["image"], batch["sample_key"], batch["sample_id"])
    both = exchange.logits(images, Prototypes()(batch["image"]).scores)
    return [float((logits.argmax(dim=1) == batch["label"]).double().mean()) for logits in both]


def test_the_more_patches_show_the_class_the_less_is_lost():
    """Grey patches are at chance, as are those of other photos; where every cell has the colour, any patch will do."""
    series = []
    for cells in (1, 8, 24, 64):
        model, data = Prototypes(), Painted(cells)
        before = copy.deepcopy(model.state_dict())
        exchange = exchange_units(model, data, seed=0, chunk=16)
        foreign, own = accuracy(exchange, data)
        series.append(foreign)
        assert own == 1
        assert not torch.equal(exchange.own.weight, model.weight)  # fitted again, as the other
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert series == sorted(series)
    assert (series[0], series[-1]) == (pytest.approx(1 / CLASSES), 1)


def test_prototypes_become_the_nearest_patches_of_other_photos():
    """Those of images with other labels, all of whose cells have one colour, which every class then looks like."""
    other = Painted(64)
    other.samples = [{**each, "label": 7} for each in other.samples if each["label"] == 2]
    for _ in ("projection", "test"):
        exchange = exchange_units(Prototypes(), Painted(8), seed=0, chunk=16, foreign=other)
        assert torch.equal(exchange.observer.model.prototypes.data, COLOURS[2].expand(UNITS, -1))
        other.scheme, other.test_dataloader = "test", other.projection_dataloader  # a folder that is not divided
        other.projection_dataloader = None


def test_why_units_cannot_be_exchanged():
    assert not_exchangeable(Prototypes()) is None
    built = {name: MODELS[name](num_classes=4, image_size=(32, 32)).eval() for name in ("PIPNet", "ProtoTree")}
    assert "not prototypes" in not_exchangeable(built["PIPNet"])
    assert "no last layer" in not_exchangeable(built["ProtoTree"])
