"""The files of an evaluation with the value of every image, unit, class or concept under every metric."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protometry.callbacks.evaluation.predictions import Prediction
from protometry.datamodules.sample import sample_key
from protometry.evaluation.results.schema import range_of
from protometry.run_folder.command_line.messages import program
from protometry.run_folder.csv_text import csv_text, unguarded

Cell = float | str | None  # None and NaN are an empty cell
Rows = Mapping[str, Mapping[str, Cell]]
PREDICTION = ["label", "prediction", "probability", "correct"]  # docs/read_the_numbers.md says what they hold
SEPARATOR = " | "  # between the labels of one image
NAMED_BY = {"images": "sample_id", "units": "unit", "classes": "class", "concepts": "concept"}


@dataclass(frozen=True)
class ImageValues:
    """Values of images.

    Args:
        sample_ids: n ids, none twice.
        keys: m result keys.
        values: ``(n, m)`` float64, NaN where undefined.
    """

    sample_ids: list[str]
    keys: list[str]
    values: NDArray[np.float64]

    def rows(self, sample_ids: Sequence[str]) -> NDArray[np.float64]:
        """``(len(sample_ids), m)`` values of some images, in the requested order."""
        row_of = {name: index for index, name in enumerate(self.sample_ids)}
        chosen: NDArray[np.float64] = self.values[[row_of[name] for name in sample_ids]]
        return chosen


def values_text(rows: Rows, kind: str) -> str:
    """One row per image, unit, class or concept, and one column per metric that averages over them.

    Args:
        rows: name -> key -> value, NaN where undefined; before the metrics of an image, its :data:`PREDICTION`.
        kind: head of the column of names, such as ``sample_id``.
    """
    header = [[kind, *row] for row in list(rows.values())[:1]]
    cells = ([name, *map(_known, row.values())] for name, row in rows.items())
    return csv_text([*header, *cells])


def _known(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and math.isnan(cell) else cell


def prediction_cells(prediction: Prediction, class_names: Sequence[str]) -> dict[str, Cell]:
    """The cells :data:`PREDICTION` of an image; several labels and their probabilities are joined.

    Example:
        >>> prediction_cells(Prediction((1,), (0,), (0.75,)), ["wren", "jay"])
        {'label': 'jay', 'prediction': 'wren', 'probability': 0.75, 'correct': 0}
        >>> prediction_cells(Prediction((), (0, 1), (0.75, 0.5)), ["wren", "jay"])["probability"]
        '0.75 | 0.5'
    """
    both = (prediction.label or (), prediction.classes)
    label, predicted = (SEPARATOR.join(class_names[index] for index in classes) for classes in both)
    values = prediction.probabilities
    correct = None if prediction.correct is None else int(prediction.correct)
    probability = values[0] if len(values) == 1 else SEPARATOR.join(map(str, values))
    return dict(zip(PREDICTION, (label, predicted, probability, correct), strict=True))


def by_kind(
    images: Mapping[int, Mapping[str, float]],
    predictions: Mapping[int, Prediction],
    items: Mapping[str, Mapping[str, Sequence[float]]],
    sample_ids: Sequence[str],
    known: Mapping[str, Sequence[str]],
) -> dict[str, Rows]:
    """The content of all files of an evaluation.

    Args:
        images: key of a sample id -> key of a metric -> value.
        predictions: key of a sample id -> prediction.
        items: "units", "classes" or "concepts" -> key of a metric -> value of each.
        sample_ids: of the images.
        known: "classes" and "concepts" -> their names.

    Returns:
        "images" and the kinds of items -> rows; images are sorted by sample id.
    """
    by_key = {sample_key(name): name for name in sample_ids}
    cells = {
        by_key[key]: {**prediction_cells(predictions[key], known["classes"]), **row} for key, row in images.items()
    }
    rows: dict[str, Rows] = {"images": dict(sorted(cells.items()))}
    return rows | {name: by_item(columns, known.get(name)) for name, columns in items.items()}


def by_item(columns: Mapping[str, Sequence[float]], names: Sequence[str] | None = None) -> Rows:
    """The rows of a file from its columns.

    Example:
        >>> by_item({"alignment/purity": [0.5, 1.0]})
        {'0': {'alignment/purity': 0.5}, '1': {'alignment/purity': 1.0}}
    """
    count = max(map(len, columns.values()))
    rows = zip(*columns.values(), strict=True)
    named = names if names is not None else [str(number) for number in range(count)]
    return {name: dict(zip(columns, row, strict=True)) for name, row in zip(named, rows, strict=True)}


def read_values(path: Path) -> ImageValues:
    """Read the values of images, units, classes or concepts under every metric.

    Args:
        path: an ``images.csv``, or a file of items as its name says, whose names stand for sample ids.

    Raises:
        FileNotFoundError: if it is not there.
        ValueError: if it is not such a table, naming the line.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected {path} next to the metrics.json, but there is none. Evaluate the run again with "
            f"`{program('evaluate')} run --ckpt_path ... --overwrite true`."
        )
    first = NAMED_BY[path.stem]
    table: dict[str, list[float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, strict=True)
        try:
            header = next(rows, [])
            start = [first, *PREDICTION] if path.stem == "images" else [first]
            if header[: len(start)] != start or len(set(header)) < len(header):
                raise ValueError(
                    f"Expected {path} to start with {', '.join(start)} and distinct metrics, but got {header[:5]}. "
                    "Evaluate the run again."
                )
            first_key = len(start)
            keys = header[first_key:]
            ranges = [range_of(key) for key in keys]
            for row in rows:
                if len(row) != len(header) or unguarded(row[0]) in table:
                    raise ValueError(
                        f"Expected line {rows.line_num} of {path} to hold a new {first.replace('_', ' ')} and "
                        f"{len(header) - 1} values, but got {row[:5]}."
                    )
                cells = zip(row[first_key:], keys, ranges, strict=True)
                table[unguarded(row[0])] = [_value(*cell, f"line {rows.line_num} of {path}") for cell in cells]
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"Expected {path} to be a table in UTF-8, but {error}. Evaluate the run again.") from error
    values = np.array(list(table.values()), dtype=np.float64).reshape(len(table), len(keys))
    return ImageValues(list(table), keys, values)


def _value(text: str, key: str, ends: tuple[float, float], line: str) -> float:
    """A number, or NaN for an empty cell."""
    if not text:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"Expected {line} to hold finite numbers or empty cells, but got {text!r:.60}.")
    if not ends[0] <= value <= ends[1]:
        raise ValueError(f"Expected {line} to hold a {key} from {ends[0]:.4g} to {ends[1]:.4g}, but got {text}.")
    return value
