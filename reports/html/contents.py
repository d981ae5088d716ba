"""What the report of an evaluation shows: the images, units and classes with a page, and its name."""

from __future__ import annotations

from collections import defaultdict

import torch

from datamodules.sample import sample_key
from lightning_modules.contract import UnitTable
from reports.explained_model import ExplainedModel
from reports.html.evaluation_files import EvaluationFiles
from reports.html.site import key_of
from reports.limits import Limits
from reports.scan import Scan, scan_evaluated


class Contents:
    """What all pages of a report draw on.

    Args:
        subject: the model, its data and the explainer.
        files: what the evaluation found.
        limits: of the pages.

    Attributes:
        seen: what the model says of the evaluated images.
        dataset: of these images.
        rows: positions of the images with a page.
        units: with a page.
        image_links: sample id -> page.
        unit_links: unit -> page.
        class_links: class -> page.

    Raises:
        ValueError: if the model is not the one that was evaluated.
    """

    def __init__(self, subject: ExplainedModel, files: EvaluationFiles, limits: Limits) -> None:
        self.subject, self.files, self.limits = subject, files, limits
        self.seen, self.dataset = scan_evaluated(subject.model, subject.datamodule, files.result)
        self.rows = choose_images(self.seen, limits.images)
        self.units = [] if subject.units.kind == "class" else choose_units(subject.units, limits.units)
        self.image_links = {name: image_link(name) for name in (self.seen.sample_ids[row] for row in self.rows)}
        self.unit_links = {unit: f"unit-{unit}.html" for unit in self.units}
        classes = range(min(len(subject.class_names), limits.classes))
        self.class_links = {label: f"class-{label}.html" for label in classes}


def image_link(sample_id: str) -> str:
    """The page of an image."""
    return f"image-{key_of(sample_id)}.html"


def choose_images(seen: Scan, most: int) -> list[int]:
    """Positions of the images to show: up to half of them wrong, the classes in turn, by the hash of their ids.

    Args:
        seen: what the model says of all images.
        most: number of images.
    """
    wrong, right = ([i for i, correct in enumerate(seen.correct) if correct == wanted] for wanted in (False, True))
    chosen = spread(wrong, seen, max(most // 2, most - len(right)))
    return chosen + spread(right, seen, most - len(chosen))


def choose_units(units: UnitTable, most: int) -> list[int]:
    """The active units with a page, in their order: all, or those with the largest weight of every class, in turn.

    Args:
        units: of the model; the first ones are chosen if it has no weights.
        most: number of units.
    """
    active: list[int] = units.active.nonzero().flatten().tolist()
    if len(active) <= most or units.weight is None:
        return active[:most]
    weight = units.weight.detach().masked_fill(~units.active, -torch.inf)
    in_turn = weight.argsort(dim=1, descending=True, stable=True).T.flatten().tolist()
    return sorted(list(dict.fromkeys(in_turn))[:most])


def spread(rows: list[int], seen: Scan, most: int) -> list[int]:
    """Some of the images, the classes in turn.

    Args:
        rows: positions to choose from.
        seen: for their classes.
        most: number of images.
    """
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: sample_key(seen.sample_ids[row])):
        groups[seen.labels[row]].append(row)
    turns = [(turn, label, row) for label, members in groups.items() for turn, row in enumerate(members)]
    return [row for _, _, row in sorted(turns)[:most]]
