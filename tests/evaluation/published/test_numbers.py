"""The published numbers: complete, in range, unique, and every note can be explained."""

import re
from dataclasses import asdict

import pytest

from protometry.evaluation.published.numbers import DEFECTS, Published, all_records, published
from protometry.metrics.suite import ENTRIES, FAMILIES

# keys of papers that are not metrics of the suite: people's answers, and results of other tasks
WITHOUT_METRIC = {"class_representation/correlation", "concepts/accuracy", "general/top5_accuracy"}
COUNTS = {"compactness/global_size", "compactness/npr", "compactness/local_size", "contrastivity/entropy"}
SIGNED = re.compile(r"complexity/iord|concepts/cgim\d_(concept|class)|study/similarity_(pearson|spearman)")
RECORDS = all_records()


def bounds(key):
    """The range of a base key as its definition has it."""
    if SIGNED.fullmatch(key):
        return -1, 1
    if key in COUNTS or key.split("/")[1] in ("plc", "prc", "crc"):
        return 0, float("inf")
    if re.fullmatch(r"study/(understanding_\w+|\w+_confidence|similarity_rating)", key):
        return 1, 5
    return 0, 1


def test_every_key_of_a_family_of_the_suite_is_a_metric():
    keys = {record.base_key for record in RECORDS} - WITHOUT_METRIC
    of_suite = {key for key in keys if key.split("/")[0] in FAMILIES}
    assert of_suite <= set(ENTRIES)
    assert {"general/accuracy", "compactness/global_size"} <= of_suite


def test_the_papers_of_one_protocol_are_found_by_one_name():
    assert {record.paper for record in published("funnybirds")} == {"funnybirds", "funnybirds_revisited"}
    assert {record.paper for record in published("funnybirds_revisited")} == {"funnybirds_revisited"}


def test_nothing_is_there_twice():
    names = [(r.paper, r.table, r.dataset, r.model, r.metric_key) for r in RECORDS]
    assert len(set(names)) == len(names) == 941


def test_types_and_ranges():
    for record in RECORDS:
        low, high = bounds(record.base_key)
        assert low <= record.value <= high, record
        assert record.std is None or record.std >= 0, record
        assert record.n_runs is None or record.n_runs >= 1, record
        assert type(record.value) is float
        assert type(record.verified) is bool
        texts = asdict(record)
        assert all(texts[name] for name in ("paper", "table", "dataset", "model", "metric_key"))
        assert re.fullmatch(r"[\w@/]+(\[[^\[\]]+\])?", record.metric_key), record
        assert re.fullmatch(r"[\w ]+(\[[^\[\]]+\])?", record.model), record
        # a model and its key never qualify the same thing
        inside = record.model.partition("[")[2].removesuffix("]")
        of_model = {item.split("=")[0] for item in inside.split(",") if item}
        assert of_model.isdisjoint(record.key_qualifiers), record
        assert set(record.qualifiers) == of_model | set(record.key_qualifiers)


def test_every_code_is_explained_and_no_code_is_left_in_a_remark():
    assert {f"Q{number}" for number in range(1, 14)} <= set(DEFECTS)
    for record in RECORDS:
        assert not re.search(r"\b[CFHMQ]\d+\b", record.remark), record
    assert {code for record in RECORDS for code in record.codes} <= set(DEFECTS)
    assert all(len(text) > 10 for text in DEFECTS.values())


# -- landmarks, read off the paper's tables ---------------------------------------------------------------------------
@pytest.mark.parametrize(("dataset", "model", "key", "value", "std"), [
    ("cub200", "ProtoPNet[backbone=resnet50,init=imagenet,input=crop]", "general/accuracy", 0.7018, 0.0132),
    ("cub200", "PIPNet[backbone=resnet50,init=imagenet,input=crop]", "completeness/vlc", 0.4347, 0.0045),
    ("nico", "ProtoPool[backbone=resnet50,init=imagenet,input=full]", "continuity/crc", 0.36, 0.06),
    ("awa2", "ProtoPNet[backbone=resnet50,init=imagenet,input=full,pruned=yes]", "compactness/npr", 1.05, 0.13),
    ("cars196", "ProtoPool[backbone=resnet50,init=imagenet,input=crop]", "contrastivity/palc", 0.4094, 0.2170),
])  # fmt: skip
def test_landmarks(dataset, model, key, value, std):
    (result,) = [r for r in published("quanproto") if (r.dataset, r.model, r.base_key) == (dataset, model, key)]
    assert (result.value, result.std, result.n_runs, result.verified) == (value, std, 4, True)


def test_codes_are_found_anywhere_in_a_note():
    note = "Q5 Q8 Q9; header prints no % sign, Table Q99, read as percent Q10"
    record = Published("p", "t", "d", "M", "continuity/cac", 0.1, None, None, note, True)
    assert record.codes == ["Q5", "Q8", "Q9", "Q10"]
    assert record.remark == "header prints no % sign, Table Q99, read as percent"
    assert (record.base_model, record.base_key, record.qualifiers) == ("M", "continuity/cac", {})


def test_an_unknown_paper_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"Expected argument `published` to be one of \['bagnet'.*'quanproto'.*'quan'"):
        published("quan")
    with pytest.raises(ValueError, match=r"but got 'quanprot'. Did you mean 'quanproto'"):
        published("quanprot")
