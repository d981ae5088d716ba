"""Which images a report shows: some that are wrong, some that are right, from as many classes as possible."""

from __future__ import annotations

from collections import defaultdict

from datamodules.sample import sample_key
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
