"""The picture of the curves of correction."""

from math import nan

import numpy as np

from protometry.evaluation.pictures.family import Evaluated
from protometry.evaluation.pictures.intervention import HEIGHT, WIDTH, intervention_curves, intervention_pictures


def entry(curve, spread):
    return {"curve": curve, "curve_sd": [spread] * len(curve)}


def test_every_curve_is_in_its_panel():
    metrics = {
        "general/accuracy": {"value": 0.5},
        "intervention/area": entry([0.2, 0.3, 0.9], 0.1),
        "intervention/area_uncertainty": entry([0.2, 0.8, 0.9], nan),
        "intervention/area_single_uncertainty": entry([0.2, 0.9], nan),
    }
    by_question, one_by_one = intervention_curves(metrics).axes  # two panels
    random, uncertain = (line.get_ydata() for line in by_question.lines)
    assert np.allclose(random, [20, 30, 90])
    assert np.allclose(uncertain, [20, 80, 90])
    (band,) = by_question.collections  # of the random order only: a standard deviation on either side
    points = band.get_paths()[0].vertices
    assert sorted({round(y) for x, y in points if x == 1}) == [20, 40]
    assert np.allclose(one_by_one.lines[0].get_ydata(), [20, 90])
    names = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in (by_question, one_by_one)]
    assert names == [["random order", "most uncertain first"], ["most uncertain first"]]
    picture = intervention_pictures(Evaluated(None, metrics, {}, "test", []))["intervention"]
    assert picture.size == (2 * WIDTH, HEIGHT)
    assert intervention_pictures(Evaluated(None, {"general/accuracy": {"value": 0.5}}, {}, "test", [])) == {}
