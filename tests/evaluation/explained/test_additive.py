"""Additive tables against a hand oracle, and against the logits and probabilities of every model."""

import math
from dataclasses import replace

import pytest
import torch

from protometry.evaluation.explained.additive import Amount, additive_tables, by_place
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from tests.lightning_modules.registry import MODELS


class Two:
    """Two classes, three units, the last one inactive; logits are W s + (1, 0)."""

    weight = torch.tensor([[2.0, -1.0, 5.0], [0.5, 1.0, 5.0]])

    def units(self):
        active = torch.tensor([True, True, False])
        return UnitTable("prototype", active, torch.ones(3, 2, dtype=torch.bool), "max", weight=self.weight)

    def head(self, scores):
        return scores @ torch.tensor([[2.0, -1.0, 0.0], [0.5, 1.0, 0.0]]).T + torch.tensor([1.0, 0.0])

    def probabilities(self, logits):
        return logits.softmax(dim=1)


def output(residual=None):
    scores = torch.tensor([[3.0, 4.0, 0.0]])
    logits = Two().head(scores) + (0 if residual is None else residual)
    extras = {} if residual is None else {"residual": residual}
    return ModelOutput(logits, scores, torch.zeros(1, 3, 1, 1), None, extras)


def test_by_hand():
    ((first, second),) = additive_tables(Two(), output(), [[0, 1]], most=1)
    # class 0: 2*3 = 6, -1*4 = -4, bias 1: logit 3; class 1: 0.5*3 = 1.5, 1*4 = 4: logit 5.5; their means 3.75, 0, 0.5
    assert (first.logit, first.margin) == (3.0, Amount(-1.25, 3.0, -2.5))
    (line,) = first.lines
    assert (line.unit, line.score, line.weight, line.contribution) == (1, 4.0, -1.0, Amount(-4.0, -4.0, -8.0))
    assert (first.rest, first.others, first.bias) == (Amount(2.25, 6.0, 4.5), 1, Amount(0.5, 1.0, 1.0))
    assert (first.total, [(line.unit, line.contribution.value) for line in second.lines]) == (first.margin, [(1, 4.0)])
    assert (first.rival, second.rival) == (1, 0)
    assert first.probability == pytest.approx(1 / (1 + torch.tensor(2.5).exp().item()))


def test_labels_that_are_independent_are_held_against_the_threshold():
    model = Two()
    model.decision_threshold = torch.tensor(0.5)
    ((table,),) = additive_tables(model, output(), [[0]])
    assert [line.contribution.value for line in table.lines] == [6.0, -4.0]
    assert (table.bias, table.margin, table.against) == (Amount(0.5, 1, 1), Amount(2.5, 3, -2.5), "the threshold")
    table.check("page", "a", "b")


def test_a_residual_is_a_line_of_its_own():
    ((table,),) = additive_tables(Two(), output(torch.tensor([[0.25, 0.0]])), [[0]])
    assert (table.residual, table.logit, table.total.raw) == (Amount(0.125, 0.25, 0.25), 3.25, 3.25)
    table.check("page", "a", "b")


def test_units_at_one_place_share_a_line():
    ((table,),) = additive_tables(Two(), output(), [[0]])
    lines = [replace(table.lines[0], unit=unit, contribution=Amount(v, v, v)) for unit, v in enumerate((5, -4, 3, -2))]
    table = replace(table, lines=lines, others=7, rest=Amount(1, 1, 1))
    # 5 - 4 = 1 at the first place, 3 at the third, -2 at none: the largest sums stay
    shown = by_place(table, [0, 0, 2, -1], most=2)
    assert [(line.unit, [other.unit for other in line.same], line.total.value) for line in shown.lines] == [
        (2, [], 3),
        (3, [], -2),
    ]
    assert (shown.others, shown.rest.value, shown.total) == (9, 2, table.total)
    assert [len(line.same) for line in by_place(table, [0, 0, 2, -1], most=3).lines] == [0, 0, 1]


def test_against_another_class_both_sides_are_shown():
    ((table,),) = additive_tables(Two(), output(), [[0]], rivals=[1])
    lines = [replace(table.lines[0], unit=unit, contribution=Amount(0, 0, v)) for unit, v in enumerate((5, 4, 3, -2))]
    table = replace(table, lines=lines, others=7, rest=Amount(0, 0, 1))
    # 5 + 4 = 9 at the first place; the second line gives way to the only one that speaks for the other class
    shown = by_place(table, [0, 0, 2, 0], most=2)
    assert [(line.unit, line.total.rival) for line in shown.lines] == [(0, 9), (3, -2)]
    assert (shown.others, shown.rest.rival) == (8, 4)


def test_a_wrong_weight_is_found():
    model = Two()
    model.weight = model.weight.clone()
    model.weight[0, 1] = -0.9
    ((table, other),) = additive_tables(model, output(), [[0, 1]])
    with pytest.raises(ValueError, match=r"on image-1\.html, for image x and class jay, to sum to .* 3, but got 3\.4"):
        table.check("image-1.html", "x", "jay")
    with pytest.raises(ValueError, match=r"class crow, to sum to .* less the mean over classes 1\.25, but got 1\.05"):
        other.check("image-1.html", "x", "crow")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_images_of_every_model(name):
    torch.manual_seed(1)
    model = MODELS[name](num_classes=4, image_size=(32, 32)).eval()
    with torch.no_grad():
        outputs = model(torch.rand(16, 3, *model.image_size))
    for table in (table for row in additive_tables(model, outputs, [[0, 1, 2]] * 16) for table in row):
        table.check("page", "image", "class")
        weighted = [line for line in table.lines if line.weight is not None]
        assert all(line.weight * line.score == pytest.approx(line.contribution.raw) for line in weighted)
        assert (table.bias is None) == (table.tree_path is not None) == (name == "ProtoTree")
        if table.tree_path is not None:
            chances = [line.contribution.value for line in table.lines]
            assert math.prod(chances) == pytest.approx(table.tree_path.reach)
            cut = by_place(table, [], most=1)
            assert (len(cut.lines), cut.others) == (1, len(chances) - 1)
            assert cut.lines[0].contribution.value * cut.rest.value == pytest.approx(table.tree_path.reach)
