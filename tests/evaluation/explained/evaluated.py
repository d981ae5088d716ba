"""Evaluations made up for tests: run folders with ``metrics.json`` and ``images.csv``, models with their reports."""

import numpy as np
import torch

from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.pages import EvaluationFiles
from protometry.evaluation.results.metrics_json import Result, write_metrics
from protometry.evaluation.results.values_csv import values_text
from protometry.evaluation.tables.paired_comparison import Comparison
from protometry.evaluation.tables.paired_statistics import Paired
from protometry.run_folder.atomic import write_atomic
from tests.lightning_modules.registry import MODELS

ENTRY = {"value": 0.5, "ci95": [0.4, 0.6], "n": 10, "skipped": 0, "unit": "fraction", "higher_is_better": True}
PROTOCOL = {
    "crop": "box", "weights": "IMAGENET1K_V1", "selection": "best", "variant": "paper", "view": "paper",
    "signed_maps": False,
}  # fmt: skip

TRAINING = {
    "model": {"prototypes_per_class": 10, "backbone": None}, "phases": {"joint": {"epochs": 6}, "last": {"epochs": 3}},
    "batch_size": 64, "early_stopping": [], "code": {"version": "0.1.0", "commit": None, "dirty": None},
    "epochs": {"joint": 6, "last": 3}, "phase": "last", "complete": True, "projected": True,
}  # fmt: skip
TIMING = {"seconds": 1.0, "images": 10, "images_per_second": 10.0, "ended": "2026-01-02T03:04:05+00:00"}
PREDICTION = {"label": "jay", "prediction": "jay", "probability": 0.75, "correct": 1}
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
        "other_data": None,
        "timing": TIMING,
    } | changes


def write_run(folder, metrics, images=None, **changes):
    """A run folder; ``images`` maps sample ids to the values of the keys of ``metrics``."""
    evaluation = folder / "evaluation"
    result = content(metrics, **changes)
    if images is not None:
        result["timing"] = TIMING | {"images": len(images)}
    write_metrics(result, evaluation)
    if images is not None:
        rows = {name: PREDICTION | dict(zip(metrics, row, strict=True)) for name, row in sorted(images.items())}
        write_atomic(evaluation / "images.csv", values_text(rows, "sample_id"))
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


def explained_of(name, birds, size=48, task="multiclass", **options):
    """An untrained model of eight classes, or of the labels of multilabel data."""
    torch.manual_seed(3)
    several = {} if task == "multiclass" else {"task": task}
    model = MODELS[name](num_classes=birds.num_classes, image_size=(32, 32), **several).eval()
    return ExplainedModel(model, birds, size=size, **options)


def evaluation_files(figures=None, **changes):
    """An evaluation that measured nothing; its facts stand on the first page of a report."""
    result = {
        **{"model": "Model", "dataset": "sketch_birds", "split": "test", "limit": None, "seed": 0, "fold": None},
        **{"checkpoint": "checkpoints/last.ckpt", "step": 3, "other_data": None, "training": {}},
        **{"metrics": {}, "skipped": {"a/b": "<b>no</b>"}, "timing": {"images": 8}, "protocol": {"train_seed": 0}},
    }
    return EvaluationFiles(result | changes, figures=figures or {})


def comparison_of(names, path, images, key, note):
    """Two models that differ clearly in one metric."""
    facts = {"dataset": "sketch_birds", "fold": None, "split": "test", "seed": 0, "limit": None}
    facts |= {"checkpoint": "last.ckpt", "step": 3, "explainer": None, "other_data": None}
    facts |= {"protocol": {}, "metrics": {}, "skipped": {}, "training": {}, "timing": {}}
    row = Paired(key, 0.5, 1.0, 0.5, 0.25, 0.75, 0.01, 0.01, len(images))
    shared = [f"test/{index:05d}" for index in images]
    files = [path / f"run{index}" / "evaluation" / "metrics.json" for index in range(len(names))]
    results = tuple(Result(path=file, model=name, **facts) for file, name in zip(files, names, strict=True))
    return Comparison(results, shared, [row], ["<b>"], [note])
