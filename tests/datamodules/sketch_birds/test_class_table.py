"""The rules of the class table, T(x) and the attributes, each against its definition."""

import re

import numpy as np
import pytest

from protometry.datamodules.bird_parts import PART_NAMES, PARTS, target_set
from protometry.datamodules.sketch_birds.bank import POINT_GROUPS
from protometry.datamodules.sketch_birds.class_table import all_attributes, has_disjoint_pairs, make_class_table
from protometry.datamodules.sketch_birds.presets import PRESETS


def slow_has_disjoint_pairs(table):
    result = []
    for y, row in enumerate(table):
        shared = [{p for p in range(5) if row[p] == other[p]} for c, other in enumerate(table) if c != y]
        pairs = [parts for parts in shared if len(parts) == 2]
        result.append(any(not a & b for a in pairs for b in pairs))
    return result


@pytest.mark.parametrize("preset", ["tiny", "small", "default"])
@pytest.mark.parametrize("seed", range(3))
def test_rules_hold(preset, seed):
    numbers = PRESETS[preset]
    table = make_class_table(numbers.num_birds, numbers.variants, seed)
    assert table.shape == (numbers.num_birds, 5)
    distances = (table[:, None] != table[None]).sum(-1) + 5 * np.eye(len(table), dtype=int)
    assert distances.min() >= 2
    for column, allowed in zip(table.T, numbers.variants, strict=True):
        assert set(column.tolist()) == set(allowed)
    assert all(slow_has_disjoint_pairs(table.tolist()))


@pytest.mark.parametrize("seed", range(5))
def test_disjoint_pairs_against_the_definition(seed):
    table = np.random.default_rng(seed).integers(0, 3, (9, 5))
    assert has_disjoint_pairs(table).tolist() == slow_has_disjoint_pairs(table.tolist())


def test_same_seed_same_table_other_seed_other_table():
    numbers = PRESETS["small"]
    first, again, other = (make_class_table(numbers.num_birds, numbers.variants, seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize(("num_birds", "rule"), [
    (17, "classes differ in at least two parts"),  # binary codes of length 5 and distance 2 have 16 words
    (3, "every allowed variant is used"),  # three birds leave one of two variants out more often than not
    (5, "every class shares exactly two parts"),
])  # fmt: skip
def test_error_names_the_rule_that_failed(num_birds, rule):
    variants = PRESETS["tiny"].variants if num_birds != 5 else [(0,), (0,), (0,), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4)]
    with pytest.raises(ValueError, match=re.escape(rule) + ".*failed in .* of 1000 attempts"):
        make_class_table(num_birds, variants)


@pytest.mark.parametrize("seed", range(4))
def test_target_set_against_the_definition(seed):
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 2, (12, 5))
    kept = rng.random((12, 5)) < 0.5
    slow = [[all(table[c, p] == table[i, p] for p in range(5) if kept[i, p]) for c in range(12)] for i in range(12)]
    assert [target_set(table, i, kept[i].tolist()).tolist() for i in range(12)] == slow
    assert target_set(table, np.arange(12), kept).tolist() == slow


def test_target_set_extremes():
    table = make_class_table(8, PRESETS["tiny"].variants)
    assert target_set(table, 3, (False,) * 5).all()
    assert np.flatnonzero(target_set(table, 3, (True,) * 5)).tolist() == [3]


def test_forty_attributes_by_hand():
    attributes = all_attributes()
    assert len(attributes.names) == len(set(attributes.names)) == 40
    assert (attributes.group == -1).nonzero()[0].tolist() == [37, 38, 39]
    # beak 3 spoon, eye 0 round, foot 1 web, tail 4 green fork, wing 2 green oval
    shown = attributes.of((3, 0, 1, 4, 2)).any(axis=0)
    names = [name for name, there in zip(attributes.names, shown, strict=True) if there]
    assert names[:5] == ["beak::spoon", "eye::round", "foot::web", "tail::green fork", "wing::green oval"]
    colours = ["tail_color::green", "wing_color::green", "any_color::green"]
    assert sorted(names[5:]) == sorted(["tail_shape::fork", "wing_shape::oval", *colours])


def test_attribute_groups_name_the_part():
    attributes = all_attributes()
    for name, group in zip(attributes.names[:37], attributes.group[:37], strict=True):
        part = name.split("::")[0].split("_")[0]
        assert POINT_GROUPS[group] == ("leg" if part == "foot" else part)
    assert [len(table) for table in attributes.by_part] == [len(PARTS[part]) for part in PART_NAMES]
