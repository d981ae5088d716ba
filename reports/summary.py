"""The printed summary of one evaluation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reports.metrics_json import cut_short


def print_summary(result: dict[str, Any], folder: Path) -> None:
    """Print the metrics, what was skipped and why, and where everything lies.

    Args:
        result: content of ``metrics.json``.
        folder: where it was written.
    """
    console = Console()
    console = console if console.is_terminal else Console(width=120)  # a log has room for whole names
    explained = f", explained by {result['explainer']}" if result["explainer"] else ""
    where = f"{result['model']} on {result['dataset']} ({result['split']}), {result['checkpoint']}{explained}"
    if other := result["other_data"]:
        where += f"\nother data than trained on: {other['config']}, {other['matched']} of {other['classes']} classes"
    if mark := cut_short(result["training"]):
        where += f"\n{mark}"
    table = Table(title=escape(where))
    for name in ("metric", "value", "95 % interval", "n", "unit", "better"):
        table.add_column(name, justify="right" if name in ("value", "95 % interval", "n") else "left", no_wrap=True)
    for key, entry in result["metrics"].items():
        low, high = entry["ci95"]
        interval = "–" if not math.isfinite(low) else f"{low:.4f} … {high:.4f}"
        better = {True: "↑", False: "↓"}.get(entry["higher_is_better"], "")
        value = f"{entry['value']:.4f}" if math.isfinite(entry["value"]) else "undefined"
        table.add_row(escape(key), value, interval, str(entry["n"]), entry["unit"], better)
    console.print(table)
    plain: Any = {"highlight": False, "soft_wrap": True, "markup": False}  # names may hold [ and ]
    for key, reason in result["skipped"].items():
        console.print(f"not applicable: {key}, because {reason}", **plain)
    run_folder = folder.parent if folder.name == "evaluation" else folder.parent.parent
    for name, path in (
        ("metrics", folder / "metrics.json"),
        ("images", folder / "images.csv"),
        *((picture.stem, picture) for picture in sorted(folder.glob("*.png"))),
        ("prototypes", run_folder / "prototypes"),
        ("logs", run_folder / "metrics.csv"),
        ("checkpoints", run_folder / "checkpoints"),
    ):
        if path.exists():
            console.print(f"{name + ':':<12} {path}", **plain)
