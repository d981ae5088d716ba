"""Additive tables against a hand oracle and against the logits of every model with a linear head."""

import pytest
import torch

from lightning_modules.contract import ModelOutput, UnitTable
from reports.additive import additive_tables
from tests.lightning_modules.registry import MODELS


class Two:
    """Two classes, three units of which the last is not active; logits are W s + (1, 0)."""

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
    # class 0: 2*3 = 6, -1*4 = -4, bias 1: logit 3; class 1: 0.5*3 = 1.5, 1*4 = 4: logit 5.5
    assert (first.logit, first.bias, first.rest, first.others, first.total) == (3.0, 1.0, -4.0, 1, 3.0)
    (line,) = first.lines
    assert (line.unit, line.score, line.weight, line.contribution, line.difference) == (0, 3.0, 2.0, 6.0, 4.5)
    assert [(line.unit, line.contribution) for line in second.lines] == [(1, 4.0)]
    assert (first.rival, second.rival) == (1, 0)
    assert first.probability == pytest.approx(1 / (1 + torch.tensor(2.5).exp().item()))


def test_a_residual_is_a_line_of_its_own():
    ((table,),) = additive_tables(Two(), output(torch.tensor([[0.25, 0.0]])), [[0]])
    assert (table.residual, table.logit, table.total) == (0.25, 3.25, 3.25)
    table.check("page", "a", "b")


def test_a_wrong_weight_is_found():
    model = Two()
    model.weight = model.weight.clone()
    model.weight[0, 1] = -0.9
    ((table, other),) = additive_tables(model, output(), [[0, 1]])
    with pytest.raises(ValueError, match=r"on image-1\.html, for image x and class jay, to sum to .* 3, but got 3\.4"):
        table.check("image-1.html", "x", "jay")
    other.check("image-1.html", "x", "crow")


@pytest.mark.parametrize("name", sorted(MODELS))
def test_100_images_of_every_model(name):
    torch.manual_seed(1)
    model = MODELS[name](num_classes=4, image_size=(32, 32)).eval()
    images = torch.rand(100, 3, *model.image_size)
    with torch.no_grad():
        seen = model(images)
    tables = additive_tables(model, seen, [list(range(3))] * 100)
    linear = model.units().weight is not None
    assert all((table.bias is not None) == linear for row in tables for table in row)
    for row in tables:
        for table in row:
            table.check("page", "image", "class")
            assert all(line.weight is None or line.weight * line.score == line.contribution for line in table.lines)
