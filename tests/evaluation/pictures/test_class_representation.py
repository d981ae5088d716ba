"""Pictures of class representations: what is where, in pixels."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import torch
from PIL import ImageChops

from protometry.datamodules.sample import ClassTables
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.pictures.class_representation import (
    BAR,
    CELL,
    GAP,
    NAME_WIDTH,
    class_feature_matrix,
    class_pictures,
    nearest_classes,
)
from protometry.evaluation.pictures.family import Evaluated
from protometry.lightning_modules.contract import UnitTable

WEIGHT = torch.tensor([[0.0, 2.0, 0.0], [-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]).double()
ATTRIBUTES = torch.tensor([[1.0, 0.25], [1.0, 0.75], [0.0, 1.0]]).double()
CLASSES, FEATURES, NAMES = ["first", "second", "third"], ["0", "1", "2"], ["beak", "eye"]
KEYS = ["class_representation/sid@5", "class_representation/structural_grounding"]


def test_the_matrix_has_a_column_for_every_feature_by_its_class():
    picture = class_feature_matrix(WEIGHT, CLASSES, FEATURES)  # units 1 (first), 0 (third); unit 2 is in no class
    top = picture.height - 3 * CELL - GAP
    assert picture.width == NAME_WIDTH + 2 * CELL + GAP
    centres = [[(NAME_WIDTH + CELL * c + 7, top + CELL * r + 7) for c in range(2)] for r in range(3)]
    colours = [[picture.getpixel(centre) for centre in row] for row in centres]
    white, full, half = (255, 255, 255), (217, 95, 2), (144, 170, 222)
    assert colours == [[full, white], [white, half], [white, (236, 175, 128)]]  # the largest magnitude is 2


def test_the_nearest_classes_and_what_separates_them():
    picture = nearest_classes(WEIGHT, ATTRIBUTES, CLASSES, FEATURES, NAMES, 1)  # first and second, by the eye
    left, top = 4 + NAME_WIDTH, picture.height - 4 - 3 * CELL + 7  # of the first bar, in the tile in the sheet
    filled = [
        sum(picture.getpixel((left + x, top + row * CELL)) == (96, 96, 96) for x in range(BAR)) for row in range(2)
    ]
    assert filled == [26, 75]  # 1/4 and 3/4 of 100 pixels, with the rim
    other = nearest_classes(WEIGHT, ATTRIBUTES.flip(1), CLASSES, FEATURES, NAMES, 1)  # now by the beak
    assert ImageChops.difference(picture, other).getbbox()[3] <= top - 7  # nothing but the name differs


def test_pictures_of_many_features_and_of_what_was_measured():
    wide = class_feature_matrix(torch.randn(4, 1700).double(), ["bird"] * 4, list(map(str, range(1700))))
    assert wide.width == NAME_WIDTH + 1700 + GAP  # a pixel each, also where they are more than 1600
    active = torch.tensor([True, False, True])
    units = UnitTable("feature", active, torch.ones(3, 3, dtype=torch.bool), "max", WEIGHT.requires_grad_())

    def pictures(keys, units):
        data = SimpleNamespace(tables=tables)
        own = {"concept_names": ["a long name", "eye"]}  # of the model, whatever the data name
        explained = SimpleNamespace(units=units, class_names=CLASSES, datamodule=data, **own)
        explained.concept_name = partial(ExplainedModel.concept_name, explained)
        return class_pictures(Evaluated(explained, dict.fromkeys(keys), {}, "test", []))

    tables = ClassTables(class_attributes=ATTRIBUTES, attribute_names=NAMES)
    assert list(pictures(KEYS, units)) == ["class_features", "nearest_classes"]
    (matrix,) = pictures(KEYS[:1], units).values()
    assert matrix.width == NAME_WIDTH + CELL + GAP  # unit 1 is not active
    named = replace(units, concepts=torch.tensor([0, 1, -1]))
    assert pictures(KEYS[:1], named)["class_features"].height > matrix.height + 40
    assert (pictures(["general/accuracy"], units), pictures(KEYS, replace(units, weight=0 * WEIGHT))) == ({}, {})
