"""The picture of the curves of correction."""

from PIL import ImageColor

from reports.pictures.family import Evaluated
from reports.pictures.intervention import BAND, COLOURS, HEIGHT, WIDTH, _places, intervention_pictures


def entry(curve, spread):
    return {"curve": curve, "curve_sd": [spread] * len(curve)}


def test_every_point_of_a_curve_is_drawn_in_its_panel():
    metrics = {
        "general/accuracy": {"value": 0.5},
        "intervention/area": entry([0.2, 0.3, 0.9], 0.1),
        "intervention/area_uncertainty": entry([0.2, 0.8, 0.9], float("nan")),
        "intervention/area_single_uncertainty": entry([0.2, 0.9], float("nan")),
    }
    picture = intervention_pictures(Evaluated(None, metrics, {}, "test", []))["intervention"]
    assert picture.size == (2 * WIDTH, HEIGHT)  # two panels: by questions, and one by one
    for panel, order, curve in (
        (0, "", [0.2, 0.3, 0.9]),
        (0, "_uncertainty", [0.2, 0.8, 0.9]),
        (1, "_uncertainty", [0.2, 0.9]),
    ):
        colour = ImageColor.getrgb(COLOURS[order][0])
        for x, y in _places(curve)[1:-1] if panel == 0 else _places(curve)[:1]:
            assert picture.getpixel((panel * WIDTH + round(x), round(y))) == colour
    x, y = _places([0.2, 0.38, 0.9])[1]  # within a standard deviation of the random order
    assert picture.getpixel((round(x), round(y))) == ImageColor.getrgb(BAND)
    assert intervention_pictures(Evaluated(None, {"general/accuracy": {"value": 0.5}}, {}, "test", [])) == {}
