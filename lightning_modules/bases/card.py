"""The card of a model: what is said of it in tables, on exported models and in tests, stated once on its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Card:
    """What a model is.

    Args:
        name: in its paper.
        units: the parts of the image that it looks for.
        decision: how they lead to a class.
        paper: authors and year; empty without one.
        url: of the paper.
        page: of the guide below ``docs/models/``, with an anchor if it describes several models.
        tiny: the arguments with which it is as small as it gets, for tests and trials.
    """

    name: str
    units: str
    decision: str
    paper: str = ""
    url: str = ""
    page: str = ""
    tiny: Mapping[str, Any] = field(default_factory=dict)
