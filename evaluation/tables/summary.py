"""The printed summary of one evaluation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from protometry.evaluation.results.metrics_json import incomplete_training, lacking, with_baselines
from protometry.evaluation.tables.markdown import interval, number, printed_unit
from protometry.metrics.page import arrow
from protometry.run_folder.command_line.user_path import shown
from protometry.run_folder.layout import HISTORY, IMAGES, METRICS, run_of_evaluation

NEXT_REASON = re.compile(r"; (?=[\w@|]+: )")  # a reason may hold a semicolon, but begins with its need
SHOWN = ("metric", "unit", "value", "95 %", "n")
WIDE = 100  # columns in which all of them have room
COLUMNS = ("family", "metric", "value", "low", "high", "n", "unit", "better", "not applicable because")


def suite_table(result: dict[str, Any]) -> tuple[Sequence[str], list[list[Any]]]:
    """The metrics of an evaluation grouped by family, and those that are not applicable, for loggers.

    Returns:
        Names of columns, and a row per metric; None where there is no value.
    """
    rows: list[list[Any]] = []
    for key, entry in with_baselines(result["metrics"]).items():
        value, low, high = (_finite(number) for number in (entry["value"], *entry["ci95"]))
        better = {True: "higher", False: "lower"}.get(entry["higher_is_better"])
        rows.append([*key.split("/", 1), value, low, high, entry["n"], entry["unit"], better, None])
    rows += [[*key.split("/", 1), *[None] * 6, reason] for key, reason in result["skipped"].items()]
    families = list(dict.fromkeys(row[0] for row in rows))
    return COLUMNS, sorted(rows, key=lambda row: families.index(row[0]))


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def print_summary(result: dict[str, Any], folder: Path) -> None:
    """Print the metrics, what was skipped and why, and where everything lies."""
    console = Console()
    console = console if console.is_terminal else Console(width=120)  # a log has room for whole names
    explained = f", explained by {result['explainer']}" if result["explainer"] else ""
    where = f"{result['model']} on {result['dataset']} ({result['split']}), {result['checkpoint']}{explained}"
    if other := result["other_data"]:
        where += f"\nother data than trained on: {other['config']}, {other['matched']} of {other['classes']} classes"
    where += "".join(f"\n{caveat}" for caveat in result["protocol"].get("cells", ()))
    if mark := incomplete_training(result["training"]):
        where += f"\n{mark}"
    console.print(_table(result, where, console.width))
    plain: Any = {"highlight": False, "soft_wrap": True, "markup": False}  # names may hold [ and ]
    by_text: dict[str, list[str]] = {}
    for key, entry in result["metrics"].items():
        by_text.setdefault(lacking(entry), []).append(key)
    said = [f"{text}: {'; '.join(listed(keys))}" for text, keys in by_text.items() if text]
    undefined = {key: entry["reason"] for key, entry in result["metrics"].items() if entry.get("reason")}
    for line in (*said, *by_reason(result["skipped"]), *by_reason(undefined, "undefined")):
        console.print(line, **plain)
    run_folder = run_of_evaluation(folder)
    places = (
        ("metrics", folder / METRICS),
        ("images", folder / IMAGES),
        ("scores", folder / "scores.csv"),
        *((picture.stem, picture) for picture in sorted(folder.glob("*.png"))),
        ("prototypes", run_folder / "prototypes"),
        ("logs", run_folder / HISTORY),
        ("checkpoints", run_folder / "checkpoints"),
    )
    there = [(f"{name}:", path) for name, path in places if path.exists()]
    wide = max(map(len, ["checkpoints:", *(name for name, _ in there)]))
    for name, path in there:
        console.print(f"{name:<{wide}} {shown(path)}", **plain)


def by_reason(skipped: Mapping[str, str], what: str = "not applicable") -> list[str]:
    """A line for each reason why metrics do not apply, with their names by family; of several reasons, the first.

    Example:
        >>> by_reason({"concepts/auc": "units: none", "concepts/ece": "units: none; weight: no matrix"})
        ['not applicable, because units: none: concepts/auc, ece']
    """
    keys: dict[str, list[str]] = {}
    for key, reasons in skipped.items():
        keys.setdefault(NEXT_REASON.split(reasons)[0], []).append(key)
    return [f"{what}, because {reason}: {'; '.join(listed(names))}" for reason, names in keys.items()]


def listed(keys: Iterable[str]) -> list[str]:
    """A line for each family, such as ``general/accuracy, f1``."""
    families: dict[str, list[str]] = {}
    for key in keys:
        family, _, name = key.partition("/")
        families.setdefault(family, []).append(name)
    return [f"{family}/{', '.join(names)}" for family, names in families.items()]


def _table(result: dict[str, Any], title: str, width: int) -> Table:
    """The metrics in the units of all tables; where columns are few, the only unit shown is a % next to its value."""
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, pad_edge=False)
    narrow = width < WIDE  # first of all, no value may be cut
    for name in SHOWN:
        if not (narrow and name == "unit"):
            table.add_column(name, justify="left" if name in ("metric", "unit") else "right", no_wrap=True)
    for key, entry in with_baselines(result["metrics"]).items():
        metric = escape(f"{key} {arrow(entry['higher_is_better'])}".rstrip())
        unit, (low, high) = entry["unit"], entry["ci95"]
        value, bounds, printed = number(entry["value"], unit), interval(low, high, unit) or "–", printed_unit(unit)
        if narrow:
            table.add_row(metric, f"{value} %" if printed == "%" else value, escape(bounds), str(entry["n"]))
        else:
            table.add_row(metric, escape(printed), value, escape(bounds), str(entry["n"]))
    return table
