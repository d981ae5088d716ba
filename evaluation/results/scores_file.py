"""The file of an evaluation with the score of every unit on every image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.csv_text import csv_text


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


def write_scores(scores: UnitScores | None, folder: Path) -> None:
    """Write ``scores.csv``: a row per image, its id, its label, and a column per unit."""
    for earlier in folder.glob("scores.*"):
        earlier.unlink()
    if scores is not None:
        header = ["sample_id", "label", *scores.units]
        rows = zip(scores.sample_ids, scores.labels, scores.values, strict=True)
        write_atomic(folder / "scores.csv", csv_text([header, *([*names, *row.tolist()] for *names, row in rows)]))
