"""The page of findings: what an evaluation says of a model in a dozen sentences, each next to its control."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from protometry.evaluation.pages.contents import ReportContents
from protometry.evaluation.pages.evaluation_files import EvaluationFiles
from protometry.evaluation.pages.metrics_page import Ends, ends
from protometry.evaluation.pages.site import Site, percent
from protometry.metrics.suite import ENTRIES, SUITES

CLEAR = 0.1  # by which a control has to be beaten, all of the interval of the difference
Verdict = Literal["clear", "unclear", "worse", ""]
Lift = tuple[float, float, float]  # a difference, and the bounds of its interval
VERDICTS: dict[Verdict, str] = {
    "clear": "clearly better than the control",
    "unclear": "not clearly better than the control",
    "worse": "worse than the control",
    "": "",
}
_CONTROLS = {
    "shifted": "at a random place",
    "plain": "with a plain patch",
    "random_peak": "for peaks at random cells",
    "own": "with its own ones",
    "majority": "for the most frequent answer",
    "other_concepts": "for concepts of other parts",
}


@dataclass(frozen=True)
class Finding:
    """What one metric says.

    Args:
        key: of the metric.
        text: a sentence with the value and the control.
        value: in the unit of the metric.
        control: the same number of the control, None without one.
        bounds: the 95 % interval, printed.
        lift: value minus control with the bounds of its 95 % interval, printed.
        worst: images and their pages.
    """

    key: str
    text: str
    value: float
    control: float | None
    verdict: Verdict
    bounds: str
    lift: str
    worst: Ends


def findings(files: EvaluationFiles, contents: ReportContents | None = None) -> list[Finding]:
    """The findings of an evaluation, of the metrics with a sentence that are defined."""
    found = []
    for key in SUITES["audit"]:
        entry = files.result["metrics"].get(key)
        if entry is None or entry["value"] is None:
            continue
        (name, lift), unit, (low, high) = _control(entry), entry["unit"], entry["ci95"]
        control = None if lift is None else entry["value"] - lift[0]
        text = ENTRIES[key].words.finding.format(value=_printed(entry["value"], unit))
        if control is not None:
            text = f"{text.removesuffix('.')}, against {_printed(control, unit)} {_CONTROLS.get(name, f'by {name}')}."
        found.append(
            Finding(
                key=key,
                text=text,
                value=entry["value"],
                control=control,
                verdict=_verdict(lift, entry["higher_is_better"]),
                bounds="" if low is None or high is None else _interval(low, high, unit),
                lift="" if lift is None else f"{_printed(lift[0], unit)} {_interval(*lift[1:], unit)}",
                worst=ends(contents, key, entry["higher_is_better"])[1] if contents else [],
            )
        )
    return found


def _printed(value: float, unit: str) -> str:
    return percent(value) if unit == "fraction" else f"{value:.2f}"


def _interval(low: float, high: float, unit: str) -> str:
    return f"[{_printed(low, unit)}, {_printed(high, unit)}]"


def _control(entry: Mapping[str, Any]) -> tuple[str, Lift | None]:
    """What the value is compared with, and the difference with the bounds of its 95 % interval.

    The interval of the value says nothing of the difference, since the control varies with the same images or concepts.
    """
    for name, lift in entry.items():
        low, high = entry.get(f"{name}_low"), entry.get(f"{name}_high")
        if name.startswith("lift_over_") and lift is not None and low is not None and high is not None:
            return name.removeprefix("lift_over_"), (lift, low, high)
    return "", None


def _verdict(lift: Lift | None, higher_is_better: bool | None) -> Verdict:
    """What the interval of a difference says.

    Example:
        >>> _verdict((-0.3, -0.4, -0.2), False), _verdict((0.15, 0.05, 0.25), True), _verdict((0.2, 0.1, 0.3), False)
        ('clear', 'unclear', 'worse')
    """
    if lift is None or higher_is_better is None:
        return ""
    low, high = lift[1:] if higher_is_better else (-lift[2], -lift[1])
    return "clear" if low >= CLEAR else "worse" if high < 0 else "unclear"


def unmeasured(files: EvaluationFiles) -> int:
    """How many findings an audit would add: of the metrics that were neither measured nor found not to apply."""
    result = files.result
    return sum(key not in result["metrics"] and key not in result["skipped"] for key in SUITES["audit"])


def audit_page(site: Site, contents: ReportContents) -> list[Finding]:
    """Write the page.

    Returns:
        The findings on it.
    """
    found = findings(contents.files, contents)
    missing = unmeasured(contents.files)
    site.page("audit.html", "audit", findings=found, verdicts=VERDICTS, clear=CLEAR, unmeasured=missing)
    return found
