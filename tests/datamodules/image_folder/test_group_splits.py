import numpy as np
import pytest

from protometry.datamodules.image_folder.group_splits import cv70_of_groups, official_of_groups
from tests.datamodules.test_splits import population


def grouped(per_class, sizes, seed=0):
    """A population of three classes whose groups have random sizes and shares of the classes."""
    people = population(per_class)
    count = len(people.ids)
    bounds = np.random.default_rng(seed).integers(0, sizes, count)
    return people, [f"camera {number}" for number in bounds]


class TestCv70OfGroups:
    @pytest.mark.parametrize("seed", range(3))
    def test_no_group_is_divided(self, seed):
        people, groups = grouped((60, 90, 30), 40, seed)
        split = cv70_of_groups(people, groups)
        of = dict(zip(people.ids, groups, strict=True))
        parts = [{of[name] for name in part} for part in (split.test, *split.val)]
        assert sum(map(len, parts)) == len(set(groups)) == len(set.union(*parts))
        assert not split.rest
        assert 0.25 <= len(split.test) / 180 <= 0.35
        stratum = dict(zip(people.ids, people.strata, strict=True))
        shares = [
            np.bincount([stratum[name] for name in part], minlength=3) / len(part) for part in (split.test, *split.val)
        ]
        assert np.abs(np.array(shares) - np.array([60, 90, 30]) / 180).max() < 0.15

    def test_few_and_large_groups(self):
        """One of three groups, the one nearest to 30 % of 20, is the test part; the others are a fold each."""
        people = population((20,))
        split = cv70_of_groups(people, ["a"] * 10 + ["b"] * 5 + ["c"] * 5)
        assert (len(split.test), sorted(map(len, split.val))) == (5, [5, 10])
        assert cv70_of_groups(people, ["a"] * 12 + ["b"] * 8).val == []
        with pytest.raises(ValueError, match="whichever is, a class has no photos left"):
            cv70_of_groups(people, ["a"] * 20)

    def test_a_class_in_one_group_is_trained_on(self):
        """Class 0 is all in group a, which no part may hold out; of class 1, groups b and c can be."""
        people = population((4, 8))
        split = cv70_of_groups(people, ["a"] * 4 + ["b"] * 4 + ["c"] * 2 + ["d"] * 2)
        held_out = {*split.test, *(name for part in split.val for name in part)}
        assert not held_out & set(people.ids[:4])
        assert all(split.indices(people, fold) for fold in range(len(split.val)))


def test_validation_of_whole_groups():
    people, groups = grouped((60, 90, 30), 40)
    is_test = [group in ("camera 1", "camera 2") for group in groups]
    split = official_of_groups(people, is_test, groups)
    of = dict(zip(people.ids, groups, strict=True))
    validation, rest = {of[name] for name in split.val[0]}, {of[name] for name in split.rest}
    assert {of[name] for name in split.test} == {"camera 1", "camera 2"}
    assert not validation & rest
    assert 0.1 < len(split.val[0]) / is_test.count(False) < 0.3
    alone = official_of_groups(population((4,)), [True, False, False, False], list("abbb"))
    assert (alone.val, len(alone.rest)) == ([], 3)
