"""How often intervals of audits and of concepts hold the truth, for values as the kernels make them.

`-s` prints the shares.
"""

import pytest
import torch

from protometry.metrics import (
    AccuracyAtNEC,
    CellAlone,
    ConceptLocality,
    ConceptTaskLeakage,
    Deletion,
    ExchangedAccuracy,
    InterconceptLeakage,
    MeanAccuracyAtNEC,
    OracleImpurity,
    TCAVArea,
)
from protometry.metrics.functional import kept_area, mean_interval, pairs_interval, wilson_interval
from protometry.metrics.sanity.place import kept_share

POOL, DRAWS, UNITS, SIZES = 20_000, 2_000, 5, (10, 30, 100)


def random(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def deletion():
    """Scores that fall to 0 by some step, sooner in some images, and by a random step for the control."""
    steps = torch.arange(9) / 8
    areas = []
    for longest, seed in ((random(POOL, 1, 1), 1), (1, 2)):
        last = 0.05 + longest * random(POOL, UNITS, 1, seed=seed)
        areas.append(kept_area((1 - steps / last).clamp(min=-0.1)))
    return areas


def cell_alone():
    """Shares that are often 0 or 1, alike within an image; the other cell leaves a fifth of the units anything."""
    whole = 0.2 + random(POOL, UNITS)
    own = whole * (2.5 * random(POOL, 1, seed=1) - 0.7 + 0.3 * random(POOL, UNITS, seed=2))
    other = whole * (random(POOL, UNITS, seed=3) - 0.8)
    return [kept_share(whole, scores) for scores in (own, other)]


def exchanged_accuracy():
    """The model is right on 90 % of the images; with foreign prototypes on 78 %, on 3 % of them only then."""
    where = random(POOL, 1)
    return [((where < 0.75) | (where >= 0.97)).double(), (where < 0.90).double()]


def task_leakage():
    """Half of the concepts are predicted by their truth alone, the others by the class, too; of the same images."""
    concepts, images = 1_000, 400
    labels = torch.arange(images) % 5
    truth = random(images, concepts) < 0.5
    by_class = random(5, concepts, seed=1)[labels] * 6 * (random(concepts, seed=2) - 0.5).clamp(min=0)
    scores = 4.0 * truth - 2 + by_class + random(images, concepts, seed=3)
    metric = ConceptTaskLeakage(torch.arange(concepts), concepts, num_classes=5)
    metric.update(scores.sigmoid(), truth, labels)
    return [metric.values()[:, None]]


def locality():
    """Of five parts, the own one changes a score most, to a different degree for each concept."""
    concepts, parts = 1_000, 5
    own = torch.arange(concepts) % parts
    changes = random(40, concepts, parts) ** 2
    changes[:, torch.arange(concepts), own] += 8 * random(concepts, seed=1) ** 4
    metric = ConceptLocality(torch.arange(concepts), concepts, parts=own, num_parts=parts)
    metric.update(changes, torch.ones(40, parts, dtype=torch.bool))
    return [metric.values()[:, None]]


def tcav():
    """Classes whose logits read some of their concepts, the others by chance, from eight images each."""
    classes, concepts = 2_000, 20
    labels = torch.arange(8 * classes) % classes
    has = random(classes, concepts) < 0.4
    read = random(classes, 1, seed=1) * (2.0 * has - 1) + 2 * random(classes, concepts, seed=2) - 1
    noise = 2 * random(len(labels), 2, concepts, seed=3) - 1
    noise[:, 0] += read[labels]
    areas = []
    for derivatives in (noise, noise.flip(1)):
        metric = TCAVArea(has)
        metric.update(derivatives, labels)
        areas.append(metric.values()[:, None])
    return areas


def accuracy_at_nec(metric):
    """More weights per class classify more of the same images correctly, 96 % with 30 of them."""
    right = random(POOL, 1) < torch.tensor([0.80, 0.88, 0.92, 0.94, 0.95, 0.96])
    metric.update(torch.stack([right, ~right], dim=2).double(), torch.zeros(POOL, dtype=torch.int64))
    return [metric.image_values[:, None]]


def anec_5():
    return accuracy_at_nec(AccuracyAtNEC(5))


def anec_avg():
    return accuracy_at_nec(MeanAccuracyAtNEC())


@pytest.mark.parametrize(("name", "metric"), [
    (deletion, Deletion), (cell_alone, CellAlone), (exchanged_accuracy, ExchangedAccuracy),
    (task_leakage, ConceptTaskLeakage), (locality, ConceptLocality), (tcav, TCAVArea), (anec_5, AccuracyAtNEC),
    (anec_avg, MeanAccuracyAtNEC),
])  # fmt: skip
def test_nine_of_ten_hold_the_truth_from_30_on(name, metric):
    """Of the value and, against a control, of the lift."""
    pools = [pool.nanmean(dim=1) for pool in name()]
    low, high = metric.value_range
    named = {"value": (pools[0], (low, high))} | (
        {"lift": (pools[0] - pools[1], (low - high, high - low))} if pools[1:] else {}
    )
    for what, (pool, ends) in named.items():
        for size in SIZES:
            rows = torch.randint(len(pool), (DRAWS, size), generator=torch.Generator().manual_seed(size))
            values = pool[rows]
            sums = values.sum(dim=1), torch.tensor(size)
            if what == "value" and metric.interval == "wilson":
                bounds = wilson_interval(*sums)
            else:
                bounds = mean_interval(sums[0], values.square().sum(dim=1), sums[1], value_range=ends)
            share = ((bounds[0] <= pool.mean()) & (pool.mean() <= bounds[1])).double().mean().item()
            print(f"{name.__name__} {what}, n = {size}: {share:.1%}")
            assert share >= (0.90 if size >= 30 else 0.80)


@pytest.mark.parametrize("metric", [OracleImpurity, InterconceptLeakage])
def test_nine_of_ten_hold_the_truth_for_pairs_of_concepts(metric):
    """All scores show the same two causes, which half of the concepts have; with an interval of the concepts' own
    values, 40 to 70 % would."""
    concepts, images = 200, 400
    generator = torch.Generator().manual_seed(0)
    causes = torch.randn(images, 2, generator=generator)
    noise, more = torch.randn(2, images, concepts, generator=generator)
    strength = 2 * torch.randn(2, concepts, generator=generator) * (torch.arange(concepts) % 2)
    truth = causes @ strength + noise > 0
    whole = metric(torch.arange(concepts), concepts)
    whole.update((3.0 * truth - 1.5 + causes.sum(dim=1, keepdim=True) + more).sigmoid(), truth)
    pool, summary = whole.pairs(), whole.summary()
    power = 2 if metric is OracleImpurity else 1
    bounds = torch.stack(pairs_interval(pool, value_range=metric.value_range)).tolist()
    assert [summary["low"] ** power, summary["high"] ** power] == pytest.approx(bounds)
    for size, draws in zip(SIZES, (DRAWS, DRAWS, 500), strict=True):
        rows = torch.randint(concepts, (draws, size), generator=generator)
        twice = (rows[:, :, None] == rows[:, None, :]) & ~torch.eye(size, dtype=torch.bool)
        pairs = pool[rows[:, :, None], rows[:, None, :]].masked_fill(twice, torch.nan)
        mean = pairs.nanmean(dim=(1, 2)).mean()
        low, high = pairs_interval(pairs, value_range=metric.value_range)
        share = ((low <= mean) & (mean <= high)).double().mean().item()
        print(f"{metric.__name__}, n = {size}: {share:.1%}")
        assert share >= 0.90
