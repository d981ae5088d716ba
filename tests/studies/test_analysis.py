"""Results of answers written down by hand, of perfect and of identical participants, and of nobody."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr, ttest_1samp

from protometry.evaluation.results.values_csv import PREDICTION, values_text
from protometry.run_folder.atomic import write_atomic
from protometry.studies.__main__ import main
from protometry.studies.analysis.analyse import analyse
from protometry.studies.analysis.results import default_test
from protometry.studies.bundle import load_bundle
from protometry.studies.hypotheses import hypotheses
from protometry.studies.simulation.observer import SimulatedParticipant
from protometry.studies.simulation.simulate import answer_all, simulate
from protometry.studies.statistics.crossed_effects import estimate
from protometry.studies.store import Store
from protometry.studies.study import Platform, Quality
from tests.studies.toy import TASKS, make_bundle, read_rows


@dataclass(frozen=True)
class Scripted(SimulatedParticipant):
    """Answers ``confidence`` by the item's id, and everything else as given."""

    beliefs: dict = field(default_factory=dict)
    given: dict = field(default_factory=dict)

    def respond(self, study, step, key, seed):
        answers = super().respond(study, step, key, seed)
        belief = {"confidence": self.beliefs[step.item.id]} if step.item and self.beliefs else {}
        return {name: {**self.given, **belief}.get(name, value) for name, value in answers.items()}


def answered(folder: Path, *observers: SimulatedParticipant) -> Path:
    store = Store(folder / "answers.sqlite", load_bundle(folder))
    for number, observer in enumerate(observers):
        answer_all(store, store.join(f"person{number}"), observer)
    store.close()
    return folder


def test_agreement_by_hand(tmp_path):
    """Items i0 and i2 have right predictions, i1 and i3 wrong ones; 3 and 4 of 4 count as belief."""
    make_bundle(tmp_path, items=4, platform=Platform(wage=12, minutes=10, bonus=1.5))
    first = {"i0": 4, "i2": 2, "i1": 3, "i3": 1}  # right: one of two; wrong: one of two
    second = {"i0": 3, "i2": 3, "i1": 2, "i3": 1}  # all right
    values = {"tradeoff.low": 90.0, "tradeoff.medium": -1, "understanding.task": 4, "understanding.results": 3}
    others = values | {"tradeoff.low": 100.0}
    answered(tmp_path, Scripted(beliefs=first, given=values), Scripted(beliefs=second, given=others))
    results = analyse(tmp_path)["results"]["all"]["main"]
    assert (results["study/agreement_correct"]["value"], results["study/agreement_incorrect"]["value"]) == (0.75, 0.75)
    assert results["study/over_belief"]["value"] == 0.25  # one of four beliefs in wrong predictions
    assert results["study/agreement_total"]["sd"] == pytest.approx(math.sqrt(0.125))
    assert results["study/agreement_total"]["details"]["participants"]["t"] == pytest.approx(1)  # .25 / (.3536 / √2)
    assert results["study/agreement_correct_confidence"]["value"] == 3
    assert results["study/d_prime"]["value"] == pytest.approx(2 * 0.5244, abs=1e-4)  # rates 3.5 / 5 and 1.5 / 5
    assert results["study/confidence_brier"]["value"] == pytest.approx((5 * 0.25 + 0 + 0 + 0) / 8)
    assert results["study/tradeoff_low"]["value"] == pytest.approx(0.15)  # 10 and 20 points above 80 %
    assert results["study/tradeoff_low"]["details"]["headroom"] == pytest.approx(0.75)
    assert results["study/tradeoff_medium"]["details"]["would_not_switch"] == 2
    assert results["study/understanding_change"]["value"] == -1
    (mine, other) = read_rows(tmp_path / "analysis/participants.csv")
    assert (mine["accuracy"], mine["pay"], mine["bonus"], mine["external"]) == ("0.5", "2.0", "0.0", "person0")
    assert (other["accuracy"], other["bonus"]) == ("1.0", "1.5")
    answers = read_rows(tmp_path / "analysis/answers.csv")
    graded = [row["right"] for row in answers if row["participant"] == "1" and row["question"] == "confidence"]
    assert (sorted(graded), sum(row["right"] != "" for row in answers)) == (["False", "False", "True", "True"], 8)


@pytest.mark.parametrize(("task", "form"), [("agreement", "tree"), ("distinction", "units")])
@pytest.mark.parametrize("people", [0, 1, 2])
def test_nobody_and_few_perfect_participants(tmp_path, task, form, people):
    """Ten of ten is ten: a released form stored the score 10 as 1 and 0."""
    bundle = make_bundle(tmp_path, task, form, items=10, assignment={"right": 5, "wrong": 5})
    answered(tmp_path, *[SimulatedParticipant("noisy", d_prime=50.0)] * people)
    result = analyse(tmp_path)["results"]["all"]["main"][f"study/{task}_total"]
    assert (result["value"], result["n"]) == (1 if people else None, people)
    reason = "all participants have the same value" if people == 2 else "fewer than two participants"
    assert result["details"]["participants"]["reason"] == reason
    assert result["details"]["clustered"]["reason"] == "fewer than three participants"
    assert (result["reason"] == "nobody answered") == (people == 0)
    assert "n/a: nobody answered" in (tmp_path / "analysis/index.html").read_text("utf-8") or people
    assert bundle.hash in (tmp_path / "analysis/summary.json").read_text("utf-8")


def test_arms_of_the_same_people_are_compared_in_pairs(tmp_path):
    """By hand: the t-test of the differences, each arm by its own pages, and nobody counted twice."""
    places = {"arms": 2}
    bundle = make_bundle(tmp_path / "study", "agreement", "units", items=24, people=6, assignment=places, others=1)
    assert simulate(bundle.folder, tmp_path / "a.sqlite", SimulatedParticipant("noisy", d_prime=0.5), 6) == 6
    summary = analyse(bundle.folder, tmp_path / "a.sqlite", tmp_path / "out")
    assert summary["participants"]["analysed"] == 6
    results, key = summary["results"]["all"], "study/agreement_total"
    shares = {}
    for row in read_rows(tmp_path / "out/answers.csv"):
        if row["question"] == "confidence":
            shares.setdefault(row["arm"], {}).setdefault(row["participant"], []).append(row["right"] == "True")
    gaps = [np.mean(shares["main"][one]) - np.mean(shares["other0"][one]) for one in shares["main"]]
    t, p = ttest_1samp(gaps, 0)
    table = [row for row in read_rows(tmp_path / "out/answers.csv") if row["question"] == "confidence"]
    right = np.array([row["right"] == "True" for row in table], dtype=float)
    who, images = (np.unique([row[name] for row in table], return_inverse=True)[1] for name in ("participant", "image"))
    result = estimate(right, who, images, np.array([1 if row["arm"] == "main" else -1 for row in table]))
    pair = results["main - other0"][key]
    assert (pair["value"], pair["n"]) == (pytest.approx(np.mean(gaps)), 6)
    assert "welch" not in pair["details"]
    assert (pair["details"]["paired"]["t"], pair["details"]["paired"]["p"]) == pytest.approx((t, p))
    assert pair["details"]["clustered"] == pytest.approx(result.test())
    assert pair["interval"] == pytest.approx(result.interval())
    assert pair["details"]["equivalence_p"] == pytest.approx(result.equivalence(0.1))
    assert result.power(pair["details"]["detectable"]) == pytest.approx(0.8)
    for arm, people in shares.items():
        assert results[arm][key]["value"] == pytest.approx(np.mean([np.mean(one) for one in people.values()]))
        assert results[arm]["study/understanding_task"]["n"] == 6


@pytest.mark.parametrize("task", TASKS)
def test_declared_hypotheses_may_be_all_results_that_are_tested(tmp_path, task):
    bundle = make_bundle(tmp_path, task, "units", arm={"similarity": "pairwise"}, others=1)
    answered(tmp_path, *[SimulatedParticipant("noisy")] * 4)
    results = analyse(tmp_path)["results"]["all"]
    every = {f"{arm}/{key}": one["details"] for arm, entries in results.items() for key, one in entries.items()}
    result = {name for name, details in every.items() if default_test(details)}
    assert set(hypotheses(bundle.study)) == result


def test_flags_and_declared_exclusions(tmp_path):
    """A straight-liner is flagged, and excluded only because the study said so before."""
    quality = Quality(min_seconds=0.0, exclude=["straight_line"], family=["main/study/agreement_correct"])
    make_bundle(tmp_path, "agreement", "units", quality=quality)
    answered(tmp_path, *[SimulatedParticipant("noisy")] * 4, SimulatedParticipant("straight_liner"))
    summary = analyse(tmp_path)
    assert summary["participants"]["flags"] == {"straight_line": 1}
    assert (summary["participants"]["analysed"], summary["participants"]["kept"]) == (5, 4)
    everybody, kept = (summary["results"][who]["main"]["study/agreement_correct"] for who in ("all", "kept"))
    assert (everybody["n"], kept["n"]) == (5, 4)
    assert kept["details"]["holm_p"] == kept["details"]["clustered"]["p"]  # a family of one
    flagged = [row["flags"] for row in read_rows(tmp_path / "analysis/participants.csv")]
    assert flagged == ["", "", "", "", "straight_line"]


def test_similarity_of_people_who_see_what_the_model_sees(tmp_path):
    make_bundle(tmp_path, "agreement", "units", items=12)
    answered(tmp_path, *[SimulatedParticipant("noisy", noise_sd=0.1, person_sd=0.0)] * 6)
    results = analyse(tmp_path)["results"]["all"]["main"]
    assert results["study/similarity_spearman"]["value"] > 0.8
    assert results["study/similarity_rank_position"]["value"] == -1  # negative means agreement there
    assert results["study/similarity_alpha"]["value"] > 0.8


def test_pairs_two_points_and_clarity(tmp_path):
    """Pairs of three rows leave the last one out; people who see what the model sees choose as it does."""
    make_bundle(tmp_path / "pairs", "distinction", "units", arm={"similarity": "pairwise", "clarity": True})
    answered(tmp_path / "pairs", *[SimulatedParticipant("noisy", slope=99.0)] * 3)
    results = analyse(tmp_path / "pairs")["results"]["all"]["main"]
    assert results["study/similarity_pairwise"]["value"] == 1
    assert results["study/similarity_pairwise"]["details"]["images"] == 8  # four options with one pair each
    assert 1 <= results["study/clarity"]["value"] <= 4
    make_bundle(tmp_path / "binary", "agreement", "units", arm={"similarity": "binary"})
    answered(tmp_path / "binary", *[SimulatedParticipant("noisy", slope=99.0, person_sd=0.0)] * 4)
    assert analyse(tmp_path / "binary")["results"]["all"]["main"]["study/similarity_alpha"]["value"] == 1
    answers = read_rows(tmp_path / "binary/analysis/answers.csv")
    assert {row["value"] for row in answers if "similarity" in row["question"]} == {"1", "2"}


def test_ideal_observers_choose_what_the_model_chooses(tmp_path):
    make_bundle(tmp_path, "distinction", "heatmap")
    answered(tmp_path, *[SimulatedParticipant("ideal")] * 3)
    results = analyse(tmp_path)["results"]["all"]["main"]
    assert results["study/output_correct"]["value"] == results["study/output_incorrect"]["value"] == 1
    assert results["study/distinction_total"]["value"] < 1


def test_texts_of_participants_and_studies_stay_texts(tmp_path):
    nasty = "=HYPERLINK(1)<img src=x onerror=alert(1)></script>\u202e🙂"
    make_bundle(tmp_path)
    study = json.loads((tmp_path / "study.json").read_text("utf-8"))
    study["title"] = nasty
    (tmp_path / "study.json").write_text(json.dumps(study), "utf-8")
    answered(tmp_path, Scripted(given={"comments": nasty}))
    analyse(tmp_path)
    answers = read_rows(tmp_path / "analysis/answers.csv")
    assert [row["value"] for row in answers if row["question"] == "comments"] == [f"'{nasty}"]
    page = (tmp_path / "analysis/index.html").read_text("utf-8")
    assert "<img" not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "http" not in page  # nothing is loaded from anywhere


def test_the_command_analyses_or_says_why_not(tmp_path, capsys):
    make_bundle(tmp_path / "study")
    assert main(["analyse", str(tmp_path / "study")]) == 2
    assert "answers.sqlite is missing" in capsys.readouterr().err
    simulate(tmp_path / "study", tmp_path / "study/answers.sqlite", SimulatedParticipant("believer"), 3)
    assert main(["analyse", str(tmp_path / "study"), "--out", str(tmp_path / "out")]) == 0
    output = capsys.readouterr().out
    assert "study/agreement_incorrect" in output
    assert str(tmp_path / "out/index.html") in output
    summary = json.loads((tmp_path / "out/summary.json").read_text("utf-8"))
    results = summary["results"]["all"]["main"]
    assert (results["study/agreement_correct"]["value"], results["study/agreement_incorrect"]["value"]) == (1, 0)
    assert results["study/criterion"]["value"] < -1
    (tmp_path / "out/index.html").unlink()
    assert main(["analyse", str(tmp_path / "study"), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out/index.html").is_file()
    make_bundle(tmp_path / "other", "distinction")
    assert main(["analyse", str(tmp_path / "other"), "--database", str(tmp_path / "study/answers.sqlite")]) == 2
    assert "analyse it with the bundle that was served" in capsys.readouterr().err


def test_results_replace_nothing_but_results(tmp_path):
    answered(make_bundle(tmp_path / "study").folder)
    for where in (tmp_path / "mine", tmp_path / "study/analysis"):
        where.mkdir()
        for name in ("index.html", "summary.json", "answers.csv", ".hidden"):
            (where / name).write_text('{"schema": 1}', "utf-8")
            for out, reason in (
                (where, r"earlier analysis, but .* holds other files. Name another with `--out`"),
                (where / name, "is a file"),
            ):
                with pytest.raises(ValueError, match=reason):
                    analyse(tmp_path / "study", out=out)
            assert [(file.name, file.read_text("utf-8")) for file in where.iterdir()] == [(name, '{"schema": 1}')]
            (where / name).unlink()


def write_images(folder: Path, values: dict[str, list[float | None]], columns: list[str], right: int = 0) -> Path:
    """An images.csv, for predictions that are right on the images of even numbers."""
    rows = {
        image: dict(zip(PREDICTION, ("jay", "jay", 0.5, int(int(image[5:]) % 2 == right)), strict=True))
        | dict(zip(columns, row, strict=True))
        for image, row in values.items()
    }
    write_atomic(folder / "images.csv", values_text(rows, "sample_id"))
    return folder / "images.csv"


def test_answers_are_correlated_with_metrics_of_their_images(tmp_path):
    """By hand: everybody is surer of larger values of one metric; another has no value for the last image.

    Beliefs of 3 and 4 are right for images 0 and 2, those of 1 and 2 for images 1 and 3.
    """
    make_bundle(tmp_path, items=4)
    sure = {"i0": 4, "i2": 3, "i1": 2, "i3": 1}
    answered(tmp_path, *[Scripted(beliefs=sure | {"i1": one}) for one in (2, 3, 3)])
    values = {"image0": [0.9, 0.1], "image2": [0.8, 0.3], "image1": [0.5, 0.2], "image3": [0.1, None]}
    file = write_images(tmp_path, values | {"image9": [0.5, 0.5]}, ["localisation/energy", "a/b"])
    summary = analyse(tmp_path, images={"main": file}, metrics="localisation/energy,a/b")
    assert summary["images"] == {"main": "../images.csv"}
    results = summary["results"]["all"]["main"]
    levels = [4, 3, 2, 1, 4, 3, 3, 1, 4, 3, 3, 1]
    expected = spearmanr(levels, [0.9, 0.8, 0.5, 0.1] * 3).statistic
    one = results["study/confidence_vs_localisation/energy"]
    assert (one["value"], one["n"]) == (pytest.approx(expected), 3)
    assert one["interval"][0] <= one["value"] <= one["interval"][1] <= 1
    right = [1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1]
    of_others = results["study/accuracy_vs_a/b"]
    kept = [index for index in range(12) if index % 4 < 3]
    expected = spearmanr(np.array(right)[kept], [0.1, 0.3, 0.2] * 3).statistic
    assert (of_others["value"], of_others["details"]) == (pytest.approx(expected), {"images": 3, "left_out": 3})
    page = (tmp_path / "analysis/index.html").read_text("utf-8")
    assert "Spearman correlation of right answers and a/b" in page
    assert "Spearman correlation of confidence ratings and localisation/energy" in page
    assert "study/confidence_vs_a/b" in (tmp_path / "analysis/tables.csv").read_text("utf-8")


def test_metrics_of_other_arms_files_or_models_are_refused(tmp_path):
    make_bundle(tmp_path, items=4)
    answered(tmp_path, SimulatedParticipant("noisy"))
    values = {f"image{number}": [0.1 * number] for number in range(4)}
    good = write_images(tmp_path, values, ["a/b"])
    other = write_images(tmp_path / "other", values, ["a/b"], right=1)
    less = write_images(tmp_path / "less", {"image0": [0.5]}, ["a/b"])
    for images, metrics, message in (
        ({"gradcam": good}, "a/b", "to name arms among .'main'., but got 'gradcam'"),
        ({"main": tmp_path / "none.csv"}, "a/b", "to be the images.csv that"),
        ({"main": good}, "a/c", "to have the column a/c, but it has a/b"),
        ({"main": less}, "a/b", "but it lacks 3 images, such as image1"),
        ({"main": other}, "a/b", "but they differ about 4 images, such as image0"),
    ):
        with pytest.raises(ValueError, match=message):
            analyse(tmp_path, images=images, metrics=metrics)
    few = analyse(tmp_path, images={"main": good}, metrics="a/b")["results"]["all"]["main"]
    assert few["study/confidence_vs_a/b"]["reason"] == "fewer than 3 participants with a value"
    assert few["study/confidence_vs_a/b"]["interval"] == [None, None]
    assert (
        main(["analyse", str(tmp_path), "--images.main", str(good), "--metrics", "a/b", "--out", f"{tmp_path}/o"]) == 0
    )
