"""What a metric of any family may need from the model and the data, and the reasons why it is missing."""

from __future__ import annotations

import math
from collections.abc import Callable

from protometry.metrics.facts import Facts

Need = Callable[[Facts], str | None]  # None if it is there, else the reason why the metric does not apply


def unless(present: bool, reason: str) -> str | None:
    """The reason, unless what is needed is there."""
    return None if present else reason


def most_features(facts: Facts) -> float:
    """The largest number of features of a class; without a weight matrix there is no such limit."""
    return math.inf if facts.weight is None else int((facts.features != 0).sum(dim=1).max())


def class_table(name: str) -> Need:
    """The need of a table with a row for every class."""
    other = "the rows of the class tables do not match the logits"
    return lambda facts: unless(getattr(facts.tables, name) is not None, facts.missing("class_attributes") or other)


NEEDS: dict[str, Need] = {
    "weight": lambda facts: unless(facts.weight is not None, "the model has no weight matrix"),
    "vectors": lambda facts: unless(facts.units.vectors is not None, "the units of the model have no vectors"),
    "latent": lambda facts: unless(facts.channels is not None, "the model has no latent map"),
    "single_label": lambda facts: unless(not facts.multi_label, "the data are multilabel"),
    "units": lambda facts: unless(bool(facts.active.any()), "no unit is active"),
    "two_units": lambda facts: unless(int(facts.active.sum()) > 1, "fewer than two units are active"),
    "concepts": lambda facts: unless(facts.units.concepts is not None, "the model is not trained to predict concepts"),
    "corrections": lambda facts: unless(facts.own_values is not None, "the model predicts no concepts to correct"),
    "explainer": lambda facts: facts.explained,
    "training": lambda facts: facts.training,
    "features": lambda facts: unless(most_features(facts) > 0, "no unit has a weight that is not 0"),
}
