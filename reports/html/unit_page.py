"""What a unit stands for: its photo, the images in which it is strongest, and the classes that use it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from reports.explained_model import ExplainedModel
from reports.scan import Scan, samples_of
from reports.unit_sources import Source

NEAREST, COUNTED, CLASSES = 3, 20, 10  # images drawn of each split; images and classes listed


@dataclass(frozen=True)
class UnitSheet:
    """The page of a unit.

    Args:
        unit: its index.
        name: what it is called.
        owners: names of the classes it belongs to.
        weights: class, name and weight, the largest by absolute value.
        nearest: heading, then score and picture of the images in which it is strongest.
        classes: name and number of the classes of the images in which it is strongest.
        duplicates: other units with the same source patch.
    """

    unit: int
    name: str
    owners: list[str]
    weights: list[tuple[int, str, float]]
    nearest: list[tuple[str, list[tuple[float, Source]]]]
    classes: list[tuple[str, int]]
    duplicates: list[int]


def unit_card(subject: ExplainedModel, unit: int, source: Source | None, link: str) -> dict[str, Any]:
    """A unit in a list of all.

    Args:
        subject: the model.
        unit: its index.
        source: the photo that stands for it, if any.
        link: its page.
    """
    owners = subject.units.owner[unit].nonzero().flatten().tolist()
    named = ", ".join(subject.class_names[label] for label in owners[:3]) + (" …" if len(owners) > 3 else "")
    return {"unit": unit, "name": subject.unit_name(unit), "owners": named, "source": source, "link": link}


def unit_sheet(subject: ExplainedModel, seen: Scan, dataset: Any, unit: int) -> UnitSheet:
    """What the page of a unit shows.

    Args:
        subject: the model.
        seen: what it says of the evaluated images.
        dataset: of these images.
        unit: its index.
    """
    table = subject.units
    weights: list[tuple[int, str, float]] = []
    if table.weight is not None:
        column = table.weight[:, unit].detach().cpu()
        order = column.abs().argsort(descending=True, stable=True)[:CLASSES].tolist()
        weights = [(label, subject.class_names[label], float(column[label])) for label in order if column[label]]
    searched = [("evaluated", seen, dataset)]
    if subject.sources.there:
        searched.insert(0, ("training", subject.sources.training, subject.datamodule.dataset("projection")))
    rows = [[row for row in found.strongest(unit, NEAREST) if found.scores[row, unit] != 0] for _, found, _ in searched]
    samples = [
        samples_of(images, [found.sample_ids[row] for row in own])
        for (_, found, images), own in zip(searched, rows, strict=True)
    ]
    drawn = iter(subject.sources.draw(unit, [sample for own in samples for sample in own]))
    nearest = [
        (
            f"Strongest of {len(found.sample_ids)} {name} images",
            [(float(found.scores[row, unit]), next(drawn)) for row in own],
        )
        for (name, found, _), own in zip(searched, rows, strict=True)
    ]
    counts = Counter(subject.class_names[label] for row in seen.strongest(unit, COUNTED) for label in seen.labels[row])
    groups = table.source.duplicates() if table.source is not None else []
    twins = next((group for group in groups if unit in group), [])
    return UnitSheet(
        unit,
        subject.unit_name(unit),
        [subject.class_names[label] for label in table.owner[unit].nonzero().flatten().tolist()],
        weights,
        nearest,
        sorted(counts.items(), key=lambda item: (-item[1], item[0])),
        [other for other in twins if other != unit and bool(table.active[other])],
    )
