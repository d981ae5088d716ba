"""Pictures of concepts: what is where, in pixels."""

import math
from types import SimpleNamespace

import pytest
import torch
from PIL.ImageColor import getrgb

from protometry.datamodules.sample import ClassTables
from protometry.evaluation.pictures import concepts
from protometry.evaluation.pictures.concepts import LINE, TILE, concept_pictures, importance_histograms
from protometry.evaluation.pictures.family import Evaluated
from protometry.explanations.views import GAP
from protometry.lightning_modules.bases.geometry import Geometry
from protometry.lightning_modules.contract import ModelOutput, UnitTable

PRESENT, ABSENT = getrgb(concepts.PRESENT), getrgb(concepts.ABSENT)
ITEMS = {"classes": {"concepts/cgim1_class": [0.51, 0.52, -0.88, math.nan]}, "units": {"alignment/purity": [1.0]}}
TABLES = ClassTables(
    part_names=["left eye", "right eye", "tail"], part_to_group=torch.tensor([0, 0, 1]),
    concept_names=["round eye", "red tail"], concept_to_part=torch.tensor([0, 1]),
)  # fmt: skip


def colours(picture, box):
    return {colour for _, colour in picture.crop(box).getcolors(maxcolors=100_000)}


def test_bars_of_a_histogram():
    (axes,) = importance_histograms(ITEMS).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert {index: height for index, height in enumerate(heights) if height} == {2: 1, 30: 2}  # -0.88; above 0.5
    assert axes.lines[0].get_xdata()[0] == pytest.approx(0.05)
    assert axes.get_title("left") == "cgim1_class: mean 0.05 of 3, highest bar 2"
    empty = importance_histograms({"classes": {"concepts/cgim1_class": [math.nan]}})
    assert empty.axes[0].get_title("left") == "cgim1_class: mean nan of 0, highest bar 1"
    assert importance_histograms({"units": ITEMS["units"]}) is None


def model(images):
    """Unit 2 stands for the tail, unit 0 for the eye; the tail counts more. Its map is high in the last corner."""
    maps = torch.zeros(len(images), 3, 8, 8)
    maps[:, 2, 5:, 5:], maps[:, 0, :3, :3] = 1, 1
    scores = torch.tensor([[1.0, 9.0, 2.0]]).repeat(len(images), 1)
    return ModelOutput(torch.tensor([[0.0, 1.0]]).repeat(len(images), 1), scores, maps)


model.geometry = Geometry((8, 8), (8, 8), 1, 1, 0.5)


def evaluation(dataset, named):
    units = UnitTable("concept", torch.ones(3, dtype=torch.bool), torch.ones(3, 2) > 0, "max", weight=torch.ones(2, 3))
    explained = SimpleNamespace(
        model=model, units=units, class_names=["first", "second"], datamodule=SimpleNamespace(tables=TABLES)
    )
    return Evaluated(explained, {}, {}, "test", dataset, named)


def test_panels():
    sample = {
        "image": torch.full((3, 8, 8), 0.25), "label": torch.tensor(1), "sample_id": "one",
        "concepts": torch.tensor([True, False]), "part_points": torch.tensor([[3.0, 3.0]] * 3),
        "part_visible": torch.tensor([True, False, False]),
    }  # fmt: skip
    evaluated = evaluation([sample], (torch.tensor([0, 2]), torch.tensor([0, 1])))
    picture = concept_pictures(evaluated)["concept_panels"]
    step_x, step_y, top = TILE + 2 * GAP, TILE + 2 * LINE + GAP, 24
    assert picture.width == 4 * step_x  # image, two concepts, class
    marks, outputs = [], []
    for column in range(1, 3):
        left, base = GAP + column * step_x, top + TILE
        marks.append(colours(picture, (left, base, left + 14, base + 14)) & {PRESENT, ABSENT})
        region = (left, top + step_y, left + TILE, top + step_y + TILE)
        outputs.append([picture.crop(region).getpixel((x, x)) == (64, 64, 64) for x in (9, TILE - 9)])
    assert marks == [{ABSENT}, {PRESENT}]  # the tail is first, and not there
    assert outputs == [[False, True], [True, False]]  # where the map is high, the image shows
    rings = [
        (255, 255, 255) in colours(picture, (GAP + column * step_x, top, GAP + column * step_x + TILE, top + TILE))
        for column in range(1, 3)
    ]
    assert rings == [False, True]  # the tail is out of sight
    assert concept_pictures(evaluation([sample], None)) == {}
