"""The page of metrics: what every metric asks, and the images at either end."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from protometry.evaluation.pages.evaluation_files import read_evaluation
from protometry.evaluation.pages.metrics_page import metrics_page
from protometry.evaluation.results.metrics_json import write_metrics
from protometry.evaluation.results.schema import Entry
from protometry.evaluation.results.values_csv import ImageValues
from protometry.metrics.suite import ENTRIES, FAMILIES
from tests.evaluation.explained.evaluated import content, entry, evaluation_files, write_run


def test_what_is_shown_of_a_metric():
    lift = {"lift_over_chance": 0.1, "lift_over_chance_low": -0.1, "lift_over_chance_high": 0.3}
    measured = {
        "continuity/psc": entry(0.25, higher=False) | lift,
        "continuity/of_a_user": entry(None, unit="", higher=None) | {"reason": "no pair"},
        "own/size": entry(2.0, unit="cells") | {"averaged_over": "label", "without_images": 2},
    }
    images = np.array([[0.1, 1.0], [0.3, 2.0], [np.nan, np.nan], [0.2, 3.0]])
    values = ImageValues(["a", "b", "c", "d"], ["continuity/psc", "own/size"], images)
    links = {name: f"{name}.html" for name in "abc"}  # d has no page
    random = {"continuity/psc": Entry(**entry(0.2)), "own/size": Entry(**entry(2.0))}
    files = replace(evaluation_files(metrics=measured), images=values, control=random)
    contents = SimpleNamespace(files=files, image_links=links)
    shown = metrics_page(SimpleNamespace(page=lambda *args, **context: None), contents)
    (question, (psc, unknown)), (nothing, (size,)) = shown["continuity"], shown["own"]
    assert question == unknown.question == FAMILIES["continuity"].question
    assert (psc.key, psc.question) == ("psc", ENTRIES["continuity/psc"].words.question)
    assert (psc.name, unknown.name) == ("Prototype similarity change", "of_a_user")
    assert (psc.value, psc.better, psc.interval) == ("25.00 %", "lower", "")
    assert (psc.compared, size.compared) == (["over chance: 10.00 % [-10.00, 30.00]"], [])
    assert (psc.control, unknown.control, size.control) == ("20.00 %", "", "")  # the last is the same
    assert (psc.best[0], psc.worst[0]) == (("a", "a.html"), ("b", "b.html"))
    assert (size.best[0], size.worst[0]) == (("b", "b.html"), ("a", "a.html"))
    assert (psc.lacking, size.lacking) == ("", "2 labels have no image")
    assert (unknown.value, unknown.better, unknown.best) == ("undefined: no pair", "", [])
    assert (nothing, size.question, size.value, size.better) == ("", "", "2.00 cells", "higher")


@pytest.mark.parametrize(("own", "other", "found"), [
    ({}, {}, True),
    ({"protocol": {"top_k": 5, "interface": None}}, {"protocol": {"top_k": 5, "interface": "ssm"}}, True),
    ({"protocol": {"top_k": 5}}, {"protocol": {"top_k": 4}}, False), ({}, {"step": 3}, False),
    ({}, {"split": "val"}, False), ({}, {"limit": 5}, False), ({}, {"explainer": "grad_cam"}, False),
    ({"explainer": "random"}, {}, False), ({"explainer": None}, {}, False),
])  # fmt: skip
def test_the_control_is_another_evaluation_of_the_same_images(own, other, found, tmp_path):
    folder = write_run(tmp_path / "run", {"continuity/psc": 0.25}, **({"explainer": "prp"} | own))
    random = content({"continuity/psc": 0.5}, **({"explainer": "random"} | other))
    write_metrics(random, folder / "evaluation" / "last-test-explainer=random")
    control = read_evaluation(folder / "evaluation").control
    assert {key: measured.value for key, measured in control.items()} == ({"continuity/psc": 0.5} if found else {})
