"""Which images and units a report shows: of images some that are wrong and some that are right, from all classes."""

from __future__ import annotations

from collections import defaultdict

import torch

from datamodules.sample import sample_key
from lightning_modules.contract import UnitTable
from reports.scan import Scan


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
