"""Division of samples into train, validation and test, and the files in which it is kept.

Folds are lists of sample ids; nothing is copied or moved on disk. A split is written down as ``split.json`` in the run
folder and may be handed back, so that an evaluation months later sees the same test set or stops.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import TypeAdapter
from torch import Tensor

from protometry.datamodules.sample import nfc
from protometry.run_folder.command_line.user_path import user_path

Split = Literal["train", "projection", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "projection", "val", "test")
Scheme = Literal["cv70", "official"]
SCHEMA = 1
SEED, FOLDS, VAL_FRACTION, TEST_FRACTION = 42, 4, 0.2, 0.3


class TooFewSamplesError(ValueError):
    """A class has fewer samples than a division needs."""


@dataclass(frozen=True)
class Population:
    """The samples that are divided.

    Args:
        ids: sample ids in their canonical order (official number, or sorted path).
        strata: class index of each sample.
        excluded: ids the user left out; they are not among ``ids``.

    Example:
        >>> Population("toy", ["2", "1"], [0, 1], ["a", "b"]).content_sha256[:8]
        '9cfa0bff'
    """

    dataset: str
    ids: Sequence[str]
    strata: Sequence[int]
    class_names: Sequence[str]
    excluded: Sequence[str] = ()

    @property
    def content_sha256(self) -> str:
        """SHA-256 over the sorted lines ``sample_id TAB stratum``, joined by newlines."""
        lines = sorted(f"{name}\t{stratum}" for name, stratum in zip(self.ids, self.strata, strict=True))
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def require_per_class(self, least: int, ids: Sequence[str], where: str) -> None:
        """Raise if a class has fewer than ``least`` of ``ids``.

        Raises:
            TooFewSamplesError: with the number of such classes and the first one's name and count.
        """
        stratum_of = dict(zip(self.ids, self.strata, strict=True))
        counts = Counter(stratum_of[name] for name in ids)
        short = [stratum for stratum in range(len(self.class_names)) if counts[stratum] < least]
        if short:
            raise TooFewSamplesError(
                f"Expected every class to have at least {least} samples {where}, but got {len(short)} classes with "
                f"fewer; the first is {self.class_names[short[0]]!r} with {counts[short[0]]}. Add images, or leave "
                "the class out."
            )


@dataclass(frozen=True)
class Splits:
    """A division of a population: one test list and one validation list per fold; train is everything else.

    Args:
        rest: ids in neither the test list nor any validation list.
    """

    dataset: str
    scheme: str
    seed: int
    content_sha256: str
    test: list[str]
    val: list[list[str]]
    rest: list[str]
    exclude: list[str]

    def record(self) -> dict[str, Any]:
        """The content of ``split.json``."""
        return {"schema": SCHEMA, "folds": len(self.val), **vars(self)}

    def training_ids(self, fold: int | None) -> list[str]:
        """Ids of the training part of a fold; of everything that is not test for None."""
        return [*self.rest, *(name for number, part in enumerate(self.val) if number != fold for name in part)]

    def indices(self, population: Population, fold: int | None) -> dict[str, list[int]]:
        """Positions in the population of each part of one fold, in the population's order.

        Fold None trains on everything that is not test, and so does 0, the default of data modules, where there is no
        validation list.

        Returns:
            ``{"train": [...], "val": [...], "test": [...]}``, disjoint and together complete.

        Raises:
            ValueError: if the fold does not exist, the parts overlap or are incomplete, or a class is not in train.
        """
        if fold == 0 and not self.val:
            fold = None
        if fold is not None and not 0 <= fold < len(self.val):
            allowed = (
                f"0 to {len(self.val) - 1} or null"
                if self.val
                else "0 or null, because this split has no validation part"
            )
            raise ValueError(f"Expected argument `fold` to be {allowed}, but got {fold}.")
        named = Counter([*self.test, *self.rest, *(name for part in self.val for name in part)])
        twice = [name for name, count in named.items() if count > 1]
        if twice or named.keys() != set(population.ids):
            raise ValueError(
                f"Expected the parts of the split to be disjoint and complete, but got {len(twice)} ids in two parts "
                f"and {len(named)} ids for {len(population.ids)} samples. Remove `split_file` to make the split again."
            )
        part_of = dict.fromkeys(self.val[fold] if fold is not None else [], "val") | dict.fromkeys(self.test, "test")
        parts: dict[str, list[int]] = {"train": [], "val": [], "test": []}
        for index, name in enumerate(population.ids):
            parts[part_of.get(name, "train")].append(index)
        if self.scheme != "test":  # which keeps every sample for test
            where = "in the training part" + (" (`fold: null` trains without validation)" if parts["val"] else "")
            population.require_per_class(1, [population.ids[i] for i in parts["train"]], where)
        return parts


def cv70(population: Population) -> Splits:
    """Split 70/30 with four stratified folds, which together are the whole 70 %.

    Schlinge et al. 2025, *QuanProto*, after Raschka 2018: ``train_test_split(train_size=.7)`` and then
    ``StratifiedKFold`` over the training ids in their original order, both stratified by class.

    Raises:
        TooFewSamplesError: if a class has fewer than four samples in all, or in the 70 %.

    Example:
        >>> toy = Population("toy", [str(i) for i in range(20)], [i % 2 for i in range(20)], ["a", "b"])
        >>> split = cv70(toy)
        >>> len(split.test), [len(part) for part in split.val], split.rest
        (6, [4, 4, 3, 3], [])
    """
    from sklearn.model_selection import StratifiedKFold, train_test_split  # slow to import, and few runs need it

    population.require_per_class(FOLDS, population.ids, "for the folds")
    order = list(range(len(population.ids)))
    train, test = train_test_split(order, train_size=0.7, random_state=SEED, stratify=list(population.strata))
    train, test = sorted(train), sorted(test)
    ids = population.ids
    population.require_per_class(FOLDS, [ids[i] for i in train], "in the 70 % that is divided into folds")
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    held_out = splitter.split(train, [population.strata[i] for i in train])
    val = [[ids[train[i]] for i in part] for _, part in held_out]
    return given(population, "cv70", SEED, [ids[i] for i in test], val)


def official(population: Population, is_test: Sequence[bool]) -> Splits:
    """Keep the data set's own test part and hold out validation samples of every class by hash, for one fold.

    Per class the ``max(1, round(.2 n))`` training ids with the smallest SHA-256 of ``42:sample_id`` are validation, a
    rule that needs no minimum number of samples and no order. Validation never equals test.

    Example:
        >>> toy = Population("toy", list("abcd"), [0, 0, 0, 0], ["x"])
        >>> split = official(toy, [False, False, False, True])
        >>> split.test, len(split.val[0]), len(split.rest)
        (['d'], 1, 2)
    """
    chosen = _share(population, [not held_out for held_out in is_test], VAL_FRACTION)
    test = [name for name, held_out in zip(population.ids, is_test, strict=True) if held_out]
    return given(population, "official", SEED, test, [[name for name in population.ids if name in chosen]])


def few(population: Population) -> Splits:
    """Hold out what small classes can spare: 30 % of each for the test, and a fifth of the others for validation.

    Both are drawn by hash as in :func:`official`, at least one sample of every class each, for one fold.

    Raises:
        TooFewSamplesError: if a class has fewer than three samples.

    Example:
        >>> split = few(Population("toy", list("abcdefgh"), [0] * 5 + [1] * 3, ["x", "y"]))
        >>> len(split.test), len(split.val[0]), len(split.rest)
        (3, 2, 3)
    """
    population.require_per_class(3, population.ids, "for training, validation and test")
    test = _share(population, [True] * len(population.ids), TEST_FRACTION)
    return replace(official(population, [name in test for name in population.ids]), scheme="few")


def _share(population: Population, candidates: Sequence[bool], fraction: float) -> set[str]:
    """The ``max(1, round(fraction n))`` of the n candidates of each class with the smallest SHA-256 of ``42:id``."""
    of_class: dict[int, list[str]] = {}
    for name, stratum, candidate in zip(population.ids, population.strata, candidates, strict=True):
        if candidate:
            of_class.setdefault(stratum, []).append(name)
    chosen: set[str] = set()
    for members in of_class.values():
        ranked = sorted(members, key=lambda name: hashlib.sha256(f"{SEED}:{name}".encode()).digest())
        chosen.update(ranked[: max(1, round(fraction * len(members)))])
    return chosen


def given(population: Population, scheme: str, seed: int, test: Sequence[str], val: Sequence[list[str]]) -> Splits:
    """A split whose parts are known; samples in no part are its ``rest``."""
    taken = {*test, *(name for part in val for name in part)}
    rest = [name for name in population.ids if name not in taken]
    excluded = list(population.excluded)
    return Splits(population.dataset, scheme, seed, population.content_sha256, list(test), list(val), rest, excluded)


def class_weights(labels: Sequence[int], num_classes: int) -> Tensor:
    """``(K,)`` weights n / (K n_c) that give every class the same say; 1 where there are no training samples.

    Example:
        >>> class_weights([0, 0, 0, 1], 2)
        tensor([0.6667, 2.0000])
    """
    if not labels:
        return torch.ones(num_classes)
    counts = torch.bincount(torch.as_tensor(labels, dtype=torch.int64), minlength=num_classes)
    return len(labels) / (num_classes * counts.float())


def read_splits(path: str | Path) -> Splits:
    """Read a ``split.json``, not yet compared with any data (see :func:`require_same_content`).

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a split of this schema.
    """
    path = user_path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `split_file` to be a split.json, but there is no file {path}.")
    try:
        record = json.loads(path.read_text(encoding="utf-8-sig"))
        schema, folds = record.pop("schema"), record.pop("folds")
        splits = TypeAdapter(Splits).validate_python(record)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"Expected argument `split_file` to be a split.json, but {path} is not one ({error})."
        ) from error
    if schema != SCHEMA or folds != len(splits.val):
        raise ValueError(
            f"Expected argument `split_file` to have schema {SCHEMA} and {folds} folds, but {path} has schema {schema} "
            f"and {len(splits.val)} folds."
        )
    return splits


def require_same_data_set(splits: Splits, dataset: str) -> None:
    """Stop if a split is one of another data set.

    Raises:
        ValueError: with both names.
    """
    if splits.dataset != dataset:
        raise ValueError(f"Expected argument `split_file` to be a split of {dataset}, but got one of {splits.dataset}.")


def require_same_content(splits: Splits, population: Population, file: str, folder: Path) -> Splits:
    """The split in ``file``, its ids in the form :func:`.nfc`, unless it was made of other samples.

    Raises:
        ValueError: with how many samples are gone or new and the first of them.
    """
    require_same_data_set(splits, population.dataset)
    written = {nfc(name): name for name in [*splits.test, *splits.rest, *(name for val in splits.val for name in val)]}
    as_written = replace(population, ids=[written.get(name, name) for name in population.ids])
    if splits.content_sha256 == as_written.content_sha256:
        test, rest, exclude, *val = (
            [nfc(name) for name in part] for part in (splits.test, splits.rest, splits.exclude, *splits.val)
        )
        content = population.content_sha256
        return replace(splits, content_sha256=content, test=test, rest=rest, exclude=exclude, val=val)
    present = set(population.ids)
    changes = {
        "gone": [name for name in written if name not in present],
        "new": [name for name in population.ids if name not in written],
    }
    found = [
        f"{len(names)} {'is' if len(names) == 1 else 'are'} {what}, such as {names[0]!r}"
        for what, names in changes.items()
        if names
    ]
    raise ValueError(
        f"Expected {folder} to hold the samples that were there when {file} was written, but "
        f"{', and '.join(found) or 'some are in other classes'}. Restore them, with the "
        "same `classes` and `exclude`, or train again; a `split_file` of your own can be left out."
    )
