"""The page of an analysis: its sentences, and whether it shows the numbers of the summary."""

import json
import re
from dataclasses import replace

import pytest

from protometry.scripts import evaluate
from protometry.studies.analysis.analyse import analyse, correct, plain
from protometry.studies.analysis.headlines import headlines, people
from protometry.studies.analysis.hive import published_for
from protometry.studies.analysis.names import name_of
from protometry.studies.analysis.results import StudyResult
from protometry.studies.simulation.observer import SimulatedParticipant
from protometry.studies.study import Arm, Assignment, Item, Option, Quality, Study
from tests.studies.test_analysis import answered
from tests.studies.toy import TASKS, make_bundle

ARMS = [Arm("prototypes", "units", 80.0, [], []), Arm("photos", "none", 80.0, [], [])]
TOTAL, PAIR = "prototypes/study/agreement_total", "prototypes - photos/study/agreement_total"
CHANGE = "prototypes/study/understanding_change"


def said(entries, task="agreement", declared=True):
    """Sentences for results by name, corrected together like a study's."""
    family = list(entries) if declared else []
    study = Study("s", "S", 0, task, ARMS, Assignment(1, 1, 1), quality=Quality(family=family))
    collected = {}
    for name, one in entries.items():
        arm, _, key = name.partition("/")
        collected.setdefault(arm, {})[key] = one
    correct(collected, family)
    return [one.text for one in headlines(study, plain(collected))]


def share(value, low, high, t, p, detectable=0.09, chance=0.5):
    details = {"chance": chance, "clustered": {"t": t, "df": 20.0, "p": p}, "detectable": detectable}
    return StudyResult(value, 0.2, 50, (low, high), details)


def gap(value, low, high, t, p, equivalence):
    details = {"clustered": {"t": t, "df": 20.0, "p": p}, "equivalence_p": equivalence, "margin": 0.1}
    return StudyResult(value, n=100, interval=(low, high), details={**details, "detectable": 0.09})


@pytest.mark.parametrize(
    ("name", "one", "expected"),
    [
        (TOTAL, share(0.624, 0.551, 0.697, 3.4, 0.003), "With prototypes, people judged the prediction correctly for "
         "62.4 % [55.1, 69.7] of the photos, above the 50 % of guessing (p = .003 after Holm)."),
        (TOTAL.replace("total", "incorrect"), share(0.328, 0.26, 0.39, -5.0, 0.00001), "With prototypes, people judged "
         "the prediction correctly for 32.8 % [26.0, 39.0] of the photos with a wrong prediction, below the 50 % of "
         "guessing (p < .001 after Holm)."),
        (TOTAL, share(0.521, 0.46, 0.582, 0.7, 0.49), "With prototypes, people judged the prediction correctly for "
         "52.1 % [46.0, 58.2] of the photos, not detectably different from the 50 % of guessing (p = .49 after Holm); "
         "the study could have found 9 points."),
        (TOTAL, StudyResult(0.625, n=2, details={"chance": 0.5, "clustered": {"reason": "fewer than three people"}}),
         "With prototypes, people judged the prediction correctly for 62.5 % of the photos; this cannot be tested "
         "against the 50 % of guessing: fewer than three people."),
        (TOTAL, StudyResult(float("nan"), details={"clustered": {"reason": "few"}}, reason="nobody answered"),
         "With prototypes, “accuracy, all photos” is undefined: nobody answered."),
        (PAIR, gap(0.081, 0.02, 0.142, 2.7, 0.012, 0.3), "With prototypes, people are right more often than with "
         "photos: +8.1 points [2.0, 14.2], p = .012 after Holm."),
        (PAIR, gap(-0.031, -0.05, -0.012, -3.3, 0.004, 0.001), "With prototypes, people are right less often than with "
         "photos: -3.1 points [-5.0, -1.2], p = .004 after Holm; the difference is smaller than 10 points (p = .001 in "
         "the test of equivalence)."),
        (PAIR, gap(0.021, -0.06, 0.102, 0.5, 0.61, 0.09), "No difference between prototypes and photos is detectable: "
         "+2.1 points [-6.0, 10.2], p = .61 after Holm; the study could have found 9 points."),
        (PAIR, gap(0.004, -0.04, 0.048, 0.2, 0.85, 0.0002), "Between prototypes and photos, the difference is smaller "
         "than 10 points: +0.4 points [-4.0, 4.8], p < .001 in the test of equivalence."),
        (PAIR, StudyResult(0.1, n=4, details={"clustered": {"reason": "fewer than three images in an arm"}}), "The "
         "difference of +10.0 points between prototypes and photos cannot be tested: fewer than three images in an "
         "arm."),
        (CHANGE, StudyResult(-0.4, 1.0, 50, (-0.68, -0.12), {"paired": {"t": -2.8, "p": 0.007}, "detectable": 0.4}),
         "With prototypes, people's rating of their understanding fell when they saw their result: -0.40 [-0.68, "
         "-0.12] of 5, p = .007 after Holm."),
        (CHANGE, StudyResult(0.1, 1.0, 50, (-0.18, 0.38), {"paired": {"t": 0.7, "p": 0.48}, "detectable": 0.4}),
         "With prototypes, people's rating of their understanding did not change detectably when they saw their "
         "result: 0.10 [-0.18, 0.38] of 5, p = .48 after Holm; the study could have found 0.40 of 5."),
        (CHANGE, StudyResult(0.0, 0.0, 3, details={"paired": {"reason": "all participants have the same value"}}),
         "With prototypes, people's rating of their understanding before and after they saw their result cannot be "
         "compared: all participants have the same value."),
    ],
)  # fmt: skip
def test_a_sentence_says_what_was_found(name, one, expected):
    assert said({name: one}) == [expected]


def test_what_holm_takes_away_is_no_finding():
    """.01, .03 and .04 become .03, .06 and .06."""
    result = said(
        {
            TOTAL: share(0.6, 0.52, 0.68, 2.7, 0.01),
            TOTAL.replace("total", "correct"): share(0.6, 0.51, 0.69, 2.3, 0.03),
            PAIR: gap(0.08, 0.004, 0.156, 2.2, 0.04, 0.3),
        }
    )
    assert "above the 50 % of guessing (p = .030 after Holm)" in result[0]
    assert "not detectably different from the 50 % of guessing (p = .060 after Holm)" in result[1]
    assert "is detectable: +8.0 points [0.4, 15.6], p = .060 after Holm" in result[2]


def test_without_hypotheses_the_accuracy_of_each_arm_is_said_without_correction():
    result = said(
        {
            "prototypes/study/distinction_total": share(0.32, 0.26, 0.38, 2.4, 0.0213, chance=0.25),
            "photos/study/distinction_total": share(0.25, 0.2, 0.3, 0.0, 1.0, chance=0.25),
        },
        *("distinction", False),
    )
    assert result[0] == (
        "With prototypes, people chose the right class for 32.0 % [26.0, 38.0] of the photos, above the 25 % of "
        "guessing (p = .021 without correction)."
    )
    assert "not detectably different from the 25 % of guessing (p = 1 without correction)" in result[1]


def test_who_took_part_and_who_was_excluded():
    some = {"status": {"completed": 50, "withdrawn": 1}, "flags": {"fast": 3, "straight_line": 2}, "analysed": 50}
    assert people({"participants": {**some, "kept": 48}, "exclude": ["straight_line"]}) == [
        "51 came: 50 finished, 1 withdrew.",
        "Of those who finished, 2 were excluded by the declared rules (2 gave the same rating throughout).",
        "Noted, but no reason for exclusion: 3 answered too fast.",
    ]


def printed(value, unit):
    """As the page must print it, written down a second time."""
    return {"%": f"{100 * value:.1f}", "points": f"{100 * value:.1f}", "": f"{value:.2f}"}[unit]


def cell(row, arm):
    """What a row says of an arm: all of it in the picture and in comparisons, where its name stands, or its cell."""
    if "<b>" in row or " - " in row:
        return row if re.search(rf"(<b>|<th>){arm}[ <]", row) else ""
    return re.findall(r"<td.*?</td>", row, re.S)[["main", "other0"].index(arm)]


@pytest.mark.parametrize("task", TASKS)
def test_every_number_of_the_page_is_that_of_the_summary(tmp_path, task):
    """Rows are found by their keys; dots and lines of the picture lie where the summary says."""
    quality = Quality(min_seconds=0.0, exclude=["straight_line"])
    make_bundle(tmp_path, task, "units", others=1, quality=quality)
    answered(tmp_path, *[SimulatedParticipant("noisy", d_prime=1.5)] * 9, SimulatedParticipant("straight_liner"))
    summary = analyse(tmp_path)
    assert summary["participants"]["kept"] < summary["participants"]["analysed"]
    page = (tmp_path / "analysis/index.html").read_text("utf-8")
    opened, details = page.split("Every result with its tests", 1)
    rows = re.findall(r"<tr.*?</tr>", opened, re.S)
    kept = summary["results"]["kept"]
    for arm, entries in kept.items():
        for key, one in entries.items():
            unit = "points" if " - " in arm else name_of(key).unit
            own = [cell(row, arm) for row in rows if f"<code>{key}</code>" in row]
            assert f"<code>{key}</code>" in details
            numbers = [value for value in (one["value"], *one["interval"]) if value is not None]
            assert any(all(printed(value, unit) in row for value in numbers) for row in own), (arm, key)
    kinds = ("total", "correct", "incorrect")
    shown = [kept[arm][f"study/{task}_{kind}"] for arm in ("main", "other0") for kind in kinds]
    dots = [float(x) for x in re.findall(r'<circle cx="([\d.]+)%" cy="50%"', page)]
    assert dots == pytest.approx([100 * one["value"] for one in shown])
    ends = re.findall(r'x1="([\d.]+)%" y1="50%" x2="([\d.]+)%" y2="50%" stroke="#036"', page)
    bounds = [min(max(100 * bound, 0), 100) for one in shown for bound in one["interval"] if bound is not None]
    assert [float(x) for pair in ends for x in pair] == pytest.approx(bounds)
    assert page.count('stroke="#000" stroke-dasharray="4 3"') == len(shown)
    everybody = summary["results"]["all"]["main"][f"study/{task}_total"]
    assert f"without exclusions {printed(everybody['value'], '%')} %" in page


def test_hive_is_compared_where_the_method_is_the_same():
    """Numbers of its Tables 1, 2 and A4."""
    maps = {"model": "Classifier", "explainer": "grad_cam(relu=False)"}
    named = [Item("i", "p", [Option("o", label="wren")])]

    def values(arm, task, key):
        result = published_for(Study("s", "S", 0, task, [arm], Assignment(1, 1, 1)), arm)
        return [(record.dataset, record.value) for record in result.get(key, [])]

    units = replace(ARMS[0], origin={"model": "ProtoPNet"})
    assert values(units, "agreement", "study/agreement_incorrect") == [("cub200", 0.464)]
    assert values(units, "agreement", "study/tradeoff_low") == [("cub200", 0.058)]
    assert values(units, "agreement", "study/similarity_rank_position") == [("cub200", -0.52)]
    assert values(units, "agreement", "study/similarity_rating_rejected") == [("cub200", 2.0)]
    heat = replace(units, form="heatmap", origin=maps)
    assert values(heat, "distinction", "study/distinction_correct") == [("cub200", 0.712), ("imagenet", 0.512)]
    assert values(replace(heat, items=named), "distinction", "study/output_correct") == [("imagenet", 0.48)]
    for other in (replace(units, form="none"), replace(units, control="shuffled"), replace(ARMS[0])):
        assert values(other, "agreement", "study/agreement_incorrect") == []
    assert values(replace(heat, origin=maps | {"explainer": "lrp()"}), "distinction", "study/distinction_correct") == []


def test_a_study_stands_in_the_tables_of_hive(tmp_path, capsys):
    origin = {"model": "Classifier", "explainer": "grad_cam"}
    make_bundle(tmp_path / "toy", "agreement", "heatmap", arm={"origin": origin})
    command = ["table", str(tmp_path / "toy"), "--published", "hive/1", "--format", "json"]
    with pytest.raises(ValueError, match=r"summary.json to be of this study as it is now. Run `protometry"):
        evaluate.main(command)
    answered(tmp_path / "toy", SimulatedParticipant(), SimulatedParticipant())
    result = analyse(tmp_path / "toy")["results"]["kept"]["main"]["study/agreement_correct"]
    capsys.readouterr()
    evaluate.main(command)
    ours = [row for row in json.loads(capsys.readouterr().out) if row["column"] == "right predictions"]
    ours = [row for row in ours if not row["published"]]
    assert [row["dataset"] for row in ours] == ["cub200", "imagenet"]  # below the method in both
    assert {(row["mean"], row["sd"], row["n"]) for row in ours} == {(result["value"], result["sd"], 2)}
    analyse(tmp_path / "toy", out=tmp_path / "apart/results")
    for folder in ("toy/analysis", "apart/results"):
        evaluate.main(["table", str(tmp_path / folder), *command[2:]])
        assert ours[0] in json.loads(capsys.readouterr().out)
    (tmp_path / "apart").rename(tmp_path / "toy/apart")
    with pytest.raises(ValueError, match=f"^Expected {tmp_path}/toy/toy to be a study, but study.json is missing"):
        evaluate.main(["table", str(tmp_path / "toy/apart/results"), *command[2:]])
    with pytest.raises(ValueError, match=r"arm with a method, .* of hive/2, .* main \(Classifier, heatmap\)"):
        evaluate.main([*command[:3], "hive/2"])
