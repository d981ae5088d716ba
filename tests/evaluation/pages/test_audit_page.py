"""What the findings of an evaluation say, and where they are better than their controls."""

import pytest

from protometry.evaluation.pages import EvaluationFiles, findings
from protometry.metrics.suite import ENTRIES, SUITES
from tests.evaluation.explained.evaluated import content, entry


def finding(key, **facts):
    (found,) = findings(EvaluationFiles(content({key: entry(0.4, 0.3, 0.5) | facts})))
    return found


def lifted(name, low, high, better):
    lift = f"lift_over_{name}"
    bounds = {lift: (low + high) / 2, f"{lift}_low": low, f"{lift}_high": high}
    return {"higher_is_better": better, name: 0.4 - (low + high) / 2, **bounds}


@pytest.mark.parametrize(("low", "high", "better", "verdict"), [
    (-0.4, -0.1, False, "clear"), (-0.4, -0.09, False, "unclear"), (-0.1, 0.2, False, "unclear"),
    (0.01, 0.2, False, "worse"), (0.1, 0.4, True, "clear"), (-0.4, -0.1, True, "worse"),
])  # fmt: skip
def test_a_control_is_beaten_by_all_of_the_interval(low, high, better, verdict):
    assert finding("sanity/deletion", **lifted("shifted", low, high, better)).verdict == verdict


def test_the_sentence_names_the_control():
    found = finding("sanity/exchanged_accuracy", **lifted("own", -0.3, -0.1, False))
    assert found.text.endswith("classifies 40.0 % of the images correctly, against 60.0 % with its own ones.")
    assert (found.control, found.lift) == (pytest.approx(0.6), "-20.0 % [-30.0 %, -10.0 %]")


def test_maps_that_do_not_change_are_worse_than_unrelated_ones():
    moved = finding("sanity/randomised_rank_correlation", unit="correlation", **lifted("shifted", 0.3, 0.4, False))
    assert (moved.control, moved.verdict) == (pytest.approx(0.05), "worse")
    assert moved.text.endswith("0.40, against 0.05 at a random place.")


def test_the_interval_of_the_value_says_nothing_about_a_difference():
    assert finding("concepts/accuracy", majority=0.1).verdict == ""


def test_without_a_control_there_is_no_verdict():
    found = finding("general/accuracy")
    assert (found.text, found.verdict, found.control) == (
        "The model classifies 40.0 % of the images correctly.",
        "",
        None,
    )


def test_what_is_undefined_or_was_not_measured_is_left_out():
    undefined = entry(None) | {"reason": "no image"}
    found = findings(EvaluationFiles(content({"general/accuracy": undefined, "general/f1": 0.5})))
    assert found == []


def test_sentences_are_whole():
    for key in SUITES["audit"]:
        sentence = ENTRIES[key].words.finding
        assert sentence.count("{value}") == 1, key
        assert sentence.endswith("."), key
