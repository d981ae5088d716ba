"""Records, loop-by-the-definition references and common tests of the changes of explanations."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial

import torch
from torch import Tensor

from protometry.metrics import SummaryMetric
from tests.metrics.tester import NAN, Case, ChangeTests, mean, nowhere_finite, same, updated

HEIGHT, WIDTH = 4, 7  # not square, as every grid here


def is_flat(values):
    return not max(values) - min(values) > 1e-5 * max(map(abs, values))


def grid(maps):
    """One flat list of values per (image, unit)."""
    return maps.flatten(end_dim=1).flatten(start_dim=1).tolist()


def finite(*lists):
    return all(math.isfinite(value) for values in lists for value in values)


def share(one, other):
    return len(one & other) / len(one | other) if one and other else NAN


def ratio(one, other):
    larger = math.fsum(map(max, one, other))
    return 1 - math.fsum(map(min, one, other)) / larger if larger else NAN


def slow_peak(values):
    index = 0 if is_flat(values) else values.index(max(values))
    return index % WIDTH, index // WIDTH


def slow_plc(one, other):
    (x, y), (u, v) = slow_peak(one), slow_peak(other)
    return abs(x - u) + abs(y - v)


def active_cells(values):
    if is_flat(values):
        return set()
    low, high = Fraction(min(values)), Fraction(max(values))
    return {cell for cell, value in enumerate(values) if (Fraction(value) - low) / (high - low) > Fraction(1, 2)}


def slow_palc(one, other):
    return 1 - share(active_cells(one), active_cells(other))


def slow_rank(row, unit, active):
    """Number of active units with a larger score."""
    return sum(active[other] and row[other] > row[unit] for other in range(len(row)))


def slow_values(change, maps: Tensor, perturbed: Tensor) -> list[float]:
    """One value per (image, unit); maps that are not finite are undefined."""
    pairs = zip(grid(maps), grid(perturbed), strict=True)
    return [change(one, other) if finite(one, other) else NAN for one, other in pairs]


def noisy_maps(seed: int) -> Tensor:
    """Thirteen images, three units: ties, a constant map, an all-negative one and an empty slot."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(13, 3, HEIGHT, WIDTH, generator=generator)
    maps[::2] = maps[::2].round()
    maps[1, 0], maps[4, 2], maps[6, 1], maps[3] = 0.5, -maps[4, 2].abs(), NAN, 0.0
    return maps


def clipped(maps: Tensor) -> Tensor:
    """The positive values above 0.8 of each map; no value where the map is not finite."""
    return torch.where(maps > 0.8, maps, 0)


def slow_clip(maps: Tensor, quantile: float) -> Tensor:
    """Each map clipped on its own, by sorting it."""
    result = torch.zeros_like(maps)
    for image in range(len(maps)):
        for unit in range(maps.shape[1]):
            values = maps[image, unit].flatten().tolist()
            if not finite(values) or is_flat(values):
                continue
            ordered, position = sorted(map(Fraction, values)), Fraction(str(quantile)) * (len(values) - 1)
            below = math.floor(position)
            threshold = ordered[below] + (position - below) * (ordered[below + 1] - ordered[below])
            kept = [value if Fraction(value) > max(threshold, 0) else 0.0 for value in values]
            result[image, unit] = torch.tensor(kept).view(HEIGHT, WIDTH)
    return result


def image_first(values: list[list[float]], valid: list[list[bool]] | None = None) -> float:
    """Mean over the defined units of an image, then over the images that have one."""
    known = valid or [[True] * len(row) for row in values]
    return mean(mean(v if ok else NAN for v, ok in zip(*rows, strict=True)) for rows in zip(values, known, strict=True))


def slow_change(change, record: dict[str, Tensor], quantile: float | None = None) -> float:
    """Value of a metric of maps or of saliency, one pair of maps after the other."""
    one, other, valid = record.values()
    if quantile is not None:
        one, other = slow_clip(one, quantile), slow_clip(other, quantile)
    values = slow_values(change, one, other)
    return image_first(torch.tensor(values, dtype=torch.float64).view(valid.shape).tolist(), valid.tolist())


def change_record(fields: str) -> dict[str, Tensor]:
    """Thirteen images, three units; part of what they hold is undefined."""
    generator = torch.Generator().manual_seed(7)
    valid = torch.rand(13, 3, generator=generator) < 0.8
    if fields in ("maps", "saliency"):
        return {fields: noisy_maps(11), f"perturbed_{fields}": noisy_maps(12).roll(1, dims=0), "valid": valid}
    if fields == "logits":
        logits = torch.randint(-4, 5, (13, 5), generator=generator) / 2
        perturbed = logits + torch.randint(-2, 3, (13, 5), generator=generator)
        logits[3, 2], perturbed[8, 0], logits[5, 1] = NAN, torch.inf, -torch.inf
        return {"logits": logits, "perturbed_logits": perturbed}
    scores = torch.randint(-1, 9, (13, 6), generator=generator) / 4
    shape = (13, 3, 6) if fields == "scores_per_unit" else (13, 6)
    perturbed = torch.randint(-1, 9, shape, generator=generator) / 4
    unit_ids = torch.stack([torch.randperm(6, generator=generator)[:3] for _ in range(13)])
    unit_ids[2, 2], unit_ids[9] = -1, -1
    return {"scores": scores, "perturbed_scores": perturbed, "unit_ids": unit_ids, "valid": valid}


def case(fields: str, build: Callable[[], SummaryMetric], change, quantile: float | None = None) -> Case:
    """The case of a metric of maps or of saliency."""
    record = change_record(fields)
    return Case(build, record, partial(slow_change, change, quantile=quantile), nowhere_finite(record), 39)


class MapChangeTests(ChangeTests):
    """Tests of every change of maps or of clipped saliency."""

    def test_both_sides_are_alike(self, case):
        one, other, _ = case.record
        swapped = case.record | {one: case.record[other], other: case.record[one]}
        assert same(updated(case.build(), swapped).compute(), updated(case.build(), case.record).compute())


def one(rows: list[list[float]]) -> Tensor:
    """One map."""
    return torch.tensor(rows)[None, None]


def at(height: int, width: int, *cells: tuple[int, int]) -> Tensor:
    """A map that is 1 at the cells (row, col) and 0 elsewhere."""
    maps = torch.zeros(1, 1, height, width)
    for row, col in cells:
        maps[0, 0, row, col] = 1
    return maps
