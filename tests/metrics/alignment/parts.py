"""Records of object parts and of the peaks of the units of the class of each image."""

from __future__ import annotations

import math

import torch

UNITS, PARTS, SIZE, HALF = 6, 3, (40, 56), 6


def parts_record(generator, count):
    points = torch.rand(count, PARTS, 2, generator=generator) * torch.tensor([SIZE[1], SIZE[0]])
    visible = torch.rand(count, PARTS, generator=generator) < 0.6
    visible[2] = False
    points[~visible] = -1
    return {"part_locations": points, "part_visible": visible}


def owned_record():
    """Peaks near a part in most images, so that there is something to find and to lose."""
    generator = torch.Generator().manual_seed(11)
    record = parts_record(generator, 13)
    near = record["part_locations"][:, [0, 1]].clamp(min=0).long()
    shifts = torch.randint(-8, 9, (2, 13, 2, 2), generator=generator)
    highest = torch.tensor([SIZE[1] - 1, SIZE[0] - 1])
    peaks, perturbed = (torch.minimum((near + shift).clamp(min=0), highest) for shift in shifts)
    owned = torch.randint(0, 2, (13, 1), generator=generator) * 2 + torch.arange(2)
    owned[5, 1] = -1
    return {"owned_ids": owned, "owned_peaks": peaks, "perturbed_owned_peaks": perturbed} | record


def found(record, peaks, image, slot):
    """The hit vector of the definition; None for a part out of sight."""
    x, y = record[peaks][image, slot].tolist()
    vector = []
    for (a, b), visible in zip(
        record["part_locations"][image].tolist(), record["part_visible"][image].tolist(), strict=True
    ):
        inside = abs(math.floor(a) - x) <= HALF and abs(math.floor(b) - y) <= HALF
        vector.append(inside if visible else None)
    return vector


def slots(record):
    for image, ids in enumerate(record["owned_ids"].tolist()):
        for slot, unit in enumerate(ids):
            if unit >= 0:
                yield image, slot, unit


def images_of(found_of_visible):
    """Images of unit 0 with one part, found in so many of the visible ones."""
    hits, visible = found_of_visible
    peaks = torch.full((visible, 1, 2), 100)
    points = torch.full((visible, 1, 2), 110.0)
    points[hits:] = 200.0
    return {
        "owned_ids": torch.zeros(visible, 1, dtype=torch.int64),
        "owned_peaks": peaks,
        "part_locations": points,
        "part_visible": torch.ones(visible, 1, dtype=torch.bool),
    }
