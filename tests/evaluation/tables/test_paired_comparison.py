"""Two runs on the same images: planted differences, a loop by the definition, and what is refused."""

import re

import numpy as np
import pytest
from scipy.stats import ttest_rel

from protometry.evaluation.results.runs import read
from protometry.evaluation.results.values_csv import ImageValues
from protometry.evaluation.tables.paired_comparison import compare, differences
from protometry.evaluation.tables.paired_statistics import paired
from tests.evaluation.explained.evaluated import entry, parsed, rows, write_run

ACCURACY, PSC, PLC = "general/accuracy", "continuity/psc", "continuity/plc"
METRICS = {ACCURACY: entry(0.5), PSC: entry(0.5, higher=False), PLC: entry(1.0, unit="cells", higher=False)}


def values(number=40, seed=0):
    """Made-up values of images: right or wrong, a change, a shift of the peak."""
    draw = np.random.default_rng(seed)
    return np.stack([draw.integers(0, 2, number), draw.random(number), draw.integers(0, 5, number)], axis=1) * 1.0


@pytest.fixture
def compared(tmp_path, capsys):
    """Writes two runs and gives what their comparison prints."""

    def made(first, second, changes=None, **options):
        a = write_run(tmp_path / "a", METRICS, first if isinstance(first, dict) else rows(first))
        b = write_run(tmp_path / "b", METRICS, second if isinstance(second, dict) else rows(second), **(changes or {}))
        compare(str(a), str(b), **({"draws": 500} | options))
        return capsys.readouterr().out

    return made


def table_of(first, second):
    ids = list(rows(first))
    return [ImageValues(ids, list(METRICS), np.asarray(each)) for each in (first, second)], ids


# -- planted ----------------------------------------------------------------------------------------------------------
def test_identical_runs(compared):
    data = values()
    (first, second), ids = table_of(data, data)
    for row in paired(first, second, ids, 500):
        assert (row.difference, row.p_value, row.corrected) == (0, 1, 1)
        assert (row.first, row.pairs) == (row.second, 40)
    row = parsed(compared(data, data))[ACCURACY]
    assert (row["B - A"], row["95 %"], row["p"], row["p (Holm)"], row["n"]) == ("0.00", "undefined", "1", "1", "40")


def test_a_constant_shift(compared):
    data = values()
    out = compared(data, data + np.array([0, 0.125, -2]))
    result = parsed(out)
    assert result[ACCURACY]["p"] == "1"
    psc, plc = result[PSC], result[PLC]
    assert (psc["metric"], psc["unit"], psc["B - A"]) == ("continuity/psc ↓", "%", "+12.50")
    assert (plc["unit"], plc["B - A"], plc["95 %"]) == ("cells", "-2.00", "undefined")
    assert (psc["p"], psc["p (Holm)"]) == ("0.002", "0.006")  # 1 / 501, three tests
    assert "two-sided sign-flip test of the mean difference, 500 draws, seed 0; Holm: corrected over 3 metrics" in out


def test_against_a_loop_by_the_definition():
    first, second = values(25, 1), values(25, 2)
    first[3, 1] = second[4, 1] = second[5, 1] = np.nan
    tables, ids = table_of(first, second)
    row = paired(*tables, ids, 4000)[1]
    pairs = [(a, b) for a, b in zip(first[:, 1], second[:, 1], strict=True) if not np.isnan(a) and not np.isnan(b)]
    assert row.pairs == len(pairs) == 22
    assert row.first == pytest.approx(sum(a for a, _ in pairs) / 22)
    assert row.second == pytest.approx(sum(b for _, b in pairs) / 22)
    assert row.difference == pytest.approx(row.second - row.first)
    expected = ttest_rel([b for _, b in pairs], [a for a, _ in pairs]).confidence_interval()
    assert (row.low, row.high) == pytest.approx(list(expected))


def test_undefined_images_move_no_other_metric():
    first, second = values(30, 1), values(30, 2)
    tables, ids = table_of(first, second)
    complete = paired(*tables, ids, 500)
    first[:, 1] = np.nan
    tables, ids = table_of(first, second)
    holed = paired(*tables, ids, 500)
    assert [row.p_value for row in (holed[0], holed[2])] == [row.p_value for row in (complete[0], complete[2])]
    assert (holed[0].low, holed[2].high) == pytest.approx((complete[0].low, complete[2].high), abs=1e-12)
    assert holed[1].pairs == 0
    assert np.isnan([holed[1].first, holed[1].difference, holed[1].low, holed[1].p_value, holed[1].corrected]).all()


def test_undefined_everywhere_prints_as_such(compared):
    data = values()
    row = parsed(compared(data, data * [1, np.nan, 1]))[PSC]
    assert [row[name] for name in ("A", "B", "B - A", "95 %", "p", "p (Holm)", "n")] == ["undefined"] * 6 + ["0"]


def test_swapping_the_runs_turns_the_sign():
    tables, ids = table_of(values(30, 1), values(30, 2))
    there, back = paired(*tables, ids, 500), paired(*tables[::-1], ids, 500)
    for one, other in zip(there, back, strict=True):
        assert (other.difference, other.low, other.high) == pytest.approx((-one.difference, -one.high, -one.low))
        assert other.p_value == one.p_value


def test_the_order_of_images_moves_nothing(compared):
    images = rows(values())
    first = compared(images, rows(values(seed=1)))
    assert compared(dict(reversed(images.items())), rows(values(seed=1))) == first
    assert compared(images, rows(values(seed=1)), seed=1) != first


# -- pairing ----------------------------------------------------------------------------------------------------------
def test_other_images_are_refused_unless_asked_for(compared):
    first, second = rows(values()), rows(values())
    del first["image0000"], second["image0001"], second["image0002"]
    with pytest.raises(ValueError, match=r"2 are only in the first and 1 only in the second.*`--common true`.* 37 "):
        compared(first, second)
    out = compared(first, second, common=True)
    assert out.startswith("### B - A on 37 images\n")
    assert "- left out: 2 images only in A, 1 only in B\n" in out
    assert parsed(out)[ACCURACY]["n"] == "37"
    with pytest.raises(ValueError, match="the 39 of the first and the 40 of the second share none"):
        compared(first, rows(values(), "other"), common=True)


@pytest.mark.parametrize("common", [False, True])
def test_a_file_that_was_cut_is_refused(tmp_path, common):
    runs = [write_run(tmp_path / name, METRICS, rows(values())) for name in "ab"]
    for run in runs:  # both, so that the rest has the same images
        file = run / "evaluation" / "images.csv"
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:11]))
    with pytest.raises(ValueError, match=r"a/evaluation/images.csv to hold the 40 images of metrics.json, but got 10"):
        compare(*map(str, runs), common=common)


def test_metrics_of_one_run_only_are_named(tmp_path, capsys):
    first = write_run(tmp_path / "a", {ACCURACY: 0.5, PSC: 0.5}, rows(np.eye(4)[:, :2]))
    second = write_run(tmp_path / "b", {PLC: 0.5, ACCURACY: 0.5}, rows(np.eye(4)[:, :2]))
    compare(str(first), str(second), draws=10)
    out = capsys.readouterr().out
    assert list(parsed(out)) == [ACCURACY]
    assert f"- only in A: {PSC}\n- only in B: {PLC}\n" in out
    third = write_run(tmp_path / "c", {PLC: 0.5}, rows(np.eye(4)[:, :1]))
    compare(str(first), str(third), draws=10)
    assert parsed(capsys.readouterr().out) == {}


# -- conditions -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "changes", "found"), [
    ("split", {"split": "val"}, "split test and val"),
    ("variant", {"protocol": {"variant": "quanproto"}}, "variant paper and quanproto"),
    ("explainer", {"explainer": "upsample"}, "explainer prp and upsample"),
    ("dataset", {"dataset": "nico"}, "dataset cub200 and nico"),
    ("view", {"protocol": {"view": "identity"}}, "view paper and identity"),
])  # fmt: skip
def test_what_must_agree(compared, name, changes, found):
    with pytest.raises(ValueError, match=rf"agree in {name}, but got {found}\. .*pass `--across\+={name}`"):
        compared(values(), values(), changes)
    out = compared(values(), values(), changes, across=[name])
    assert f"- A and B differ in: **{name}: {found.removeprefix(name).strip().replace(' and ', ' vs ')}**\n" in out


def test_several_differences_are_listed_and_marked(compared):
    changes = {"model": "PIPNet", "fold": 2, "explainer": "upsample", "protocol": {"signed_maps": True, "noise": 0.0}}
    changes["training"] = {"batch_size": 32}
    out = compared(values(), values(), changes, across=["explainer"])  # A does not say its noise
    assert (
        "- A and B differ in: model: ProtoPNet vs PIPNet; **explainer: prp vs upsample**; batch_size: 64 vs 32; "
        "signed_maps: False vs True; fold: 0 vs 2; **noise: not stated vs 0.0**\n"
    ) in out
    assert re.search(r"- B: PIPNet \(b\) on cub200, test split, .*/b/evaluation, best.ckpt at step 4\n", out)


def test_what_differs_and_what_does_not(tmp_path, compared):
    assert "differ in" not in compared(values(), values(), {"explainer": None})  # no metric of that suite reads one
    assert "differ in" not in compared(values(), values())
    assert differences(read(tmp_path / "a"), read(tmp_path / "b")) == {}


def test_an_unknown_condition(compared):
    with pytest.raises(ValueError, match=r"`across` to hold names among .*but got \['splt'\]. Did you mean 'split'"):
        compared(values(), values(), across=["splt"])


def test_a_run_without_images(tmp_path):
    runs = [str(write_run(tmp_path / name, METRICS)) for name in "ab"]
    with pytest.raises(FileNotFoundError, match=r"images\.csv"):
        compare(*runs)
