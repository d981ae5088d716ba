"""What the scores of concepts say about other concepts, one by one and together."""

import math
from functools import partial

import pytest
import torch

from protometry.metrics import NicheImpurity, OracleImpurity
from protometry.metrics.functional import niche_impurity, oracle_impurity
from protometry.metrics.primitives.perturbation import mix_bits
from tests.metrics.tester import Case, MetricTests, approx, mean, nowhere_finite, partly_unknown, updated

# concepts 0 to 2 are units 2, 4 and 3, since unit 0 is not active; concept 3 is no unit
CONCEPTS, ACTIVE, UNITS = torch.tensor([2, -1, 0, 2, 1]), torch.arange(5) > 0, (2, 4, 3)


def slow_area(scores, present):
    pairs = [(a, b) for a, yes in zip(scores, present, strict=True) for b, no in zip(scores, present, strict=True)
             if yes == 1 and no == 0]  # fmt: skip
    return mean((a > b) + (a == b) / 2 for a, b in pairs)


def finite(record):
    kept = record["scores"][:, UNITS].isfinite().all(dim=1)
    return kept, record["scores"][kept][:, UNITS].double(), record["concept_labels"][kept][:, :3]


def slow_oracle(record):
    _, scores, present = finite(record)
    rows = []
    for i in range(3):
        squares = []
        for j in range(3):
            known = ~present[:, i].isnan()
            both = ((values[known, i], present[known, j]) for values in (scores, present))
            areas = [slow_area(value.tolist(), labels.tolist()) for value, labels in both]
            squares.append(4 * (max(areas[0], 1 - areas[0]) - max(areas[1], 1 - areas[1])) ** 2)
        rows.append(mean(squares))  # NaN if no concept varies
    return math.sqrt(mean(rows))


def slow_niche(record):
    """With a least-squares solver: the penalty is that of as many further images, which show one score each."""
    kept, every, present = finite(record)
    fitted = mix_bits(record["sample_ids"][kept] ^ 4 << 40) < 0
    values = []
    for j in range(3):
        annotated = ~present[:, j].isnan()
        labels, scores, known = present[annotated, j].double(), every[annotated], fitted[annotated]
        if labels[known].unique().numel() < 2 or labels[~known].unique().numel() < 2:
            continue
        target, areas = labels[known] - labels[known].mean(), []
        for step in range(21):
            outside = []
            for i in range(3):
                column = scores[known, i]
                if column.unique().numel() > 1:
                    rho = torch.corrcoef(torch.stack([column, labels[known]]))[0, 1].abs()
                    outside += (
                        [(scores[:, i] - column.mean()) / column.std(correction=0)] if rho <= step / 20 + 1e-7 else []
                    )
            predicted = torch.zeros(int((~known).sum()), dtype=torch.float64)
            if outside:
                inputs, n = torch.stack(outside, dim=1), int(known.sum())
                rows = torch.cat([inputs[known], math.sqrt(0.01 * n) * torch.eye(len(outside), dtype=torch.float64)])
                answers = torch.cat([target, torch.zeros(len(outside), dtype=torch.float64)])
                predicted = inputs[~known] @ torch.linalg.lstsq(rows, answers[:, None]).solution[:, 0]
            areas.append(slow_area(predicted.round(decimals=6).tolist(), labels[~known].tolist()))
        values.append(sum(areas) / 20 - (areas[0] + areas[-1]) / 40)
    return mean(values)


def record():
    generator = torch.Generator().manual_seed(0)
    labels = torch.rand(31, 4, generator=generator) < 0.5
    scores = torch.randint(9, (31, 5), generator=generator) / 4 + labels[:, :1] / 2
    scores[4], scores[7, 3] = math.nan, math.inf
    return {"scores": scores, "concept_labels": labels, "sample_ids": torch.arange(31)}


RECORD = record()
PLAIN = {name: RECORD[name] for name in ("scores", "concept_labels")}
LOST = 4 + 3 * 31  # all concepts, and the scores of those with a unit on every image


class TestImpurity(MetricTests):
    cases = {
        f"{name}{ending}": Case(partial(kind, CONCEPTS, 4, ACTIVE), change(rec), oracle, nowhere_finite(rec), LOST)
        for ending, change in (("", dict), ("_unknown", partly_unknown))
        for name, kind, rec, oracle in (
            ("oracle", OracleImpurity, PLAIN, slow_oracle),
            ("niche", NicheImpurity, RECORD, slow_niche),
        )
    }


def planted(mixed, images=4000):
    """Three independent concepts, and a third score that says both others as far as it is mixed."""
    generator = torch.Generator().manual_seed(0)
    concepts = torch.rand(images, 3, generator=generator) < 0.5
    scores = concepts + 0.3 * torch.rand(images, 3, generator=generator)
    scores[:, 2] += mixed * (concepts.float() @ torch.tensor([1.0, -2, 0]))
    return scores, concepts, torch.arange(images) % 2 == 0


def test_impurity_grows_with_what_is_planted():
    each = [planted(mixed) for mixed in (0, 0.2, 0.4, 0.6)]
    alone = torch.stack([oracle_impurity(scores, concepts) for scores, concepts, _ in each])
    assert alone[0].max() < 0.04  # chance, about √(1 / n)
    assert (alone[1:, 2] > alone[:-1, 2] + 0.05).all()
    assert torch.equal(alone[:, :2], alone[:1, :2].expand(4, -1))  # whose own scores are pure
    together = torch.stack([niche_impurity(*one) for one in each])
    assert (together[0] - 0.5).abs().max() < 0.02
    assert (together[1:, 1] > 0.55).all()  # not ever larger, as the third score comes to be in its niche


def test_a_scale_moves_nothing():
    scores, concepts, fitted = planted(0.3, images=100)
    moved = scores * torch.tensor([-1.0, 8, 0.5]) + 4
    assert oracle_impurity(moved, concepts).tolist() == approx(oracle_impurity(scores, concepts).tolist())
    assert niche_impurity(moved, concepts, fitted).tolist() == approx(niche_impurity(scores, concepts, fitted).tolist())


def test_true_concepts_have_the_value_of_the_oracle():
    """Of which each excludes the other: their niche holds both below β = 1, so that nothing is outside."""
    concept = torch.arange(200) % 3 == 0
    concepts, ids = torch.stack([concept, ~concept], dim=1), torch.arange(200)
    both = {"scores": concepts.float(), "concept_labels": concepts, "sample_ids": ids}
    summary = updated(NicheImpurity(torch.arange(2), 2), both).summary()
    assert (summary["value"], summary["oracle"]) == approx((0.5 + 0.5 / 40, 0.5 + 0.5 / 40))
    assert (summary["low"], summary["high"]) == approx((math.nan, math.nan))
    del both["sample_ids"]
    constant = both | {"scores": torch.zeros(200, 2)}
    assert updated(OracleImpurity(torch.arange(2), 2), both).compute() == 0
    assert updated(OracleImpurity(torch.arange(2), 2), constant).compute() == 1  # 1/2 instead of 1 everywhere


@pytest.mark.parametrize("fitted", [0, 40])
def test_a_niche_needs_images_of_both_halves(fitted):
    scores, concepts, _ = planted(0.3, images=40)
    assert niche_impurity(scores, concepts, torch.arange(40) < fitted).isnan().all()
