"""Pictures of parts: two squares of known importance, and where they are drawn."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import ImageColor

from protometry.evaluation.pictures.funnybirds.part_pictures import (
    LINE,
    NAME,
    NUMBER,
    SIDE,
    part_picture,
)
from protometry.evaluation.pictures.funnybirds.parts import read_birds
from protometry.evaluation.pictures.funnybirds.spider import AXES, spider_plot
from protometry.explanations import Explainer
from protometry.explanations.views import AGAINST, FOR, GAP
from protometry.lightning_modules.contract import ModelOutput, UnitTable

CODES = {"beak": (2,), "tail": (9,)}
HEADER = 24  # of a group of a sheet


class Squares:
    """Beak and tail are squares of 2 x 2 pixels, bright in classes with the second variant."""

    parts = dict.fromkeys(CODES, ("dark", "bright"))
    classes = ({"beak": 0, "tail": 0}, {"beak": 0, "tail": 1}, {"beak": 1, "tail": 0})

    def __len__(self):
        return 3

    def label(self, i):
        return i

    def sample_id(self, i):
        return f"test/{i}"

    def present(self, i):
        return {"tail"} if i == 1 else {"beak", "tail"}

    def image(self, i):
        return self.intervene(i)

    def intervene(self, i, drop=()):
        image = torch.zeros(16, 16, 3, dtype=torch.uint8)
        for j, name in enumerate(CODES):
            if name in self.present(i) - set(drop):
                image[4 * j : 4 * j + 2, :2] = 51 * (1 + self.classes[i][name])
        return image.numpy()

    def label_map(self, i):
        codes = torch.zeros(16, 16, dtype=torch.uint8)
        codes[:2, :2], codes[4:6, :2] = 2, 9
        return codes.numpy()


class Reader(torch.nn.Module):
    """The logit of class 0 is ten times the brightness of the tail minus five times the brightness of the beak."""

    def forward(self, images):
        beak, tail = images[:, 0, 0, 0], images[:, 0, 4, 0]
        logits = torch.stack([10 * tail - 5 * beak, tail, tail], dim=1)
        return ModelOutput(logits, logits, logits[:, :, None, None])

    def units(self):
        return UnitTable("class", torch.ones(3, dtype=torch.bool), torch.eye(3, dtype=torch.bool), "max", torch.eye(3))


class Planted(Explainer):
    """1 on the beak and 3 on the tail, and the opposite for class 2."""

    key, explains = "planted", frozenset({"class"})

    def _maps(self, model, asked):
        maps = torch.zeros(len(asked.images), 16, 16)
        maps[:, :2, :2], maps[:, 4:6, :2] = 1, 3
        return torch.where((asked.ids == 2)[:, None, None], -maps, maps)


@pytest.fixture
def model():
    return Reader().eval()


def test_what_is_read(model):
    first, second, third = read_birds(model, Squares(), CODES, {"planted": Planted()}, 3)
    assert first.drops.tolist() == pytest.approx([-1, 2])  # brightness 0.2 each
    assert second.drops.tolist() == pytest.approx([0, 0.4])  # the beak is not there
    explained = first.explained["planted"]
    assert (explained.importance.tolist(), explained.single_deletion) == ([4, 12], 1)
    assert third.explained["planted"].importance.tolist() == [-4, -12]  # of its own class


def colours_along(picture, x, y, width):
    return [picture.getpixel((x + step, y)) for step in range(width)]


def test_where_it_is_drawn(model):
    names = ["zero", "one", "two"]
    data = SimpleNamespace(tables=SimpleNamespace(label_map_codes=CODES))
    explained = SimpleNamespace(model=model, class_names=names, datamodule=data)
    bars = part_picture(explained, Squares(), {"planted": Planted()})
    top = HEADER + SIDE + 4 * LINE + LINE // 2
    orange, blue = ImageColor.getrgb(FOR), ImageColor.getrgb(AGAINST)
    beak, tail = (colours_along(bars, GAP + NAME, top + row * LINE, SIDE - NAME) for row in range(2))
    assert (beak.count(orange), tail.count(blue)) == (0, 0)
    assert tail.count(orange) == pytest.approx(2 * beak.count(blue), abs=3)  # -1 and 2
    left = GAP + NAME + SIDE + NUMBER + 2 * GAP
    beak, tail = (colours_along(bars, left, top + row * LINE, SIDE - NAME).count(orange) for row in range(2))
    assert tail == pytest.approx(3 * beak, abs=3)


def test_spider():
    metrics = {f"funnybirds/{name}": {"value": 0.1 * axis} for axis, name in enumerate(AXES)}
    metrics["funnybirds/sd"]["value"] = math.nan
    metrics["funnybirds/completeness"] = {"value": 0.5}
    (axes,) = spider_plot(metrics, "model").axes
    angles, values = axes.lines[0].get_data()
    assert axes.get_ylim() == (0, 1)
    known = [axis for axis, name in enumerate(AXES) if name != "sd"]
    known += known[:1]  # back to the first
    assert np.allclose(values, 0.1 * np.array(known))
    assert np.allclose(angles, 2 * np.pi * np.array(known) / len(AXES))
    texts = [label.get_text() for label in axes.get_xticklabels()]
    assert texts == [
        f"{label}\n{'undefined' if name == 'sd' else f'{0.1 * axis:.2f}'}"
        for axis, (name, label) in enumerate(AXES.items())
    ]
    assert axes.get_xlabel() == "completeness undefined"  # without the number of important parts
    assert spider_plot({key: value for key, value in metrics.items() if key != "funnybirds/ts"}, "model") is None
