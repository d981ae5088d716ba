"""Evaluations made up for tests: a run folder with ``metrics.json`` and ``images.csv``."""

import numpy as np

from reports.results.metrics_json import write_metrics
from reports.results.values_csv import write_values

ENTRY = {"value": 0.5, "ci95": [0.4, 0.6], "n": 10, "skipped": 0, "unit": "fraction", "higher_is_better": True}
PROTOCOL = {
    "crop": "box",
    "weights": "IMAGENET1K_V1",
    "selection": "best",
    "variant": "paper",
    "view": "paper",
    "signed_maps": False,
}

TRAINING = {
    "model": {"prototypes_per_class": 10, "backbone": None},
    "phases": {"joint": {"epochs": 6}, "last": {"epochs": 3}},
    "batch_size": 64,
    "early_stopping": [],
    "code": {"version": "0.1.0", "commit": None, "dirty": None},
    "epochs": {"joint": 6, "last": 3},
    "phase": "last",
    "complete": True,
    "projected": True,
}
CUT_SHORT = {"epochs": {"joint": 2}, "phase": "joint", "complete": False, "projected": False}


def entry(value, low=None, high=None, unit="fraction", higher=True):
    return ENTRY | {"value": value, "ci95": [low, high], "unit": unit, "higher_is_better": higher}


def content(metrics, skipped=None, protocol=None, training=None, **changes):
    """What a metrics.json holds; ``metrics`` maps keys to values or whole entries."""
    return {
        "schema": 1,
        "checkpoint": "checkpoints/best.ckpt",
        "step": 4,
        "split": "test",
        "limit": None,
        "suite": ["all"],
        "seed": 0,
        "model": "ProtoPNet",
        "dataset": "cub200",
        "fold": 0,
        "explainer": "prp",
        "protocol": PROTOCOL | (protocol or {}),
        "training": TRAINING | (training or {}),
        "metrics": {key: value if isinstance(value, dict) else entry(value) for key, value in metrics.items()},
        "skipped": skipped or {},
        "timing": {"seconds": 1.0, "images": 10, "images_per_second": 10.0},
    } | changes


def write_run(folder, metrics, images=None, **changes):
    """A run folder; ``images`` maps sample ids to the values of the keys of ``metrics``."""
    evaluation = folder / "evaluation"
    write_metrics(content(metrics, **changes), evaluation)
    if images is not None:
        rows = {name: dict(zip(metrics, row, strict=True)) for name, row in sorted(images.items())}
        write_values(rows, evaluation / "images.csv", "sample_id")
    return folder


def rows(values, prefix="image"):
    """``(n, m)`` values as images with numbered ids."""
    return {f"{prefix}{index:04d}": list(map(float, row)) for index, row in enumerate(np.atleast_2d(values))}


def rewrite(folder, change):
    """Change the text of a run's metrics.json."""
    path = folder / "evaluation" / "metrics.json"
    path.write_text(change(path.read_text()))
    return path


def parsed(text):
    """The cells of a Markdown table, by the first word of each row's first cell, then by column."""
    table = [[cell.strip() for cell in line.split(" | ")] for line in text.splitlines() if line.startswith("| ")]
    header, *body = [[cell.removeprefix("| ").removesuffix(" |").strip() for cell in row] for row in table]
    return {row[0].split(" ")[0]: dict(zip(header, row, strict=True)) for row in body}
