"""What an evaluation left in its folder, for the pages of its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from reports.results.metrics_json import read_content
from reports.results.values_csv import NAMED_BY, ImageValues, read_values


@dataclass(frozen=True)
class EvaluationFiles:
    """The content of the folder of an evaluation.

    Args:
        result: content of ``metrics.json``.
        images: values of images, or None.
        items: "units", "classes" or "concepts" -> name -> key -> value, NaN where undefined.
        figures: name -> picture.
    """

    result: dict[str, Any]
    images: ImageValues | None = None
    items: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    figures: dict[str, Image.Image] = field(default_factory=dict)


def read_evaluation(folder: Path) -> EvaluationFiles:
    """Read the folder of an evaluation.

    Args:
        folder: with a ``metrics.json``.

    Raises:
        FileNotFoundError: if there is none.
    """
    file = folder / "metrics.json"
    if not file.is_file():
        raise FileNotFoundError(
            f"Expected an evaluation in {folder}, but there is no metrics.json. Run `evaluate.py run --ckpt_path ...` "
            "first."
        )
    items: dict[str, dict[str, dict[str, float]]] = {}
    for name in NAMED_BY:
        path = folder / f"{name}.csv"
        if name != "images" and path.is_file():
            table = read_values(path)
            rows = zip(table.sample_ids, table.values.tolist(), strict=True)
            items[name] = {item: dict(zip(table.keys, row, strict=True)) for item, row in rows}
    figures = {}
    for path in sorted(folder.glob("*.png")):
        with Image.open(path) as picture:
            figures[path.stem] = picture.convert("RGB")
    images = read_values(folder / "images.csv") if (folder / "images.csv").is_file() else None
    return EvaluationFiles(read_content(file), images, items, figures)
