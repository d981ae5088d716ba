"""Whether people are surer, and right more often, where an automatic metric of the explanation is better."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from protometry.run_folder.command_line.messages import counted
from protometry.studies.analysis.graded import Person
from protometry.studies.analysis.results import StudyResult, flat
from protometry.studies.bundle import Bundle
from protometry.studies.statistics.agreement import crossed_spearman
from protometry.studies.statistics.crossed_effects import FEWEST
from protometry.studies.study import Arm

LOCALISATION = "localisation/pointing_game,localisation/energy,localisation/iou"  # the metrics of HIVE
Columns = dict[str, dict[str, float]]  # metric -> image -> value, NaN where undefined


def read_automatic(bundle: Bundle, files: Mapping[str, Path], metrics: Sequence[str]) -> dict[str, Columns]:
    """The values of the images of a study, by arm.

    Args:
        bundle: the study.
        files: arm -> ``images.csv`` of an evaluation of its model.
        metrics: columns of these files.

    Raises:
        ValueError: if there is no such arm, file or column, a file lacks an image of the arm, or is of a model that is
            right about other images than the arm's.
    """
    arms = {arm.id: arm for arm in bundle.study.arms}
    if unknown := [name for name in files if name not in arms]:
        raise ValueError(f"Expected `images` to name arms among {list(arms)}, but got {unknown[0]!r}.")
    return {name: _read(bundle, arms[name], file, metrics) for name, file in files.items()}


def _read(bundle: Bundle, arm: Arm, file: Path, metrics: Sequence[str]) -> Columns:
    flag = f"Expected `images.{arm.id}`, {file},"
    if file.name != "images.csv" or not file.is_file():
        raise ValueError(f"{flag} to be the images.csv that `protometry evaluate run` writes for the arm's model.")
    from protometry.evaluation.results.values_csv import read_values  # imports torch, which takes seconds

    values = read_values(file)
    if missing := [name for name in metrics if name not in values.keys]:
        known = ", ".join(values.keys) or "none"
        raise ValueError(f"{flag} to have the column {missing[0]}, but it has {known}. Choose among them: `--metrics`.")
    keys = [bundle.key.items[item.id] for item in arm.items]
    if absent := sorted({key.image for key in keys} - set(values.sample_ids)):
        some = f"it lacks {counted(len(absent), 'image')}, such as {absent[0]}"
        raise ValueError(f"{flag} to hold all images of the arm, but {some}. Evaluate the whole split of the study.")
    with file.open(encoding="utf-8", newline="") as stream:
        correct = [row["correct"] for row in csv.DictReader(stream)]
    right = dict(zip(values.sample_ids, correct, strict=True))
    if other := [key.image for key in keys if right[key.image] != str(int(key.right))]:
        some = f"they differ about {counted(len(other), 'image')}, such as {other[0]}"
        raise ValueError(f"{flag} to be of the arm's model, which predicts the same images rightly, but {some}.")
    return {name: dict(zip(values.sample_ids, values.rows(values.sample_ids)[:, values.keys.index(name)].tolist(),
                           strict=True)) for name in metrics}  # fmt: skip


def metric_results(people: list[Person], columns: Columns) -> dict[str, StudyResult]:
    """Rank correlations of the answers to images with metrics of the same images.

    Source: Kim et al. (2022), section 5.3, who find none for pointing game, energy and IoU of Grad-CAM; what they
    correlate, answers or their means by image, is not said. Here it is answers: the correlation of means would grow
    with the number of people per image.

    Returns:
        ``study/confidence_vs_<metric>`` and ``study/accuracy_vs_<metric>``, positive where people are surer, or right
        more often, the larger the metric is; with the interval over people and images.
    """
    results = {}
    cells = [person.items for person in people]
    given = {
        "confidence": [[one.number("confidence") for one in cell] for cell in cells],
        "accuracy": [[float(one.right) for one in cell] for cell in cells],
    }
    for metric, by_image in columns.items():
        values = np.array([by_image[one.key.image] for cell in cells for one in cell], dtype=np.float64)
        known = np.isfinite(values)
        for name, answers in given.items():
            people_of, images_of, answers_of = flat(cells, answers)
            person, image, answer = people_of[known], images_of[known], answers_of[known]
            few = [
                f"fewer than {FEWEST} {what} with a value"
                for what, names in (("participants", person), ("images", image))
                if len(np.unique(names)) < FEWEST
            ]
            value, interval = crossed_spearman(answer, values[known], person, image)
            details = {"images": len(np.unique(image)), "left_out": int((~known).sum())}
            alike = "" if math.isfinite(value) else "all answers, or all values of the metric, are alike"
            if few:
                interval = (math.nan, math.nan)
            reason = few[0] if few else alike
            results[f"study/{name}_vs_{metric}"] = StudyResult(
                value, n=len(np.unique(person)), interval=interval, details=details, reason=reason
            )
    return results
