"""The classes of SketchBirds, one bird each, and their attributes.

A class is one variant per part. The rules of the table make any two classes differ in several parts and
keep the target-sensitivity measure of Hesse et al. 2023 defined for every class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.bird_parts import COLORED, COLORS, PART_NAMES, PARTS, SHAPE_NAMES, shape_and_color
from protometry.datamodules.sketch_birds.bank import PART_TO_GROUP

MAX_ATTEMPTS = 1000


def _failed_rule(table: NDArray[np.int64], variants: Sequence[Sequence[int]]) -> str | None:
    """The first rule of a finished table that does not hold, or None."""
    if any(set(column) != set(allowed) for column, allowed in zip(table.T.tolist(), variants, strict=True)):
        return "every allowed variant is used"
    if not has_disjoint_pairs(table).all():
        return "every class shares exactly two parts with each of two other classes, the two pairs of parts disjoint"
    return None


def has_disjoint_pairs(table: NDArray[np.int64]) -> NDArray[np.bool_]:
    """``(K,)`` bool: two other classes share exactly two parts each with a class, and the pairs are disjoint.

    Source: Hesse et al. 2023, the condition of target sensitivity.

    Example:
        >>> has_disjoint_pairs(np.array([[0, 0, 0, 0, 0], [0, 0, 1, 1, 1], [1, 1, 0, 0, 1]])).tolist()
        [True, False, False]
    """
    shared = table[:, None, :] == table[None, :, :]
    pairs = list(combinations(range(table.shape[1]), 2))
    exact = shared & (shared.sum(-1, keepdims=True) == 2)
    has_pair = np.stack([(exact[..., a] & exact[..., b]).any(axis=1) for a, b in pairs], axis=1)
    disjoint = [(i, j) for i, j in combinations(range(len(pairs)), 2) if not set(pairs[i]) & set(pairs[j])]
    eligible: NDArray[np.bool_] = np.any([has_pair[:, i] & has_pair[:, j] for i, j in disjoint], axis=0)
    return eligible


def make_class_table(num_birds: int, variants: Sequence[Sequence[int]], seed: int = 0) -> NDArray[np.int64]:
    """Draw the variants of all classes.

    Rules: classes differ in at least two parts; every allowed variant is used; every class shares exactly two parts
    with each of two other classes, and the two pairs of parts are disjoint. An attempt takes combinations in random
    order and rejects those too close to an earlier class; then the whole table is checked.

    Returns:
        ``(K, 5)`` int64 variant indices in the order beak, eye, foot, tail, wing.

    Raises:
        ValueError: if no table is found in 1,000 attempts; the text names the rule that failed most often.

    Example:
        >>> table = make_class_table(8, [(0, 1), (0, 1), (0, 2), (0, 4), (0, 3)])
        >>> table.shape, bool(has_disjoint_pairs(table).all())
        ((8, 5), True)
    """
    grid = np.stack(np.meshgrid(*[np.asarray(v, dtype=np.int64) for v in variants], indexing="ij"), -1)
    candidates = grid.reshape(-1, len(variants))
    failures: Counter[str] = Counter()
    for attempt in range(MAX_ATTEMPTS):
        rng = np.random.default_rng(np.random.SeedSequence((seed, attempt)))
        table = _draw(candidates[np.argsort(rng.random(len(candidates)))], num_birds)
        rule = "classes differ in at least two parts" if len(table) < num_birds else _failed_rule(table, variants)
        if rule is None:
            return table
        failures[rule] += 1
    raise ValueError(
        f"Expected argument `num_birds` to allow a class table with {[len(v) for v in variants]} variants per part, "
        f"but got {num_birds} and the rule '{failures.most_common(1)[0][0]}' failed in "
        f"{failures.most_common(1)[0][1]} of {MAX_ATTEMPTS} attempts. Change `num_birds`, or use a preset with other "
        "variants."
    )


def _draw(candidates: NDArray[np.int64], num_birds: int) -> NDArray[np.int64]:
    """The first ``num_birds`` candidates that differ in two parts from all taken before, or fewer if they run out."""
    taken: list[NDArray[np.int64]] = []
    while len(candidates) and len(taken) < num_birds:
        taken.append(candidates[0])
        candidates = candidates[(candidates != candidates[0]).sum(axis=1) >= 2]
    return np.array(taken, dtype=np.int64).reshape(len(taken), candidates.shape[1])


class Attributes(NamedTuple):
    """The attributes of the parts.

    Args:
        group: ``(A,)`` int64 index of the point group the attribute belongs to, -1 for attributes of the whole bird.
        by_part: for each part ``(variants, A)`` bool, which attributes a variant shows.
    """

    names: list[str]
    group: NDArray[np.int64]
    by_part: list[NDArray[np.bool_]]

    def select(self, keep: NDArray[np.bool_]) -> Attributes:
        """The attributes where ``keep`` (A,) is true."""
        names = [name for name, kept in zip(self.names, keep, strict=True) if kept]
        return Attributes(names, self.group[keep], [table[:, keep] for table in self.by_part])

    def of(self, variants: Sequence[int]) -> NDArray[np.bool_]:
        """``(5, A)`` bool: which attributes each part of a bird shows."""
        return np.stack([table[variant] for table, variant in zip(self.by_part, variants, strict=True)])


def all_attributes() -> Attributes:
    """The 40 attributes: 26 variants, shapes and colours of tail and wing, and red, green or blue anywhere.

    Example:
        >>> attributes = all_attributes()
        >>> len(attributes.names), attributes.names[0], attributes.names[-1], int((attributes.group >= 0).sum())
        (40, 'beak::cone', 'any_color::blue', 37)
    """
    rules: list[tuple[str, str | None, dict[str, list[int]]]] = []
    for part, names in PARTS.items():
        rules += [(f"{part}::{name}", part, {part: [index]}) for index, name in enumerate(names)]
    for part in COLORED:
        split = [shape_and_color(part, index) for index in range(len(PARTS[part]))]
        for kind, values, axis in (("shape", SHAPE_NAMES[part], 0), ("color", tuple(COLORS), 1)):
            for number, value in enumerate(values):
                indices = [i for i, pair in enumerate(split) if pair[axis] == number]
                rules.append((f"{part}_{kind}::{value}", part, {part: indices}))
    for number, color in enumerate(COLORS):
        carriers = {p: [i for i in range(len(PARTS[p])) if shape_and_color(p, i)[1] == number] for p in COLORED}
        rules.append((f"any_color::{color}", None, carriers))
    by_part = [np.zeros((len(PARTS[part]), len(rules)), dtype=bool) for part in PART_NAMES]
    for column, (_, _, carriers) in enumerate(rules):
        for part, indices in carriers.items():
            by_part[PART_NAMES.index(part)][indices, column] = True
    group = np.array([PART_TO_GROUP[part] if part else -1 for _, part, _ in rules], dtype=np.int64)
    return Attributes([name for name, _, _ in rules], group, by_part)
