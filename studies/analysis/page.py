"""The page of an analysis: intervals as pictures, every result with its tests, and the published values beside."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from reports.published.numbers import published
from studies.study import Study

PERCENT = (
    *("correct", "incorrect", "total", "over_belief", "similarity_pairwise", "warmup_tree"),
    *("tradeoff_low", "tradeoff_medium", "tradeoff_high"),
)


def page(study: Study, summary: dict[str, Any]) -> str:
    """The page of a summary; needs no other file, script or network."""
    environment = Environment(
        loader=PackageLoader("studies.analysis", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["figure"] = figure
    ours = {key for entries in summary["results"]["all"].values() for key in entries}
    hive = [record for record in published("hive") if record.base_key in ours]
    return environment.get_template("index.html").render(study=study, summary=summary, hive=hive, percent=is_percent)


def is_percent(key: str) -> bool:
    """Whether a result is a share, printed as percent."""
    return key.endswith(PERCENT)


def figure(value: float | None, key: str = "") -> str:
    """A number as it is printed: percent for shares, n/a where it is undefined."""
    if value is None:
        return "n/a"
    return f"{100 * value:.1f} %" if is_percent(key) else f"{value:.2f}"
