"""The file of an evaluation with the score of every unit on every image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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

    @property
    def text(self) -> str:
        """The content of ``scores.csv``: a row per image, its id, its label, and a column per unit."""
        rows = zip(self.sample_ids, self.labels, self.values, strict=True)
        header = ["sample_id", "label", *self.units]
        return csv_text([header, *([*names, *row.tolist()] for *names, row in rows)])
