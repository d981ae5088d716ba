import json

import pytest

from datamodules.split_file import read_splits, require_same_content
from datamodules.splits import Population, cv70, official


def population(per_class=(10, 12, 8), **changes):
    strata = [c for c, n in enumerate(per_class) for _ in range(n)]
    ids = [str(i + 1) for i in range(len(strata))]
    names = [f"class {c}" for c in range(len(per_class))]
    return Population(**{"dataset": "toy", "ids": ids, "strata": strata, "class_names": names, **changes})


def saved(tmp_path, splits, **changes):
    path = tmp_path / "split.json"
    path.write_text(json.dumps({**splits.record(), **changes}))
    return path


@pytest.mark.parametrize("make", [cv70, lambda p: official(p, [i % 3 == 0 for i in range(30)])])
def test_round_trip(tmp_path, make):
    people = population(excluded=["99"])
    splits = make(people)
    again = read_splits(saved(tmp_path, splits))
    require_same_content(again, people)
    assert again == splits
    assert again.exclude == ["99"]


def test_new_and_gone_ids(tmp_path):
    splits = read_splits(saved(tmp_path, official(population(), [i % 3 == 0 for i in range(30)])))
    other = population(ids=["a", "b", *[str(i + 1) for i in range(2, 30)]])
    with pytest.raises(ValueError, match="2 ids are new and 2 are gone; the first is 'a'"):
        require_same_content(splits, other)
    with pytest.raises(ValueError, match=r"0 ids are new and 8 are gone; the first is '(2[3-9]|30)'"):
        require_same_content(splits, population((10, 12)))


def test_same_ids_other_classes(tmp_path):
    splits = read_splits(saved(tmp_path, cv70(population())))
    with pytest.raises(ValueError, match="0 ids are new and 0 are gone, but some belong to another class"):
        require_same_content(splits, population((12, 10, 8)))


def test_other_data_set(tmp_path):
    splits = read_splits(saved(tmp_path, cv70(population())))
    with pytest.raises(ValueError, match="a split of birds, but got one of toy"):
        require_same_content(splits, population(dataset="birds"))


def test_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`split_file` to be a split.json, but there is no file"):
        read_splits(tmp_path / "split.json")


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "{}", '{"schema": 1, "folds": 1, "test": []}'])
def test_no_split(tmp_path, text):
    path = tmp_path / "split.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"to be a split.json, but .* is not one"):
        read_splits(path)


def test_other_schema(tmp_path):
    with pytest.raises(ValueError, match=r"schema 1 .* has schema 2"):
        read_splits(saved(tmp_path, cv70(population()), schema=2))


@pytest.mark.parametrize("overlap", [True, False])
def test_edited_parts(tmp_path, overlap):
    splits = cv70(population())
    test = [*splits.test, splits.val[0][0]] if overlap else splits.test[1:]
    edited = read_splits(saved(tmp_path, splits, test=test))
    with pytest.raises(ValueError, match=f"got {int(overlap)} ids in two parts and {30 if overlap else 29} ids"):
        edited.indices(population(), 0)


def test_byte_order_mark(tmp_path):
    path = saved(tmp_path, cv70(population()))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_splits(path) == cv70(population())
