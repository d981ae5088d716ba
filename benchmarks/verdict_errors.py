"""How often a sentence of an audit is wrong, by simulation; the table of ``docs/results/sanity.md``.

    python benchmarks/verdict_errors.py
    python benchmarks/verdict_errors.py --draws 2000 --seed 1

Every case draws data sets in which the metric is better than its control by a known lift. If that is 0, both "clearly
better" and "worse" are wrong; if it is the margin of ten points, "clearly better" is.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Generator, Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry.evaluation.pages import EvaluationFiles, findings
from protometry.evaluation.pages.audit_page import CLEAR
from protometry.evaluation.tables.markdown import lines
from protometry.metrics import (
    CellAlone,
    ConceptAccuracy,
    ConceptLocality,
    Deletion,
    ExchangedAccuracy,
    Insertion,
    PartConsistency,
    RandomisedRankCorrelation,
    ShortcutSuccess,
)
from protometry.metrics.base import SummaryMetric
from protometry.metrics.suite import ENTRIES

IMAGES, UNITS = 200, 5  # of an audit by default


def in_places(generator: Generator) -> Tensor:
    """``(IMAGES, UNITS)`` in [0, 1), uniform, alike within an image."""
    image, unit = torch.rand(IMAGES, 1, generator=generator), torch.rand(IMAGES, UNITS, generator=generator)
    return (image + 0.3 * unit) % 1


def in_share(values: Tensor, best: float, share: float, generator: Generator) -> Tensor:
    """Values ``(IMAGES, ...)`` that are the best in a share of the images."""
    chosen = torch.rand(IMAGES, *[1] * (values.ndim - 1), generator=generator) < share
    return values.masked_fill(chosen, best)


def removal(metric: type[Deletion], lift: float, generator: Generator) -> SummaryMetric:
    """The score is lost at a random one of eight steps, in some images at once, or for insertion at last."""
    best, built = (0 if metric is Deletion else 7), metric()
    steps = [(8 * in_places(generator)).floor() for _ in range(2)]
    steps[0] = in_share(steps[0], best, lift / (3.5 / 8), generator)
    built.update(*((torch.arange(9) <= step[:, :, None]).float() for step in steps))
    return built


def cell_alone(lift: float, generator: Generator) -> SummaryMetric:
    """A unit keeps a random share of its score, in some images all of it."""
    own, other = in_places(generator), in_places(generator)
    metric = CellAlone()
    metric.update(torch.ones_like(own), in_share(own, 1, lift / 0.5, generator), other)
    return metric


def randomised(lift: float, generator: Generator) -> SummaryMetric:
    """Unrelated maps, in some images opposite ones."""
    maps, other, shifted = torch.randn(3, IMAGES, UNITS, 6, 6, generator=generator)
    opposite = torch.rand(IMAGES, 1, 1, 1, generator=generator) < lift
    metric = RandomisedRankCorrelation()
    metric.update(maps, torch.where(opposite, -maps, other), shifted)
    return metric


def decisions(lift: float, generator: Generator) -> list[Tensor]:
    """``(IMAGES,)`` 0 or 1 each, mostly alike: of the model as it is changed, and of its control, 1 more often."""
    where = torch.rand(IMAGES, generator=generator)
    return [(where < 0.3).long(), ((where < 0.25) | (where > 0.95 - lift)).long()]


def exchanged(lift: float, generator: Generator) -> SummaryMetric:
    metric = ExchangedAccuracy()
    logits = [torch.nn.functional.one_hot(right, 2).double() for right in decisions(lift, generator)]
    metric.update(*logits, torch.ones(IMAGES, dtype=torch.int64))
    return metric


def shortcut(lift: float, generator: Generator) -> SummaryMetric:
    metric, others = ShortcutSuccess(1), torch.zeros(IMAGES, dtype=torch.int64)
    metric.update(others, others, *decisions(lift, generator))
    return metric


def accuracy(count: int, lowest: float, lift: float, generator: Generator) -> SummaryMetric:
    """Concepts of different frequency, predicted better than by the majority to different degrees."""
    majority = lowest + (0.8 - lowest) * torch.rand(count, generator=generator)
    right = majority + lift + 0.1 * torch.rand(count, generator=generator) - 0.05
    drawn = torch.rand(2, IMAGES, count, generator=generator)
    present, correct = drawn[0] < majority, drawn[1] < right
    metric = ConceptAccuracy(torch.arange(count), count)
    metric.update(torch.where(present == correct, 0.9, 0.1), present)
    return metric


def locality(count: int, lift: float, generator: Generator) -> SummaryMetric:
    """Every concept depends on the parts by their size, give or take a half, and so much more on its own."""
    sizes, own = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05]), torch.arange(count) % 5
    shares = sizes * (0.5 + torch.rand(count, 5, generator=generator))
    shares = (1 - lift) * shares / shares.sum(dim=1, keepdim=True) + lift * torch.nn.functional.one_hot(own, 5)
    strength = torch.rand(IMAGES, count, 1, generator=generator)
    metric = ConceptLocality(torch.arange(count), count, parts=own, num_parts=5)
    metric.update(strength * shares, torch.ones(IMAGES, 5, dtype=torch.bool))
    return metric


def consistency(count: int, lift: float, generator: Generator) -> SummaryMetric:
    """Units that find the part in ten images or in none, as their random peaks do, and some more of the units."""
    where = torch.rand(count, generator=generator)
    found = torch.stack([where < 0.1 + lift, (where < 0.06) | (where > 0.96)])
    ids, images = torch.arange(count), 10
    peaks = torch.where(found, 50, 150)[:, None, :, None].expand(2, images, count, 2)
    metric = PartConsistency(count, 1, (224, 224))
    part = torch.full((images, 1, 2), 50.0)
    metric.update(ids.expand(images, -1), peaks[0], part, torch.ones(images, 1, dtype=torch.bool), peaks[1])
    return metric


Draw = Callable[[float, Generator], SummaryMetric]
CASES: dict[tuple[str, str], Draw] = {
    ("sanity/deletion", ""): partial(removal, Deletion),
    ("sanity/insertion", ""): partial(removal, Insertion),
    ("sanity/cell_alone", ""): cell_alone,
    ("sanity/randomised_rank_correlation", ""): randomised,
    ("sanity/exchanged_accuracy", ""): exchanged,
    ("sanity/shortcut_success", ""): shortcut,
    **{("alignment/consistency", f"{count} units"): partial(consistency, count) for count in (40, 200)},
    **{("concepts/accuracy", f"{count} concepts"): partial(accuracy, count, 0.55) for count in (10, 28, 112)},
    ("concepts/accuracy", "28 balanced concepts"): partial(accuracy, 28, 0.5),
    **{("concepts/locality", f"{count} concepts"): partial(locality, count) for count in (10, 30)},
}


def verdict(key: str, metric: SummaryMetric) -> str:
    """What an audit says of a measured metric."""
    summary = {name: None if math.isnan(value) else value for name, value in metric.summary().items()}
    facts = {"unit": ENTRIES[key].unit, "higher_is_better": ENTRIES[key].higher_is_better}
    entry = summary | facts | {"ci95": [summary["low"], summary["high"]]}
    (found,) = findings(EvaluationFiles({"metrics": {key: entry}}))
    return found.verdict


def verdicts(key: str, draw: Draw, lift: float, draws: int, seed: int = 0) -> dict[str, float]:
    """The share of the data sets with each verdict."""
    generator = Generator().manual_seed(seed)
    counted = Counter(verdict(key, draw(lift, generator)) for _ in range(draws))
    return {name: counted[name] / draws for name in ("clear", "unclear", "worse")}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400, help="data sets per case and lift")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rows = []
    for (key, name), draw in CASES.items():
        at = [verdicts(key, draw, lift, arguments.draws, arguments.seed) for lift in (0.0, CLEAR)]
        shares = (at[0]["clear"], at[0]["worse"], at[1]["clear"], at[1]["worse"])
        rows.append([f"`{key}`", name, *(f"{100 * share:.1f}" for share in shares)])
    heads = [f"{verdict}, lift {lift}" for lift in ("0", f"{100 * CLEAR:g}") for verdict in ("clearly better", "worse")]
    print("\n".join(lines(["metric", "of", *heads], rows, left=2)))


if __name__ == "__main__":
    main()
