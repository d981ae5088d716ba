"""Tables with a row per photo, as text: comma-separated files and COCO become the same columns of cells."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.photos.files import SAVE_AGAIN, delimiter_of, read_text
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.sample import nfc


@dataclass(frozen=True)
class Cells:
    """The cells of a table with n rows.

    Args:
        columns: name -> n texts without spaces around them, empty where nothing is known.
        places: what each row is called in messages.
        outlines: of COCO, the polygons ``(P, 2)`` of the object of each photo; none where it has none.
        shifted: rows with too many or too few cells; their cells are not checked.
    """

    path: Path
    columns: dict[str, list[str]]
    places: list[str]
    problems: Problems
    outlines: list[list[NDArray[np.float64]]] = field(default_factory=list)
    shifted: frozenset[int] = frozenset()

    def wrong(self, row: int, column: str, expected: str) -> None:
        """Note that a cell is not what is expected."""
        if row in self.shifted:
            return
        got = repr(self.columns[column][row]) if self.columns[column][row] else "nothing"
        self.problems.wrong(
            f"{self.path.name}, {self.places[row]}, column `{column}`: expected {expected}, but got {got}"
        )

    def numbers(self, column: str, what: tuple[str, ...]) -> NDArray[np.float64]:
        """``(n, len(what))`` numbers, separated by spaces in the cells of a column; NaN where it is empty."""
        values = np.full((len(self.places), len(what)), np.nan)
        for row, cell in enumerate(self.columns[column]):
            numbers = [finite(text) for text in cell.split()]
            if len(numbers) == len(what) and None not in numbers:
                values[row] = numbers
            elif cell:
                self.wrong(row, column, f"`{' '.join(what)}` in pixels")
        return values


def finite(text: str) -> float | None:
    """A number, None for any other text.

    Example:
        >>> finite("2.50"), finite("inf"), finite("2,5")
        (2.5, None, None)
    """
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def read_csv(path: Path, problems: Problems) -> Cells:
    """Read a table in UTF-8, with a row of names and then a row per photo; commas, semicolons or tabs separate cells.

    Raises:
        ValueError: if it is not text in UTF-8, or a quote is open.
    """
    text = nfc(read_text(path, SAVE_AGAIN))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter_of(text), strict=True)
    rows, places = [], []
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                rows.append([cell.strip() for cell in row])
                places.append(f"line {reader.line_num}")
    except csv.Error as error:
        raise ValueError(
            f"Expected {path} to be a table, but got {error} in line {reader.line_num}; is a quote open?"
        ) from error
    header, rows = (rows[0], rows[1:]) if rows else ([], [])
    shifted = frozenset(number for number, row in enumerate(rows) if len(row) != len(header))
    for number in sorted(shifted):
        got = len(rows[number])
        problems.wrong(
            f"{path.name}, {places[number + 1]}: expected {len(header)} cells as in the first line, but got {got}"
        )
    _refuse_repeated(path, header, problems)
    columns = {name: [row[i] if i < len(row) else "" for row in rows] for i, name in enumerate(header)}
    return Cells(path, columns, places[1:], problems, shifted=shifted)


def _refuse_repeated(path: Path, names: list[str], problems: Problems) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            problems.wrong(f"{path.name} has {count} columns `{name}`")
