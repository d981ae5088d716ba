"""What an evaluation left in its folder, for the pages of its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from protometry.evaluation.results.metrics_json import Result, read_content, read_metrics
from protometry.evaluation.results.runs import evaluations
from protometry.evaluation.results.schema import Entry
from protometry.evaluation.results.values_csv import NAMED_BY, ImageValues, read_values
from protometry.explanations.random_maps import Random
from protometry.run_folder.command_line.messages import program
from protometry.run_folder.layout import IMAGES, METRICS


@dataclass(frozen=True)
class EvaluationFiles:
    """The content of the folder of an evaluation.

    Args:
        items: "units", "classes" or "concepts" -> name -> key -> value, NaN where undefined.
        control: key -> the same metric of random maps, where the run was evaluated with them, too.
    """

    result: dict[str, Any]
    images: ImageValues | None = None
    items: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    figures: dict[str, Image.Image] = field(default_factory=dict)
    control: dict[str, Entry] = field(default_factory=dict)


def read_evaluation(folder: Path) -> EvaluationFiles:
    """Read the folder of an evaluation.

    Raises:
        FileNotFoundError: if there is none.
    """
    file = folder / METRICS
    if not file.is_file():
        raise FileNotFoundError(
            f"Expected an evaluation in {folder}, but there is no metrics.json. Run "
            f"`{program('evaluate')} run --ckpt_path ...` first."
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
    images = read_values(folder / IMAGES) if (folder / IMAGES).is_file() else None
    return EvaluationFiles(read_content(file), images, items, figures, _control(read_metrics(file)))


def _control(own: Result) -> dict[str, Entry]:
    """Metrics of random maps on the same images, by the newest such evaluation of the run; none of a control."""
    if own.explainer in (None, Random.key):
        return {}
    others = (other for other in evaluations(own.run) if other.explainer == Random.key)
    return next((other.metrics for other in others if _differ_by_explainer(own, other)), {})


def _differ_by_explainer(one: Result, other: Result) -> bool:
    """Whether nothing else sets two evaluations apart; what depends on the suite, only one may say."""
    own, theirs = (
        {"checkpoint": each.checkpoint, "step": each.step, "seed": each.seed, **each.conditions}
        for each in (one, other)
    )
    shared = (own.keys() & theirs.keys()) - {"explainer", "explained_by"}
    unsaid = {name for name in shared & one.protocol.keys() if None in (own[name], theirs[name])}
    return all(own[name] == theirs[name] for name in shared - unsaid)
