"""Sample sizes and powers of section 5.3 of the reference, and the command."""

import math
from dataclasses import replace

import pytest

from protometry.studies.__main__ import main
from protometry.studies.analysis.tables import write_participants
from protometry.studies.participants import Participant
from protometry.studies.sample_size import Design, error_of, plan
from protometry.studies.statistics.crossed_effects import Estimate
from protometry.studies.study import Arm, Assignment, Platform, Study
from tests.studies.toy import read_rows


def t_test(n, groups=1):
    """Of people alone, with standard deviation 1."""
    return Estimate(0.0, math.sqrt(groups / n), groups * (n - 1))


@pytest.mark.parametrize(("effect", "one", "two"), [
    (0.2, (199, 265), (394, 527)), (0.3, (90, 119), (176, 235)), (0.4, (52, 68), (100, 133)), (0.5, (34, 44), (64, 86)),
    (0.8, (15, 19), (26, 34)),
])  # fmt: skip
def test_power_of_published_sample_sizes(effect, one, two):
    for groups, sizes in ((1, one), (2, two)):
        for n, power in zip(sizes, (0.8, 0.9), strict=True):
            assert t_test(n, groups).power(effect) >= power > t_test(n - 1, groups).power(effect)


@pytest.mark.parametrize(("mean", "sd", "chance", "expected"), [
    (26.4, 19.8, 25, 0.078), (30, 22.4, 25, 0.340), (32, 20.8, 25, 0.645), (46.4, 35.9, 50, 0.107),
])  # fmt: skip
def test_power_that_published_cells_had(mean, sd, chance, expected):
    assert round(t_test(50).power((mean - chance) / sd), 3) == expected


def test_power_far_in_the_tail_is_one():
    assert (t_test(50).power(1.5), t_test(500).power(8)) == (pytest.approx(1), pytest.approx(1))


def test_ten_points_by_hand():
    """Accuracy .35, five items, .2 between people: σ² = .35 · .65 (1/5 + .2 · 4/5) = .0819, and 67 people."""
    figures = plan(Design(effect=0.1, items=5, icc=0.2))
    assert (figures["sd"], figures["people"]) == (pytest.approx(math.sqrt(0.0819)), 67)
    assert figures["power"] >= 0.8 > error_of(Design(effect=0.1, items=5, icc=0.2), 66).power(0.1)
    assert error_of(Design(effect=0.1, items=5, icc=0.2), 67).error == pytest.approx(math.sqrt(0.0819 / 67))


def test_people_who_see_both_arms_by_hand():
    """Accuracies .6 and .5, ten items, ρ = .2, correlated by .5: V = ((.24 + .25)(.2 + .8 / 10) - .2 √.06) / n."""
    design = Design(0.1, "agreement", items=10, icc=0.2, arms=2, correlation=0.5)
    assert error_of(design, 40).error == pytest.approx(math.sqrt((0.49 * 0.28 - 0.2 * math.sqrt(0.06)) / 40))
    two_groups = plan(replace(design, arms=1, correlation=0.0, groups=2))
    alone, both = (plan(replace(design, correlation=value)) for value in (0.0, 1.0))
    assert two_groups["people"] >= alone["people"] - 1 > plan(design)["people"] > both["people"]
    assert alone["minutes"] == 35  # 2 (6.9 + 3 · 3.5), rounded up
    assert alone["cost"] == alone["people"] * 35 * 12 / 60


def test_images_limit_what_more_people_can_find():
    few = plan(Design(effect=0.1, icc_images=0.3, images=10))
    assert few["people"] == few["cost"] == math.inf
    assert "power" not in few
    assert few["images_floor"] == pytest.approx(math.sqrt(0.35 * 0.65 * 0.3 / 10), rel=1e-4)
    alone = plan(Design(effect=0.1))["people"]
    numbers = [plan(Design(effect=0.1, icc_images=0.3, images=images))["people"] for images in (60, 200, 10_000)]
    assert math.inf > numbers[0] > numbers[1] >= numbers[2] >= alone


def test_equivalence_of_a_normal_sample():
    # (1.645 + 1.282)^2 / 0.25 = 34.3, and a little more for Student's t
    assert t_test(36).equivalence_power(0.5) >= 0.8 > t_test(35).equivalence_power(0.5)


def test_the_plan_costs_what_is_paid(tmp_path):
    """67 people, 33 minutes at 12 an hour: 442.20 in the plan and in the table of participants."""
    figures = plan(Design(effect=0.1, form="units", icc=0.2))
    platform = Platform(wage=12.0, minutes=figures["minutes"])
    arms, places = [Arm("main", "units", 80, [], [])], Assignment(67, 5, 5)
    study = Study("toy", "Toy", 0, "distinction", arms, places, platform=platform)
    about = (None, None, ["main"], [], "", 0, "completed", 0.0, 0.0, "")
    people = [Participant(number, str(number), *about) for number in range(int(figures["people"]))]
    write_participants(tmp_path / "participants.csv", study, people, [])
    paid = sum(float(row["pay"]) for row in read_rows(tmp_path / "participants.csv"))
    assert (figures["minutes"], figures["cost"]) == (33, pytest.approx(paid)) == (33, pytest.approx(442.2))
    others = [replace(people[0], status=status) for status in ("screened", "active", "declined", "withdrawn")]
    write_participants(tmp_path / "participants.csv", study, others, [])  # who failed the quiz twice is paid
    assert [row["pay"] for row in read_rows(tmp_path / "participants.csv")] == ["6.6", "0.0", "0.0", "0.0"]


def test_the_command_prints_the_plan_or_one_line(capsys):
    assert main(["plan", "--effect", "0.1", "--form", "units", "--fee", "0.3", "--minutes", "20"]) == 0
    output = capsys.readouterr().out
    people = int(plan(Design(0.1))["people"])
    assert ["people", "needed", str(people)] in [line.split() for line in output.splitlines()]
    assert f"{people * 20 * 12 / 60 * 1.3:.2f}" in output
    assert main(["plan", "--effect", "0.9"]) == 2
    assert capsys.readouterr().err == "error: Expected argument `effect` to lie between 0 and 0.75, but got 0.9.\n"
    assert main(["plan", "--effect", "0.1", "--icc_images", "0.1"]) == 2
    assert "`images`" in capsys.readouterr().err
    assert main(["plan", "--effect", "0.1", "--groups", "2", "--arms", "2"]) == 2
    assert "`groups` 2 or `arms` 2" in capsys.readouterr().err
    assert main(["plan", "--effect", "1e-5"]) == 2
    assert "More than 1000000 people" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "said"), [
    (["--effect", "much"], "error: Parser key \"effect\": Expected a <class 'float'>. Got value: much"),
    (["--effect", "0.1", "--form", "unit"], "Did you mean 'units'?"),
    (["--effect", "0.1", "--wage", ".inf"], "error: Expected finite numbers only, but got inf as `wage`."),
    (["--effekt", "0.1"], "error: "),
])  # fmt: skip
def test_what_the_parser_refuses_is_one_line_and_a_tip(capsys, words, said):
    with pytest.raises(SystemExit) as end:
        main(["plan", *words])
    tip, error = capsys.readouterr().err.splitlines()
    assert end.value.code == 2
    assert tip.startswith("tip: ")
    assert said in error
