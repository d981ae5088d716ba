"""Splits that keep groups of samples together, such as the photos of one subject, place or camera."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

from protometry.datamodules.splits import FOLDS, SEED, TEST_FRACTION, Population, Splits, given

TENTHS, FIFTHS = 10, 5


def cv70_of_groups(population: Population, groups: Sequence[str]) -> Splits:
    """Split as near to 70/30 as groups allow, with up to four folds in the 70 %.

    Folds are those of scikit-learn's ``StratifiedGroupKFold``. The test part is made of tenths of all samples, always
    the one that brings it nearest to 30 %, as long as one does.

    Args:
        population: the samples.
        groups: of each sample.

    Raises:
        ValueError: if nothing can be tested, because a class would be left without training samples.

    Example:
        >>> toy = Population("toy", [str(i) for i in range(20)], [i % 2 for i in range(20)], ["a", "b"])
        >>> split = cv70_of_groups(toy, [str(i // 4) for i in range(20)])  # five groups of four
        >>> len(split.test), [len(part) for part in split.val]
        (4, [4, 4, 4, 4])
    """
    everything, test = range(len(population.ids)), list[int]()
    wanted, tenths = TEST_FRACTION * len(everything), _folds(population, groups, everything, TENTHS)
    while tenths := [tenth for tenth in tenths if _leaves_every_class(population, everything, [*test, *tenth])]:
        distances = [abs(len(test) + len(tenth) - wanted) for tenth in tenths]
        if min(distances) >= abs(len(test) - wanted):
            break
        test += tenths.pop(distances.index(min(distances)))
    if not test:
        raise ValueError(
            "Expected groups that can be held out for the test, but whichever is, a class has no photos left for "
            "training. Make groups smaller, or leave out the column `group`."
        )
    train = sorted(set(everything) - set(test))
    val = _folds(population, groups, train, FOLDS)
    names = [[population.ids[row] for row in part] for part in (sorted(test), *val)]
    return given(population, "cv70", SEED, names[0], names[1:])


def official_of_groups(population: Population, is_test: Sequence[bool], groups: Sequence[str]) -> Splits:
    """Keep the test part of the data set, and hold out whole groups, about a fifth of the others, for one fold."""
    train = [row for row, held_out in enumerate(is_test) if not held_out]
    val = [[population.ids[row] for row in fold] for fold in _folds(population, groups, train, FIFTHS)[:1]]
    test = [name for name, held_out in zip(population.ids, is_test, strict=True) if held_out]
    return given(population, "official", SEED, test, val)


def _folds(population: Population, groups: Sequence[str], rows: Sequence[int], folds: int) -> list[list[int]]:
    """At most so many folds of some rows, without those that hold all samples of a class."""
    from sklearn.model_selection import StratifiedGroupKFold  # slow to import, and few runs need it

    strata, kept = [population.strata[row] for row in rows], [groups[row] for row in rows]
    folds = min(folds, len(set(kept)), max(Counter(strata).values()))
    if folds < 2:
        return []
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=SEED)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class in y has only")  # some folds then lack it
        parts = [part.tolist() for _, part in splitter.split(rows, strata, kept)]
    folds_of_rows = [[rows[index] for index in part] for part in parts if part]
    return [fold for fold in folds_of_rows if _leaves_every_class(population, rows, fold)]


def _leaves_every_class(population: Population, rows: Sequence[int], part: Sequence[int]) -> bool:
    """Whether the rows that are in no part have samples of every class of the rows."""
    others = set(rows) - set(part)
    return {population.strata[row] for row in others} == {population.strata[row] for row in rows}
