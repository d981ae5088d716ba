"""The page of metrics: what every metric asks, and the images at either end."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from metrics.suite import ENTRIES, FAMILIES
from reports.html.metrics_page import metrics_page
from reports.results.values_csv import ImageValues
from tests.reports.evaluated import evaluation_files


def entry(value, higher, unit="fraction"):
    return {"value": value, "ci95": [None, None], "n": 4, "unit": unit, "higher_is_better": higher}


def test_what_is_shown_of_a_metric():
    measured = {
        "continuity/psc": entry(0.25, False),
        "continuity/of_a_user": entry(None, None, ""),
        "own/size": entry(2.0, True, "cells") | {"averaged_over": "label", "without_images": 2},
    }
    values = ImageValues(["a", "b", "c", "d"], ["continuity/psc"], np.array([[0.1], [0.3], [np.nan], [0.2]]))
    links = {name: f"{name}.html" for name in "abc"}  # d has no page
    contents = SimpleNamespace(files=replace(evaluation_files(metrics=measured), images=values), image_links=links)
    shown = metrics_page(SimpleNamespace(page=lambda *args, **context: None), contents)
    (question, (psc, unknown)), (nothing, (size,)) = shown["continuity"], shown["own"]
    assert question == unknown.question == FAMILIES["continuity"].question
    assert (psc.key, psc.question) == ("psc", ENTRIES["continuity/psc"].words.question)
    assert (psc.name, unknown.name) == ("Prototype similarity change", "of_a_user")
    assert (psc.value, psc.better, psc.interval) == ("25.00 %", "lower", "")
    assert (psc.best[0], psc.worst[0]) == (("a", "a.html"), ("b", "b.html"))
    assert (psc.lacking, size.lacking) == ("", "2 labels have no image")
    assert (unknown.value, unknown.better, unknown.best) == ("undefined", "", [])
    assert (nothing, size.question, size.value, size.better) == ("", "", "2.00 cells", "higher")
