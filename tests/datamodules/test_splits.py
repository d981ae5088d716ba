import hashlib
import json
import unicodedata
import warnings

import pytest

from protometry.datamodules.splits import (
    Population,
    class_weights,
    cv70,
    few,
    given,
    official,
    read_splits,
    require_same_content,
)


def population(per_class=(10, 12, 8), **changes):
    strata = [c for c, n in enumerate(per_class) for _ in range(n)]
    ids, names = [str(i + 1) for i in range(len(strata))], [f"class {c}" for c in range(len(per_class))]
    return Population(**{"dataset": "toy", "ids": ids, "strata": strata, "class_names": names, **changes})


class TestCv70:
    def test_sizes_by_class(self):
        people = population((10, 20, 10))
        splits = cv70(people)
        stratum = dict(zip(people.ids, people.strata, strict=True))

        def counts(ids):
            return [sum(stratum[name] == c for name in ids) for c in range(3)]

        assert counts(splits.test) == [3, 6, 3]  # 30 % of each class
        assert [sum(column) for column in zip(*map(counts, splits.val), strict=True)] == [7, 14, 7]
        assert all(
            abs(n - total / 4) < 1 for part in splits.val for n, total in zip(counts(part), [7, 14, 7], strict=True)
        )

    def test_parts_are_disjoint_and_complete_in_every_fold(self):
        people = population()
        splits = cv70(people)
        held_out = []
        for fold in range(4):
            parts = splits.indices(people, fold)
            assert sorted(parts["train"] + parts["val"] + parts["test"]) == list(range(30))
            assert parts["test"] == sorted(parts["test"])
            held_out += parts["val"]
        assert len(held_out) == len(set(held_out)) == 21

    def test_without_fold_the_whole_70_percent_is_train(self):
        people = population()
        parts = cv70(people).indices(people, None)
        assert (len(parts["train"]), parts["val"]) == (21, [])

    def test_smallest_class_that_can_be_split(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(cv70(population((6, 6))).val) == 4

    @pytest.mark.parametrize("fold", [-1, 4])
    def test_fold_out_of_range(self, fold):
        people = population()
        with pytest.raises(ValueError, match=rf"`fold` to be 0 to 3 or null, but got {fold}"):
            cv70(people).indices(people, fold)

    @pytest.mark.parametrize(("make", "sizes", "said"), [
        (cv70, (10, 3, 10), "at least 4 samples for the folds, but got 1 .*'class 1' with 3"),
        (cv70, (10, 4, 10), "at least 4 samples in the 70 %"),
        (few, (5, 2), "at least 3 samples for training, .*'class 1' with 2"),
    ])  # fmt: skip
    def test_too_few_samples(self, make, sizes, said):
        with pytest.raises(ValueError, match=said):
            make(population(sizes))


class TestOfficial:
    def test_by_definition(self):
        people = population((10, 5, 3))
        is_test = [i % 5 == 4 for i in range(18)]
        splits = official(people, is_test)
        expected = set()
        for c in range(3):
            ids = [n for n, s, t in zip(people.ids, people.strata, is_test, strict=True) if s == c and not t]
            size = max(1, round(0.2 * len(ids)))  # 8, 4, 3 training ids: 2, 1, 1
            expected |= set(sorted(ids, key=lambda n: hashlib.sha256(f"42:{n}".encode()).hexdigest())[:size])
        assert (len(expected), set(splits.val[0])) == (4, expected)
        assert splits.test == [n for n, t in zip(people.ids, is_test, strict=True) if t]

    def test_does_not_depend_on_order(self):
        people = population()
        other = population(ids=people.ids[::-1], strata=people.strata[::-1])
        assert set(official(people, [False] * 30).val[0]) == set(official(other, [False] * 30).val[0])

    def test_no_validation(self):
        people = population()
        splits = given(people, "own", 7, people.ids[::2], [])
        for fold in (None, 0):
            parts = splits.indices(people, fold)
            assert (len(parts["train"]), parts["val"], len(parts["test"])) == (15, [], 15)
        with pytest.raises(ValueError, match="`fold` to be 0 or null, because this split has no validation part"):
            splits.indices(people, 1)

    def test_class_left_without_training_images(self):
        people = population((4, 1))
        splits = official(people, [False] * 5)
        with pytest.raises(ValueError, match=r"at least 1 samples in the training part.*'class 1' with 0"):
            splits.indices(people, 0)


class TestFew:
    @pytest.mark.parametrize(("size", "parts"), [(3, [1, 1, 1]), (4, [2, 1, 1]), (5, [2, 1, 2]), (20, [11, 3, 6])])
    def test_sizes(self, size, parts):
        people = population((size, size))
        split = few(people)
        found = split.indices(people, 0)
        assert [len(found[part]) for part in ("train", "val", "test")] == [2 * count for count in parts]
        assert split.scheme == "few"


class TestGiven:
    def test_what_is_in_no_part_is_training(self):
        people = population((4, 4))
        splits = given(people, "own", 7, people.ids[:1], [people.ids[1:2], people.ids[2:4]])
        assert (splits.scheme, splits.seed, splits.rest) == ("own", 7, list(people.ids[4:]))
        assert splits.indices(people, 1) == {"test": [0], "val": [2, 3], "train": [1, 4, 5, 6, 7]}

    def test_everything_may_be_test_by_that_name_only(self):
        people = population((1, 1))
        assert given(people, "test", 0, people.ids, []).indices(people, None)["train"] == []
        with pytest.raises(ValueError, match="at least 1 samples in the training part"):
            given(people, "own", 7, people.ids, []).indices(people, None)


class TestRecord:
    def test_content_hash_by_hand(self):
        people = population((1, 1), ids=["10", "9"])
        assert people.content_sha256 == hashlib.sha256(b"10\t0\n9\t1").hexdigest()


def test_class_weights_without_training_samples():
    assert class_weights([], 2).tolist() == [1, 1]


def saved(tmp_path, splits, **changes):
    path = tmp_path / "split.json"
    path.write_text(json.dumps({**splits.record(), **changes}))
    return path


class TestFile:
    @pytest.mark.parametrize("make", [cv70, lambda p: official(p, [i % 3 == 0 for i in range(30)])])
    @pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
    def test_round_trip(self, tmp_path, make, mark):
        people = population(excluded=["99"])
        path = saved(tmp_path, make(people))
        path.write_bytes(mark + path.read_bytes())
        again = read_splits(path)
        assert require_same_content(again, people, str(path), tmp_path) == again
        assert (again, again.exclude) == (make(people), ["99"])

    @pytest.mark.parametrize(("other", "message"), [
        (population(ids=["a", "b", *map(str, range(3, 31))]), "but 2 are gone, such as '1', and 2 are new, .* 'a'"),
        (population((10, 12)), r"there when split\.json was written, but 8 are gone, such as '(2[3-9]|30)'\. R"),
        (population((12, 10, 8)), "but some are in other classes"),
        (population(dataset="birds"), "a split of birds, but got one of toy"),
    ])  # fmt: skip
    def test_other_samples(self, tmp_path, other, message):
        splits = read_splits(saved(tmp_path, cv70(population())))
        with pytest.raises(ValueError, match=message):
            require_same_content(splits, other, "split.json", tmp_path)

    def test_ids_written_with_decomposed_letters(self, tmp_path):
        ids = [f"caf\u00e9/{i}" for i in range(30)]
        decomposed = cv70(population(ids=[unicodedata.normalize("NFD", name) for name in ids]))
        split = require_same_content(read_splits(saved(tmp_path, decomposed)), population(ids=ids), "", tmp_path)
        assert (split, split == decomposed) == (cv70(population(ids=ids)), False)

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"`split_file` to be a split.json, but there is no file"):
            read_splits(tmp_path / "split.json")

    @pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "{}", '{"schema": 1, "folds": 1, "test": []}'])
    def test_no_split(self, tmp_path, text):
        path = tmp_path / "split.json"
        path.write_text(text)
        with pytest.raises(ValueError, match=r"to be a split.json, but .* is not one"):
            read_splits(path)

    def test_other_schema(self, tmp_path):
        with pytest.raises(ValueError, match=r"schema 1 .* has schema 2"):
            read_splits(saved(tmp_path, cv70(population()), schema=2))

    @pytest.mark.parametrize("overlap", [True, False])
    def test_edited_parts(self, tmp_path, overlap):
        splits = cv70(population())
        test = [*splits.test, splits.val[0][0]] if overlap else splits.test[1:]
        edited = read_splits(saved(tmp_path, splits, test=test))
        with pytest.raises(ValueError, match=f"got {int(overlap)} ids in two parts and {30 if overlap else 29} ids"):
            edited.indices(population(), 0)
