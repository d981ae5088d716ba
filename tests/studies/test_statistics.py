"""Published numbers of HIVE (Kim et al. 2022) through our functions, slow references and planted truths."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import spearmanr

from protometry.evaluation.published.numbers import published
from protometry.studies.analysis.graded import Person
from protometry.studies.analysis.results import tradeoff_results
from protometry.studies.statistics.agreement import (
    brier,
    crossed_spearman,
    gamma,
    krippendorff_alpha,
    similarity_correlation,
    spearman,
    weighted_spearman,
)
from protometry.studies.statistics.comparisons import Summary, between, exact_sign_flip, hedges_g, person_effect
from protometry.studies.statistics.crossed_effects import Estimate, estimate
from protometry.studies.statistics.detection import bootstrap_intervals, detection, percentile_interval
from protometry.studies.study import Arm

NAN = math.nan
TEXTBOOK = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, NAN, NAN, NAN],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, NAN, 3],
        [NAN, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, NAN],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, NAN],
    ]
)


@pytest.mark.parametrize(("mean", "sd", "chance", "t", "p"), [
    (53.6, 15.2, 50, 1.675, 0.1004), (52.8, 19.9, 50, 0.995, 0.3247), (71.2, 33.3, 25, 9.810, None),
    (33.8, 15.9, 25, 3.914, None), (26.4, 19.8, 25, 0.500, 0.619), (32.0, 20.8, 25, 2.380, 0.0213),
    (30.0, 24.1, 25, 1.467, 0.149), (32.8, 24.3, 50, None, 7.6e-6), (42.4, 28.7, 50, None, 0.067),
    (46.4, 35.9, 50, None, 0.482), (37.2, 34.4, 50, None, 0.0114), (44.8, 31.6, 50, None, 0.250),
    (35.6, 26.9, 50, None, 4.2e-4),
])  # fmt: skip
def test_against_chance_as_published(mean, sd, chance, t, p):
    result = Summary(mean, sd, 50).against(chance).test()
    if t is not None:
        assert round(result["t"], 3) == t
    if p is not None:
        assert result["p"] == pytest.approx(p, rel=0.012)  # to the printed digits
    assert (result["t"] > 0) == (mean > chance)


def test_two_methods_as_published():
    gradcam, bagnet = Summary(71.2, 33.3, 50), Summary(45.6, 28.0, 50)
    assert round(between(gradcam, bagnet).test()["t"], 3) == 4.161
    assert f"{between(gradcam, bagnet, pooled=True).test()['p']:.1e}" == "6.8e-05"
    assert f"{between(gradcam, bagnet).test()['p']:.1e}" == "7.0e-05"
    assert hedges_g(gradcam, bagnet) == pytest.approx(0.832 * (1 - 3 / 391), abs=1e-3)


@pytest.mark.parametrize(("dataset", "model", "d_prime", "criterion", "over_belief"), [
    ("cub200", "Classifier", 0.149, -0.520, 67.2), ("cub200", "BagNet", 0.502, -0.443, 57.6),
    ("cub200", "ProtoPNet", 0.529, -0.355, 53.6), ("cub200", "ProtoTree", 0.086, -0.370, 62.8),
    ("imagenet", "Classifier", 0.417, -0.339, 55.2), ("imagenet", "BagNet", 0.043, -0.391, 64.4),
])  # fmt: skip
def test_sensitivity_and_bias_of_table_1(dataset, model, d_prime, criterion, over_belief):
    rates = {
        record.base_key: record.value
        for record in published("hive")
        if (record.table, record.dataset) == ("Table 1", dataset)
        and record.model.startswith(model)
        and record.metric_key.endswith("correct[examples=no]")
    }
    answers = 100_000  # to photos of each kind: so many that the correction of rates does not show
    right = np.arange(2 * answers) < answers
    believed = np.arange(2 * answers) % answers < np.where(
        right,
        round(answers * rates["study/agreement_correct"]),
        round(answers * (1 - rates["study/agreement_incorrect"])),
    )
    nobody = np.zeros(2 * answers, dtype=np.int64)
    result = detection(believed, right, nobody, nobody)
    assert (round(result.d_prime, 3), round(result.criterion, 3)) == (d_prime, criterion)
    assert round(100 - 100 * rates["study/agreement_incorrect"], 1) == over_belief


@pytest.mark.parametrize(("mean", "sd", "items", "expected"), [
    (0.712, 0.333, 5, 0.426), (0.464, 0.359, 5, 0.398), (0.545, 0.303, 4, 0.160), (0.264, 0.198, 5, 0.002),
    (0.338, 0.159, 10, 0.014),
])  # fmt: skip
def test_person_effects_as_published(mean, sd, items, expected):
    assert round(person_effect(Summary(mean, sd, 50), items), 3) == expected


@pytest.mark.parametrize(("sd", "half"), [(15, 4.3), (20, 5.7), (25, 7.1), (30, 8.5), (35, 9.9)])
def test_half_widths(sd, half):
    low, high = Summary(50, sd, 50).interval()
    assert round((high - low) / 2, 1) == half


def test_correlations_of_ten_rank_positions_as_published():
    """Orders of ten ranks with the published correlations: p of .486 and .123 there, by Student's t."""
    ranks = np.arange(10.0)
    for order, rho, p in (
        ((9, 4, 8, 0, 3, 6, 1, 5, 2, 7), -0.25, 0.486),
        ((8, 3, 7, 5, 6, 9, 0, 1, 2, 4), -0.52, 0.123),
        (range(9, -1, -1), -1.0, 2e-4),
    ):
        result = spearman(ranks, np.array(order, dtype=float))
        assert (result[0], result[1]) == (pytest.approx(rho, abs=0.01), pytest.approx(p, abs=0.02 * (rho > -1)))


def test_demands_of_the_trade_off_as_published():
    """Means over 19 studies to the printed digits; per model, the demand for high stakes is 38 to 51 % of the room."""
    accuracy = {
        ("cub200", "Classifier"): 81.0, ("cub200", "BagNet"): 74.2, ("cub200", "ProtoPNet"): 79.9,
        ("cub200", "ProtoTree"): 81.7, ("imagenet", "Classifier"): 76.1, ("imagenet", "BagNet"): 66.7,
    }  # fmt: skip
    of_level = {"low": 6.2, "medium": 8.2, "high": 10.9}
    demands = {(level, *model): [] for level in of_level for model in accuracy}
    for record in published("hive"):
        if record.base_key.startswith("study/tradeoff_") and record.dataset != "all":
            demands[record.base_key.split("_")[-1], record.dataset, record.model.split("[")[0]].append(record.value)
    for level, mean in of_level.items():
        values = [value for name, given in demands.items() if name[0] == level for value in given]
        assert (len(values), round(100 * np.mean(values), 1)) == (19, mean)
    collected = []
    for model, percent in accuracy.items():
        arm = Arm("main", "heatmap", percent, [], [])
        pages = [{f"tradeoff.{name}": percent + 100 * gap for name in of_level} for gap in demands["high", *model]]
        people = [Person(None, "main", pages=one) for one in pages]
        collected.append(tradeoff_results(arm, people)["study/tradeoff_high"])
    rooms = [one.details["headroom"] for one in collected]
    assert (round(100 * min(rooms)), round(100 * max(rooms))) == (38, 51)
    gaps = [one.value for one in collected]
    assert round(float(np.corrcoef(gaps, [100 - percent for percent in accuracy.values()])[0, 1]), 2) == 0.95


def test_agreement_of_raters_as_in_the_textbook():
    assert round(krippendorff_alpha(TEXTBOOK), 4) == 0.8154
    assert math.isnan(krippendorff_alpha(np.full((3, 4), 2.0)))
    assert math.isnan(krippendorff_alpha(np.full((3, 4), NAN)))
    assert math.isnan(krippendorff_alpha(np.array([[1.0, NAN], [NAN, 2.0]])))  # nobody rated what another did


def test_exact_flips_equal_an_enumeration():
    differences = np.array([0.3, -0.1, 0.2, 0.2, 0.0])
    sums = [abs(np.dot(signs, differences)) for signs in itertools.product([-1, 1], repeat=5)]
    assert exact_sign_flip(differences) == pytest.approx(np.mean(np.array(sums) >= 0.6 - 1e-12))


def test_equivalence_is_shown_only_well_inside_the_margin():
    # difference 0, error 5, margin 10: both one-sided t are 2
    assert Estimate(0, 5, 49).equivalence(10) == pytest.approx(0.02552, abs=1e-4)
    assert Estimate(10, 5, 49).equivalence(10) == pytest.approx(0.5)
    assert Estimate(-4, 5, 49).equivalence(10) == Estimate(4, 5, 49).equivalence(10)


def unbalanced(seed, number=90):
    """Answers with gaps of two arms that share some people and some images."""
    rng = np.random.default_rng(seed)
    sides = np.repeat([1, -1], number // 2)
    people, images = rng.integers(0, 7, number) + 4 * (sides > 0), rng.integers(0, 9, number) * 3 + 6 * (sides > 0)
    values = rng.normal(size=11)[people] + rng.normal(size=31)[images] + rng.normal(size=number)
    return values, people, images, sides


@pytest.mark.parametrize("seed", range(4))
def test_the_error_of_two_arms_equals_its_definition(seed):
    """Person by person, image by image and answer by answer."""
    values, people, images, sides = unbalanced(seed)
    weight, residual, scale = np.zeros(90), np.zeros(90), {}
    clusters = {"person": people, "image": images, "both": people * 1000 + images}
    for side in (1, -1):
        own = sides == side
        for name in set(people[own]):
            weight[own & (people == name)] = side / len(set(people[own])) / (own & (people == name)).sum()
        residual[own] = values[own] - side * (weight * values)[own].sum()
        square = {kind: sum(weight[own & (of == name)].sum() ** 2 for name in set(of)) for kind, of in clusters.items()}
        scale[side] = {"joint": 1 - square["person"] - square["image"] + square["both"]}
        scale[side] |= {kind: 1 - square[kind] for kind in ("person", "image")}

    def parts(kind, divided):
        """Squared sum and arms of every person, image or both."""
        for name in set(clusters[kind]):
            own = clusters[kind] == name
            sums = {side: (weight * residual)[own & (sides == side)].sum() / divided[side] ** 0.5 for side in (1, -1)}
            yield sum(sums.values()) ** 2, tuple(sorted(set(sides[own])))

    joint = {side: scale[side]["joint"] for side in scale}
    both = {kind: sum(part for part, _ in parts(kind, joint)) for kind in clusters}
    variance = both["person"] + both["image"] - both["both"]
    alone, lost = {}, {}
    for kind in ("person", "image"):
        actual = list(parts(kind, {side: scale[side][kind] for side in scale}))
        alone[kind], lost[kind] = sum(part for part, _ in actual), 0
        for arms in {arms for _, arms in actual}:
            group = [part for part, of in actual if of == arms]
            lost[kind] += sum(group) ** 2 / max(len(group) - 1, 1)
    result = estimate(values, people, images, sides)
    assert result.value == pytest.approx((weight * values).sum())
    larger = max(alone, key=alone.get)
    if variance > alone[larger]:
        assert result.error == pytest.approx(math.sqrt(variance))
        assert result.df == pytest.approx(variance**2 / (lost["person"] + lost["image"]))
    else:
        assert result.error == pytest.approx(math.sqrt(alone[larger]))
        assert result.df == pytest.approx(alone[larger] ** 2 / lost[larger])
    other = estimate(values, people, images, -sides)
    assert (other.value, other.error, other.df) == pytest.approx((-result.value, result.error, result.df))


def likelihood(theta, values, person, image):
    """Restricted log-likelihood, times -2, of a mean with crossed effects: variances are exp(theta)."""
    of_person, of_image, rest = np.exp(theta)
    covariance = of_person * np.equal.outer(person, person) + of_image * np.equal.outer(image, image)
    covariance = covariance + rest * np.eye(len(values))
    inverse = np.linalg.inv(covariance)
    information = inverse.sum()
    mean = inverse.sum(axis=0) @ values / information
    residuals = values - mean
    return np.linalg.slogdet(covariance)[1] + math.log(information) + residuals @ inverse @ residuals, information**-0.5


def test_the_error_is_that_of_a_mixed_model_fitted_by_restricted_likelihood():
    """Eight people, twelve images: all of them crossed, in which case analysis of variance and REML are equal."""
    rng = np.random.default_rng(1)
    person, image = np.repeat(np.arange(8), 12), np.tile(np.arange(12), 8)
    values = rng.normal(size=8)[person] + rng.normal(size=12)[image] + rng.normal(size=96)
    result = estimate(values, person, image)
    fitted = minimize(lambda theta: likelihood(theta, values, person, image)[0], np.zeros(3), tol=1e-12)
    assert result.error == pytest.approx(likelihood(fitted.x, values, person, image)[1], rel=1e-4)
    table = values.reshape(8, 12)
    sums = [12 * ((table.mean(axis=1) - table.mean()) ** 2).sum(), 8 * ((table.mean(axis=0) - table.mean()) ** 2).sum()]
    squares = sums[0] / 7, sums[1] / 11, (((table - table.mean()) ** 2).sum() - sum(sums)) / 77
    assert result.error == pytest.approx(math.sqrt((squares[0] + squares[1] - squares[2]) / 96))


def test_effects_of_images_that_both_arms_show_cancel():
    """The same people and images in both arms: its error equals the error of their differences, taken as answers."""
    rng = np.random.default_rng(3)
    person, image = np.repeat(np.arange(6), 8), np.tile(np.arange(8), 6)
    effects = 5 * rng.normal(size=8)[image]
    one, other = effects + rng.normal(size=48), effects + rng.normal(size=48)
    twice = estimate(np.r_[one, other], np.r_[person, person], np.r_[image, image], np.repeat([1, -1], 48))
    differences = estimate(one - other, person, image)
    assert (twice.value, twice.error, twice.df) == pytest.approx((differences.value, differences.error, differences.df))


def test_what_cannot_be_tested_says_why():
    ones, index = np.ones(4), np.arange(4)
    nothing = np.array([], dtype=int)
    for result, reason in (
        (Summary.of(np.array([])).against(0.5), "fewer than two participants"),
        (Summary.of(np.array([1.0])).against(0.5), "fewer than two participants"),
        (Summary.of(ones).against(0.5), "same value"),
        (between(Summary(0.5, 0.1, 50), Summary.of(ones[:1])), "fewer than two participants in a group"),
        (between(Summary.of(ones), Summary.of(ones)), "same value"),
    ):
        assert reason in result.test()["reason"]
        assert math.isnan(result.error)
    mixed, table = np.array([1.0, 0.0, 0.0, 1.0]), (np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4))
    for result, reason in (
        (estimate(ones, index, index), "all answers are equal"),
        (estimate(ones * 0, index, index), "all answers are equal"),
        (
            estimate(np.r_[ones, ones * 0], np.r_[index, index], np.r_[index, index], np.repeat([1, -1], 4)),
            "of an arm are",
        ),
        (estimate(ones[:0], nothing, nothing), "fewer than three participants"),
        (estimate(mixed[:1], index[:1], index[:1]), "fewer than three participants"),
        (estimate(mixed, index // 2, index), "fewer than three participants"),
        (estimate(mixed, index, index // 2), "fewer than three images"),
        (estimate(mixed, index, index, np.array([1, 1, 1, -1])), "fewer than three participants in an arm"),
        (estimate(np.array([*(1, 0, 0, 1), *(0, 1, 1, 0)] * 2, dtype=float), *table), "have the same mean"),
    ):
        assert reason in result.reason
        assert result.test()["reason"] == result.reason
        assert np.isnan([result.error, *result.interval(), result.equivalence(0.1)]).all()
    assert math.isnan(gamma(ones, ones > 0))
    assert math.isnan(brier(ones[:0], ones[:0] > 0, 5, 0.5))
    assert math.isnan(spearman(ones, index.astype(float))[0])
    assert math.isnan(detection(ones > 0, ones > 0, index, index).d_prime)
    assert math.isnan(bootstrap_intervals(lambda weights: weights[:, :1], index * 0, index)[0][0])
    assert math.isnan(similarity_correlation(ones, index, index, ones, index).value)


def test_gamma_counts_pairs():
    rng = np.random.default_rng(1)
    levels, right = rng.integers(1, 6, 40).astype(float), rng.random(40) < 0.5
    pairs = [np.sign(a - b) for a in levels[right] for b in levels[~right]]
    assert gamma(levels, right) == pytest.approx(sum(pairs) / np.abs(pairs).sum())


def test_d_prime_of_a_planted_observer():
    """Pooled counts recover .5; the mean of values per person with five answers would not (it gives about .456)."""
    rng = np.random.default_rng(2)
    people = np.repeat(np.arange(400), 10)
    images = np.tile(np.arange(10), 400) + 10 * (people % 40)
    right = images % 2 == 0
    believed = np.where(right, 0.25, -0.25) + rng.normal(size=4000) > -0.3
    result = detection(believed, right, people, images)
    low, high = result.d_prime_interval
    assert low < 0.5 < high
    assert low < result.d_prime < high
    assert result.d_prime == pytest.approx(0.5, abs=0.09)  # two standard errors
    assert (result.criterion, detection(believed, right, people, images)) == (pytest.approx(-0.3, abs=0.05), result)


def test_an_interval_lies_between_percentiles_of_what_is_finite():
    assert percentile_interval(np.append(np.arange(1001.0), [NAN, math.inf])) == pytest.approx((25, 975))
    assert np.isnan(percentile_interval(np.full(3, NAN))).all()


def test_similarity_of_planted_raters():
    """Ratings follow the score, on a scale of each person's own; one who rates all alike is left out."""
    scores = np.linspace(0, 1, 20)
    people, rows = np.repeat(np.arange(6), 20), np.tile(np.arange(20), 6)
    ratings = np.round(1 + 3 * scores[rows]) * (1 + people % 3) + people
    ratings[people == 5] = 3
    result = similarity_correlation(ratings, people, rows, scores, np.arange(20) // 4)
    assert (result.value, result.n) == (pytest.approx(spearman(np.round(1 + 3 * scores), scores)[0]), 20)
    assert result.interval[0] > 0.7
    upside_down = similarity_correlation(-ratings, people, rows, scores, np.arange(20) // 4)
    assert upside_down.value == pytest.approx(-result.value)


def test_repeated_pairs_are_ranked_as_if_written_out():
    rng = np.random.default_rng(4)
    first, second = rng.integers(0, 4, 12).astype(float), rng.random(12)
    weights = rng.integers(0, 3, (5, 12)).astype(float)
    for row, value in zip(weights.astype(int), weighted_spearman(first, second, weights), strict=True):
        assert value == pytest.approx(spearman(np.repeat(first, row), np.repeat(second, row))[0])
    assert np.isnan(weighted_spearman(first * 0, second, weights)).all()


def planted(generator, rho):
    """Answers of 25 people to 12 of 60 images each: the value of the image, an effect of its own, and of the person."""
    value, of_image, of_person = generator.normal(size=60), generator.normal(size=60), generator.normal(size=25)
    images = np.concatenate([generator.permutation(60)[:12] for _ in range(25)])
    people = np.repeat(np.arange(25), 12)
    rest = (of_image[images] + of_person[people] + generator.normal(size=300)) / math.sqrt(3)
    level = rho * value[images] + math.sqrt(1 - rho**2) * rest
    return np.digitize(level, [-0.7, 0, 0.7]).astype(float), value[images], people, images


def test_correlations_with_values_of_images():
    """The correlation is that of all answers; its interval is that of people and images, drawn one by one."""
    answers, values, people, images = planted(np.random.default_rng(0), 0.5)
    found, (low, high) = crossed_spearman(answers, values, people, images)
    assert found == pytest.approx(spearmanr(answers, values).statistic)
    generator, drawn = np.random.default_rng(1), []
    for _ in range(400):
        who, what = generator.integers(25, size=25), generator.integers(60, size=60)
        times = [(who == p).sum() * (what == i).sum() for p, i in zip(people, images, strict=True)]
        drawn.append(spearmanr(np.repeat(answers, times), np.repeat(values, times)).statistic)
    assert (low, high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.04)
    assert math.isnan(crossed_spearman(answers * 0, values, people, images)[0])
