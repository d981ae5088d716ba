"""The picture of an evaluation in which concepts were corrected: accuracy after each step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from protometry.evaluation.pictures.family import Evaluated, PictureFamily
from protometry.explanations.charts import BAND, BLUE, ORANGE, chart, styled, to_picture

WIDTH, HEIGHT = 360, 260  # of a panel
ORDERS = {"": (BLUE, "-", "random order"), "_uncertainty": (ORANGE, "--", "most uncertain first")}
PANELS = {
    "": "concepts of one question at a time",
    "_single": "concept by concept",
    "_binary": "1 or 0, a question at a time",
    "_percentiles": "percentiles, a question at a time",
}


def intervention_pictures(evaluated: Evaluated) -> dict[str, Image.Image]:
    """Curves of correction, where the evaluation has any.

    Args:
        evaluated: the results of an evaluation; the entries ``intervention/area...`` hold their ``curve``.
    """
    figure = intervention_curves(evaluated.metrics)
    return {} if figure is None else {"intervention": to_picture(figure)}


@styled
def intervention_curves(metrics: Mapping[str, Mapping[str, Any]]) -> Figure | None:
    """Curves of correction side by side, the random order with a standard deviation over its trials."""
    by_title = {
        title: {order: metrics[key] for order in ORDERS if (key := f"intervention/area{panel}{order}") in metrics}
        for panel, title in PANELS.items()
    }
    filled = {title: curves for title, curves in by_title.items() if curves}
    if not filled:
        return None
    figure, panels = chart(WIDTH, HEIGHT, columns=len(filled))
    for axes, (title, curves) in zip(panels, filled.items(), strict=True):
        for order, entry in curves.items():
            (colour, line, name), curve = ORDERS[order], 100 * np.array(entry["curve"])
            if order == "":
                spread = 100 * np.array(entry["curve_sd"])
                axes.fill_between(range(len(curve)), curve - spread, curve + spread, color=BAND)
            axes.plot(curve, line, color=colour, label=name)
        axes.set(title=title, xlabel="steps; accuracy in %", xlim=(0, len(curve) - 1), ylim=(0, 100))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="lower right")
    return figure


FAMILY = PictureFamily(
    intervention_pictures,
    {"intervention": "How accuracy grows as a person corrects the concepts, one question after the other."},
)
