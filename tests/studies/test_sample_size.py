"""Sample sizes and powers of section 5.3 of the reference, and the command."""

from __future__ import annotations

import math

import pytest

from studies.__main__ import main
from studies.sample_size import Design, plan
from studies.statistics.power import (
    accuracy_error,
    accuracy_sd,
    people_for_equivalence,
    people_needed,
    power,
)


@pytest.mark.parametrize(
    ("effect", "one", "two"),
    [
        (0.2, (199, 265), (394, 527)),
        (0.3, (90, 119), (176, 235)),
        (0.4, (52, 68), (100, 133)),
        (0.5, (34, 44), (64, 86)),
        (0.8, (15, 19), (26, 34)),
    ],
)
def test_people_needed(effect, one, two):
    assert tuple(people_needed(effect, wanted) for wanted in (0.8, 0.9)) == one
    assert tuple(people_needed(effect, wanted, groups=2) for wanted in (0.8, 0.9)) == two


@pytest.mark.parametrize(
    ("items", "icc", "sd", "people"),
    [
        (5, 0.0, 0.194, 32),
        (5, 0.05, 0.212, 38),
        (5, 0.2, 0.260, 55),
        (20, 0.0, 0.097, 10),
        (20, 0.05, 0.135, 17),
        (20, 0.2, 0.212, 38),
    ],
)
def test_plans_of_ten_points(items, icc, sd, people):
    figures = plan(Design(effect=0.1, items=items, icc=icc))
    assert round(figures["sd"], 3) == sd
    assert figures["people"] == people
    assert figures["power"] >= 0.8 > power(figures["d"], people - 1)


@pytest.mark.parametrize(
    ("mean", "sd", "chance", "expected"),
    [(26.4, 19.8, 25, 0.078), (30, 22.4, 25, 0.340), (32, 20.8, 25, 0.645), (46.4, 35.9, 50, 0.107)],
)
def test_power_that_published_cells_had(mean, sd, chance, expected):
    assert round(power((mean - chance) / sd, 50), 3) == expected


def test_power_far_in_the_tail_is_one():
    assert power(1.5, 50) == pytest.approx(1)
    assert power(8, 500) == pytest.approx(1)


def test_images_limit_what_more_people_can_find():
    assert accuracy_error(0.25, 5, people=50, images=math.inf, icc=(0.2, 0)) == pytest.approx(
        accuracy_sd(0.25, 5, 0.2) / math.sqrt(50)
    )
    few = plan(Design(effect=0.1, icc_images=0.3, images=10))
    assert few["people_for_images"] == few["cost"] == math.inf
    assert few["images_floor"] == pytest.approx(math.sqrt(0.1875 * 0.3 / 10))
    for images, more in ((60, True), (10_000, False)):  # nobody sees an image that another has seen
        many = plan(Design(effect=0.1, icc_images=0.3, images=images))
        assert (many["people"] < many["people_for_images"] < math.inf) == more
        assert many["people"] <= many["people_for_images"]


def test_equivalence_of_a_normal_sample():
    # (1.645 + 1.282)^2 / 0.25 = 34.3, and a little more for Student's t
    assert people_for_equivalence(0.5, 0.8) == 36


def test_the_command_prints_the_plan_or_one_line(capsys):
    assert main(["plan", "--effect", "0.1", "--form", "units", "--fee", "0.3"]) == 0
    output = capsys.readouterr().out
    assert "people needed" in output
    assert f"{32 * 13.6 * 12 / 60 * 1.3:.2f}" in output
    assert main(["plan", "--effect", "0.9"]) == 1
    assert capsys.readouterr().err == "error: Expected argument `effect` to lie between 0 and 0.75, but got 0.9.\n"
    assert main(["plan", "--effect", "0.1", "--icc_images", "0.1"]) == 1
    assert "`images`" in capsys.readouterr().err
