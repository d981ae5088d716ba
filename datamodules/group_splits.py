"""Division of samples of which some stay together, such as the photos of one subject, place or camera."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

from protometry.datamodules.splits import FOLDS, SEED, TEST_FRACTION, Population, Splits, given

TENTHS, FIFTHS = 10, 5


def cv70_of_groups(population: Population, groups: Sequence[str]) -> Splits:
    """Split as near to 70/30 as groups allow, with up to four folds of the 70 %.

    Folds are those of scikit-learn's ``StratifiedGroupKFold``. The test part is made of tenths of all samples, always
    the one that brings it nearest to 30 %, as long as one does.

    Args:
        population: the samples.
        groups: of each sample.

    Raises:
        ValueError: if there are fewer than two groups.

    Example:
        >>> toy = Population("toy", [str(i) for i in range(20)], [i % 2 for i in range(20)], ["a", "b"])
        >>> split = cv70_of_groups(toy, [str(i // 4) for i in range(20)])  # five groups of four
        >>> len(split.test), [len(part) for part in split.val]
        (4, [4, 4, 4, 4])
    """
    if len(set(groups)) < 2:
        raise ValueError(f"Expected at least 2 groups of photos, but all are in {groups[0]!r}. Leave out `group`.")
    everything = range(len(population.ids))
    tenths, test = _folds(population, groups, everything, TENTHS), list[int]()
    while tenths:
        distances = [abs(len(test) + len(tenth) - TEST_FRACTION * len(everything)) for tenth in tenths]
        if min(distances) >= abs(len(test) - TEST_FRACTION * len(everything)):
            break
        test += tenths.pop(distances.index(min(distances)))
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
    """At most so many folds of some rows; none if all are of one group."""
    from sklearn.model_selection import StratifiedGroupKFold  # slow to import, and few runs need it

    strata, kept = [population.strata[row] for row in rows], [groups[row] for row in rows]
    folds = min(folds, len(set(kept)), max(Counter(strata).values()))
    if folds < 2:
        return []
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=SEED)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The least populated class in y has only")  # some folds then lack it
        parts = [part.tolist() for _, part in splitter.split(rows, strata, kept)]
    return [[rows[index] for index in part] for part in parts if part]
