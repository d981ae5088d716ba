"""The spider plot of an evaluation by the FunnyBirds protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from protometry.explanations.charts import BAND, BLUE, DPI, radial, styled

AXES = {
    "accuracy": "accuracy", "bi": "BI", "csdc": "CSDC", "pc": "PC", "dc": "DC", "d": "D", "sd": "SD", "ts": "TS",
}  # fmt: skip
SIZE = 440  # pixels
FAMILY = "funnybirds/"


@styled
def spider_plot(metrics: Mapping[str, Mapping[str, Any]], title: str) -> Figure | None:
    """All metrics on axes from 0 (centre) to 1, as Hesse et al. (2023) draw a model with its explanations.

    Returns:
        The plot; None if a metric is missing. An undefined one has no point, and the outline continues with the next.
    """
    if any(FAMILY + name not in metrics for name in AXES):
        return None
    values = np.array([metrics[FAMILY + name]["value"] for name in AXES], dtype=np.float64)
    defined = ~np.isnan(values)
    texts = [f"{value:.2f}" if there else "undefined" for value, there in zip(values, defined, strict=True)]
    figure = Figure((SIZE / DPI, SIZE / DPI), DPI, layout="constrained")
    axes, angles = radial(figure, [f"{name}\n{text}" for name, text in zip(AXES.values(), texts, strict=True)])
    points = [np.append(each[defined], each[defined][:1]) for each in (np.array(angles), values)]
    axes.fill(*points, color=BAND)
    axes.plot(*points, "o-", color=BLUE)
    axes.set_xlabel(_below(metrics))
    axes.set_title(title, loc="center")
    return figure


def _below(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Completeness, and the number of important parts, without which it says little."""
    values = [metrics.get(FAMILY + name, {}).get("value", math.nan) for name in ("completeness", "important_parts")]
    if any(math.isnan(value) for value in values):
        return "completeness undefined"
    return "completeness {:.2f} with {:.1f} important parts".format(*values)
