import pytest
import torch
from torch import nn

from protometry.explanations.explainer import Targets
from protometry.explanations.summed_maps import BoxMaps, SummedMaps, weights_of_classes
from protometry.lightning_modules.contract import UnitTable
from protometry.metrics.primitives.upsample import upsample_maps
from tests.explanations.small_models import MeanPooled, rand, randn

# two classes; class 0 owns units 0 and 2, class 1 owns 1 and 2
WEIGHT = torch.tensor([[2.0, -1.0, 0.5], [-1.0, 3.0, 1.0]])
close = torch.testing.assert_close


class Owned(MeanPooled):
    """Units are the colour channels."""

    def __init__(self, size=(6, 8), cell=1):
        super().__init__(nn.AvgPool2d(cell), WEIGHT, size=size)

    def contributions(self, output, classes):
        return WEIGHT[classes] * output.scores


def explain(explainer, images, classes, **options):
    return explainer.attribute(Owned(tuple(images.shape[2:]), **options), images, Targets("class", classes))


def test_sum_by_hand():
    images = rand(2, 3, 6, 8)
    images[1, 2] = 0  # its score is 0
    maps = explain(SummedMaps(), images, torch.tensor([[0, 1], [0, -1]]))
    close(maps[0, 0], 2 * images[0, 0] + 0.5 * images[0, 2])
    close(maps[0, 1], 3 * images[0, 1] + images[0, 2])  # another class, other maps
    close(maps[1, 0], 2 * images[1, 0])
    assert maps[1, 1].isnan().all()


def test_the_sum_equals_the_sum_of_enlarged_maps():
    images = randn(3, 3, 12, 8)
    model, classes = Owned((12, 8), cell=4), torch.tensor([1, 0, 1])
    output = model(images)
    weights = weights_of_classes(model, output, classes)
    assert (weights[:, :2] == 0).tolist() == [[True, False], [False, True], [True, False]]
    slow = sum(weights[:, u, None, None] * upsample_maps(output.maps[:, u], (12, 8)) for u in range(3))
    close(SummedMaps().attribute(model, images, Targets("class", classes[:, None]))[:, 0], slow, rtol=0, atol=1e-5)


def test_units_that_are_not_active_have_no_weight(monkeypatch):
    model, images = Owned(), rand(1, 3, 6, 8)
    table = UnitTable("feature", torch.tensor([False, True, True]), WEIGHT.T > 0, "mean", WEIGHT)
    monkeypatch.setattr(model, "units", lambda: table)
    assert weights_of_classes(model, model(images), torch.tensor([0]))[0].tolist() == pytest.approx([0, 0, 0.5])
    assert (
        not BoxMaps().region(model, model(images * torch.tensor([1, 1, 0])[:, None, None]), torch.tensor([[0]])).any()
    )


def test_boxes_by_hand():
    images = torch.zeros(1, 3, 10, 10)  # 5 % of 100 pixels lie above the quantile
    images[0, 0, 2, 3] = images[0, 0, 5, 4] = 1  # of class 0: rows 2 to 5, columns 3 and 4
    images[0, 2, 5, 4] = images[0, 2, 8, 9] = 2  # of both: rows 5 to 8, columns 4 to 9
    maps = explain(BoxMaps(), images, torch.tensor([[0, 1]]))
    expected = torch.zeros(2, 10, 10)
    expected[0, 2:6, 3:5] += 2 * 0.02  # weight times mean
    expected[0, 5:9, 4:10] += 0.5 * 0.04
    expected[1, 5:9, 4:10] += 1 * 0.04  # the map of unit 1 is flat: no box
    close(maps[0], expected)
    model = Owned((10, 10))
    region = BoxMaps().region(model, model(images), torch.tensor([[0, 1, -1]]), (10, 10))
    assert torch.equal(region[0, :2], expected > 0)
    assert not region[0, 2].any()


def test_boxes_of_the_released_code_by_hand():
    images = torch.zeros(1, 3, 10, 10)
    images[0, 0] = torch.arange(100).view(10, 10) / 1000
    images[0, 0, 2, 3] = images[0, 0, 5, 4] = 1  # the five highest: rows 2 to 9, columns 3 to 9
    model = Owned((10, 10))
    for map in (torch.zeros(10, 10), torch.eye(100)[33].view(10, 10)):  # most pixels are at the quantile, none below
        images[0, 1:] = map
        regions = BoxMaps("reference").region(model, model(images), torch.tensor([[0, 1]]), (10, 10))[0]
        boxes = [region.nonzero()[[0, -1]].flatten().tolist() for region in regions]
        assert boxes == [[0, 0, 8, 8]] * 2
    images[0, 2] = images[0, 0]  # of class 0 alone
    region = BoxMaps("reference").region(model, model(images), torch.tensor([[0]]), (10, 10))[0, 0]
    assert region.nonzero()[[0, -1]].flatten().tolist() == [2, 3, 8, 8]


def test_the_released_code_fills_boxes_with_the_weights_of_class_three(monkeypatch):
    """Of the units that the class owns, in the boxes of these."""
    rows = torch.cat([WEIGHT, torch.zeros(1, 3), torch.tensor([[5.0, 7.0, -4.0]])])
    monkeypatch.setattr(f"{__name__}.WEIGHT", rows)
    model, images = Owned((10, 10)), rand(1, 3, 10, 10)
    scores, (_, unit, boxes) = model(images).scores[0], BoxMaps("reference")._boxes(
        model, model(images), torch.tensor([0]), (10, 10)
    )  # fmt: skip
    for variant, weight in (("reference", rows[3]), ("corrected", rows[0])):
        expected = torch.zeros(10, 10)
        for u, (x0, y0, x1, y1) in zip(unit.tolist(), boxes.tolist(), strict=True):
            expected[y0 : y1 + 1, x0 : x1 + 1] += weight[u] * scores[u]
        close(explain(BoxMaps(variant), images, torch.tensor([[0]]))[0, 0], expected)
    monkeypatch.setattr(f"{__name__}.WEIGHT", rows[:3])
    assert "the model has no such class" in BoxMaps("reference").supports(Owned((10, 10)))


def test_boxes_in_any_batch(monkeypatch):
    images, classes = randn(5, 3, 9, 7), torch.tensor([[0, 1], [1, 0], [0, -1], [1, 1], [-1, 0]])
    together = explain(BoxMaps(), images, classes)
    monkeypatch.setattr("protometry.explanations.summed_maps._PIXELS_AT_ONCE", 2 * 9 * 7)
    alone = torch.cat([explain(BoxMaps(), images[b : b + 1], classes[b : b + 1]) for b in range(5)])
    close(explain(BoxMaps(), images, classes), together, equal_nan=True)
    close(alone, together, equal_nan=True)
    assert together[0].isfinite().all()


def test_unknown_variant():
    with pytest.raises(ValueError, match="`variant` to be one of"):
        BoxMaps("paper")
