"""The file of an evaluation with the score of every unit on every image."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.command_line.messages import requires
from protometry.run_folder.csv_text import csv_text

Format = Literal["csv", "parquet"]


@dataclass(frozen=True)
class UnitScores:
    """Scores of n images.

    Args:
        labels: names of their classes, as in ``images.csv``.
        values: ``(n, M)`` float32, what the head of the model reads.
    """

    sample_ids: Sequence[str]
    labels: Sequence[str]
    units: Sequence[str]
    values: NDArray[np.float32]


def refuse_format(form: Format | None) -> None:
    """Refuse a format that cannot be written here.

    Raises:
        ValueError: if the package that writes it is not installed.
    """
    if form == "parquet" and find_spec("pyarrow") is None:
        raise ValueError(f"{requires('parquet', 'pyarrow')} Or pass `--scores csv`.")


def write_scores(scores: UnitScores | None, folder: Path, form: Format | None) -> None:
    """Write ``scores.csv`` or ``scores.parquet``: a row per image, its id, its label, and a column per unit."""
    for name in get_args(Format):
        (folder / f"scores.{name}").unlink(missing_ok=True)
    if scores is None:
        return
    header = ["sample_id", "label", *scores.units]
    if form == "csv":
        rows = zip(scores.sample_ids, scores.labels, scores.values, strict=True)
        write_atomic(folder / "scores.csv", csv_text([header, *([*names, *row.tolist()] for *names, row in rows)]))
        return
    import pyarrow  # an extra
    import pyarrow.parquet

    columns = [*map(pyarrow.array, (list(scores.sample_ids), list(scores.labels), *scores.values.T.copy()))]
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=header), content)
    write_atomic(folder / "scores.parquet", content.getvalue())
