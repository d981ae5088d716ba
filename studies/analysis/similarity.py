"""Whether people see the similarity that the model sees."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from protometry.studies.analysis.graded import ItemAnswer, Person
from protometry.studies.analysis.results import StudyResult, accuracy, item_mean
from protometry.studies.statistics.agreement import krippendorff_alpha, similarity_correlation, spearman

Rated = tuple[int, ItemAnswer, str, float]  # person, answer, row, rating


def similarity_results(people: list[Person]) -> dict[str, StudyResult]:
    """Ratings of rows: against the scores of the model, against each other, and by the class that was chosen.

    Returns:
        ``study/similarity_spearman`` over rows, positive where people and model agree;
        ``similarity_rank_position``, the correlation of HIVE: mean rating at the model's rank against the rank,
        *negative* where they agree; ``similarity_alpha``, the agreement of people; ``similarity_rating_chosen`` and
        ``_rejected``; ``similarity_pairwise``, how often people choose the row that the model scores higher;
        ``clarity``, how clear it is what units show. Empty where nobody rated rows.
    """
    results = _pairwise(people) | _clarity(people)
    rated: list[Rated] = [
        (one.person, one, name.removeprefix("similarity."), one.number(name))
        for person in people
        for one in person.items
        for name in one.answers
        if name.startswith("similarity.")
    ]
    if not rated:
        return results
    rows = sorted({(one.item.id, row) for _, one, row, _ in rated})
    index_of = {row: index for index, row in enumerate(rows)}
    key = {one.item.id: one.key for _, one, _, _ in rated}
    scores = np.array([key[item].scores.get(row, math.nan) for item, row in rows])
    images = np.unique([key[item].image for item, _ in rows], return_inverse=True)[1]
    person = np.array([number for number, *_ in rated])
    index = np.array([index_of[one.item.id, row] for _, one, row, _ in rated])
    ratings = np.array([rating for *_, rating in rated])
    results |= {"study/similarity_alpha": _alpha(ratings, person, index, len(rows))}
    if np.isfinite(scores).all():
        correlated = similarity_correlation(ratings, person, index, scores, images)
        reason = "" if math.isfinite(correlated.value) else "fewer than three rows, or all ratings or scores alike"
        results["study/similarity_spearman"] = StudyResult(
            correlated.value, n=correlated.n, interval=correlated.interval, details={"p": correlated.p}, reason=reason
        )
        results["study/similarity_rank_position"] = _rank_position(rated)
    return results | _by_class(rated)


def _alpha(ratings: NDArray[np.float64], person: NDArray[np.int64], index: NDArray[np.int64], rows: int) -> StudyResult:
    people = np.unique(person, return_inverse=True)[1]
    table = np.full((people.max() + 1, rows), np.nan)
    table[people, index] = ratings
    value = krippendorff_alpha(table)
    reason = "" if math.isfinite(value) else "no row was rated by two people, or all ratings are alike"
    return StudyResult(value, n=len(table), reason=reason)


def _rank_position(rated: list[Rated]) -> StudyResult:
    by_rank: dict[int, list[float]] = {}
    for _, one, row, rating in rated:
        option = next((option for option in one.item.options if row in {r.id for r in option.rows}), None)
        names = [r.id for r in option.rows if r.id in one.key.scores] if option else [row]
        ranks = rankdata([-one.key.scores[name] for name in names], "ordinal")
        by_rank.setdefault(int(ranks[names.index(row)]), []).append(rating)
    order = sorted(by_rank)
    value, p = spearman(np.array(order, dtype=np.float64), np.array([np.mean(by_rank[rank]) for rank in order]))
    means = {str(rank): float(np.mean(by_rank[rank])) for rank in order}
    details = {"p": p, "mean_rating_by_rank": means}
    reason = "" if math.isfinite(value) else "fewer than three ranks, or all mean ratings alike"
    return StudyResult(value, n=len(order), details=details, reason=reason)


def _pairwise(people: list[Person]) -> dict[str, StudyResult]:
    """Accuracy of choosing the row with the higher score; pairs with equal scores are left out."""
    cells: list[list[ItemAnswer]] = []
    right: list[list[bool]] = []
    for person in people:
        cells.append([])
        right.append([])
        for one in person.items:
            for name, value in one.answers.items():
                if name.startswith("pair."):
                    first, second = (one.key.scores[row] for row in name.split(".")[1:])
                    if first != second:
                        cells[-1].append(one)
                        right[-1].append((value == name.split(".")[1]) == (first > second))
    cells, right = [cell for cell in cells if cell], [one for one in right if one]
    return {"study/similarity_pairwise": accuracy(cells, right, 0.5)} if cells else {}


def _clarity(people: list[Person]) -> dict[str, StudyResult]:
    """Mean over participants of how clear units are."""
    given = [
        [(one, one.number(name)) for one in person.items for name in one.answers if name.startswith("clarity.")]
        for person in people
    ]
    cells, values = [[one for one, _ in some] for some in given], [[rating for _, rating in some] for some in given]
    return {"study/clarity": item_mean(cells, values)[0]} if any(given) else {}


def _by_class(rated: list[Rated]) -> dict[str, StudyResult]:
    """Mean rating of the rows of the class that was chosen, or believed, and of the others."""
    groups: dict[str, list[float]] = {"chosen": [], "rejected": []}
    for _, one, row, rating in rated:
        kept = any(option.id == one.chosen and row in {r.id for r in option.rows} for option in one.item.options)
        groups["chosen" if kept else "rejected"].append(rating)
    return {
        f"study/similarity_rating_{name}": StudyResult(float(np.mean(values)), n=len(values))
        for name, values in groups.items()
        if values
    }
