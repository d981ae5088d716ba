"""What one evaluation leaves behind: ``metrics.json``, ``images.csv`` and a printed table."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def write_metrics(result: dict[str, Any], folder: Path) -> None:
    """Write strict JSON that is there as a whole or not at all; undefined numbers become null.

    Args:
        result: content of ``metrics.json``.
        folder: made if it is not there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(_strict(result), indent=2, allow_nan=False, ensure_ascii=False)
    _replace(folder / "metrics.json", text + "\n")


def write_images(images: Mapping[str, Mapping[str, float]], folder: Path) -> None:
    """Write one row per image, in the order of the ids, and one column per metric that averages over images.

    Args:
        images: sample id -> key -> value, NaN where undefined; an empty cell in the file.
        folder: where ``images.csv`` goes; made if it is not there.
    """
    lines: list[list[str]] = []
    for name in sorted(images):
        row = images[name]
        if not lines:
            lines.append(["sample_id", *row])
        lines.append([name, *("" if math.isnan(value) else repr(value) for value in row.values())])
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "images.csv"
    temporary = path.with_name(path.name + ".part")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(lines)
    temporary.replace(path)


def show(result: dict[str, Any], folder: Path) -> None:
    """Print the metrics, what was skipped and why, and where everything lies.

    Args:
        result: content of ``metrics.json``.
        folder: where it was written.
    """
    console = Console()
    console = console if console.is_terminal else Console(width=120)  # a log has room for whole names
    explained = f", explained by {result['explainer']}" if result["explainer"] else ""
    where = f"{result['model']} on {result['dataset']} ({result['split']}), {result['checkpoint']}{explained}"
    table = Table(title=where)
    for name in ("metric", "value", "95 % interval", "n", "unit", "better"):
        table.add_column(name, justify="right" if name in ("value", "95 % interval", "n") else "left", no_wrap=True)
    for key, entry in result["metrics"].items():
        low, high = entry["ci95"]
        interval = "–" if not math.isfinite(low) else f"{low:.4f} … {high:.4f}"
        better = {True: "↑", False: "↓"}.get(entry["higher_is_better"], "")
        value = f"{entry['value']:.4f}" if math.isfinite(entry["value"]) else "undefined"
        table.add_row(key, value, interval, str(entry["n"]), entry["unit"], better)
    console.print(table)
    for key, reason in result["skipped"].items():
        console.print(f"not applicable: {key}, because {reason}", highlight=False, soft_wrap=True)
    run_folder = folder.parent if folder.name == "evaluation" else folder.parent.parent
    for name, path in (
        ("metrics", folder / "metrics.json"),
        ("images", folder / "images.csv"),
        ("prototypes", run_folder / "prototypes"),
        ("logs", run_folder / "metrics.csv"),
        ("checkpoints", run_folder / "checkpoints"),
    ):
        if path.exists():
            console.print(f"{name + ':':<12} {path}", highlight=False, soft_wrap=True)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
