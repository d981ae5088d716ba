"""A split that was written down: read back, and held against the data at hand."""

from __future__ import annotations

import json
from pathlib import Path

from datamodules.splits import SCHEMA, Population, Splits


def read_splits(path: str | Path) -> Splits:
    """Read a ``split.json``.

    Args:
        path: the file.

    Returns:
        The split, not yet compared with any data (see :func:`require_same_content`).

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not a split of this schema.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected argument `split_file` to be a split.json, but there is no file {path}.")
    try:
        record = json.loads(path.read_text(encoding="utf-8-sig"))
        schema, folds = record.pop("schema"), record.pop("folds")
        splits = Splits(**record)
        for part in (splits.test, splits.rest, splits.exclude, *splits.val):
            if not (isinstance(part, list) and all(isinstance(name, str) for name in part)):
                raise TypeError("a part is no list of ids")
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

    Args:
        splits: a split that was read back.
        dataset: name of the data set at hand.

    Raises:
        ValueError: with both names.
    """
    if splits.dataset != dataset:
        raise ValueError(f"Expected argument `split_file` to be a split of {dataset}, but got one of {splits.dataset}.")


def require_same_content(splits: Splits, population: Population) -> None:
    """Stop if a split was made of other samples.

    Args:
        splits: a split that was read back.
        population: the samples at hand.

    Raises:
        ValueError: with how many ids are new or gone and the first of them.
    """
    require_same_data_set(splits, population.dataset)
    if splits.content_sha256 == population.content_sha256:
        return
    listed = [*splits.test, *splits.rest, *(name for part in splits.val for name in part)]
    known, present = set(listed), set(population.ids)
    new = [name for name in population.ids if name not in known]
    gone = [name for name in listed if name not in present]
    first = f"; the first is {(new + gone)[0]!r}" if new or gone else ", but some belong to another class"
    raise ValueError(
        f"Expected argument `split_file` to be a split of the samples under `root`, but {len(new)} ids are new and "
        f"{len(gone)} are gone{first}. Use the data, `classes` and `exclude` the split was made with, or drop it."
    )
