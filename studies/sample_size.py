"""How many people a study needs, how long they take and what they cost."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from protometry.studies.statistics.crossed_effects import FEWEST, Estimate, expected
from protometry.studies.study import OPTIONS, Form, TaskName
from protometry.studies.tasks import task_of

# minutes per participant, mean and standard deviation, of Kim et al. 2022, section 5.1 and supplement
MINUTES = {"heatmap": (6.9, 3.5), "units": (13.6, 6.2), "tree": (10.4, 3.1), "none": (6.9, 3.5)}
HEADINGS = {
    "sd": "standard deviation of accuracy over people",
    "people": "people needed{each}",
    "power": "power with this many people",
    "images_floor": "smallest standard error that more people can reach",
    "people_for_equivalence": "people needed{each} to show equivalence within the margin",
    "minutes": "planned and paid minutes per person (mean + 3 SD)",
    "cost": "cost, without bonus and pay of those who fail the quiz twice",
}
MAX_PEOPLE = 1_000_000


@dataclass(frozen=True)
class Design:
    """What is known of a study before it is run.

    Args:
        effect: difference of accuracies that should be found: from chance, or between two groups or arms; in (0, 1).
        task: the question, or the output of the model; decides the accuracy of guessing.
        form: form of the explanation; decides the duration.
        items: answers per person and cell.
        icc: share of the variance of answers that is between people, in [0, 1).
        icc_images: share between images, in [0, 1); needs ``images``.
        images: different images per group and cell in all; by default, no two answers are to the same one.
        groups: 1 against chance, or 2 groups of different people with images of their own.
        arms: that everybody sees, as ``assignment.arms``; 2 are compared within people, each with images of its own.
        correlation: of people's accuracies in the two arms, in [0, 1]; at 0, nothing of what differs between people
            cancels.
        power: probability of finding the effect.
        alpha: level of the two-sided test.
        margin: largest difference that would not matter, for equivalence.
        wage: per hour.
        fee: of the platform, as a share of the pay.
        minutes: planned duration, which everybody is paid for, as ``platform.minutes``; the mean and three standard
            deviations of the form in Kim et al. 2022 for every arm, rounded up, if None.
    """

    effect: float
    task: Literal[TaskName, "output"] = "distinction"
    form: Form = "heatmap"
    items: int = 5
    icc: float = 0.0
    icc_images: float = 0.0
    images: int | None = None
    groups: Literal[1, 2] = 1
    arms: Literal[1, 2] = 1
    correlation: float = 0.0
    power: float = 0.8
    alpha: float = 0.05
    margin: float = 0.1
    wage: float = 12.0
    fee: float = 0.0
    minutes: float | None = None

    def __post_init__(self) -> None:
        for name, low, high in (
            ("effect", 0, 1 - self.chance),
            ("margin", 0, 1),
            ("alpha", 0, 1),
            ("power", self.alpha, 1),
        ):
            value = getattr(self, name)
            if not low < value < high:
                raise ValueError(f"Expected argument `{name}` to lie between {low} and {high}, but got {value}.")
        for name, least in (("items", 1), ("images", FEWEST), ("wage", 0), ("fee", 0), ("minutes", 0)):
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ValueError(f"Expected argument `{name}` to be finite and at least {least}, but got {value}.")
        if self.icc < 0 or self.icc_images < 0 or self.icc + self.icc_images >= 1:
            raise ValueError(
                f"Expected arguments `icc` and `icc_images` to be shares adding up to less than 1, but got {self.icc} "
                f"and {self.icc_images}."
            )
        if not 0 <= self.correlation <= 1 or (self.correlation and self.arms == 1):
            raise ValueError(
                f"Expected argument `correlation` to lie between 0 and 1, and to come with `arms` 2, but got "
                f"{self.correlation} with `arms` {self.arms}."
            )
        if self.arms == self.groups == 2:
            raise ValueError("Expected arguments `groups` 2 or `arms` 2, but got both.")
        if self.icc_images and self.images is None:
            raise ValueError("Expected argument `images`, the number of different images, with `icc_images`.")

    @property
    def chance(self) -> float:
        """Accuracy of guessing."""
        return 1 / OPTIONS if self.task == "output" else task_of(self.task, self.form).chance


def error_of(design: Design, people: float, equal: bool = False) -> Estimate:
    """The error that the test can be expected to have with this many people in each group.

    Accuracies are the planned ones, ``effect`` above guessing and, of a second group or arm, guessing; all guess if
    ``equal``.
    """
    images = people * design.items if design.images is None else min(design.images, people * design.items)
    accuracies = [design.chance + (0 if equal else design.effect), design.chance][: design.groups * design.arms]
    variances = [one * (1 - one) for one in accuracies]
    correlation = design.correlation if design.arms == 2 else None
    return expected(variances, design.items, people, images, (design.icc, design.icc_images), correlation)


def plan(design: Design) -> dict[str, float]:
    """Plan a study whose results are tested by :func:`protometry.studies.statistics.crossed_effects.estimate`.

    Returns:
        Figures by the keys of ``HEADINGS``: numbers of people are per group; infinite where no number of people
        suffices and only more images would help.

    Raises:
        ValueError: if a million people do not suffice and images are not the reason.

    Example:
        >>> figures = plan(Design(effect=0.1, items=5, icc=0.2))
        >>> round(figures["sd"], 3), figures["people"], figures["cost"]
        (0.286, 67, 241.2)
    """
    expected_accuracy, icc = design.chance + design.effect, design.icc
    spread = expected_accuracy * (1 - expected_accuracy) * (1 / design.items + icc * (1 - 1 / design.items))

    def powerful(n: int) -> bool:
        return error_of(design, n).power(design.effect, design.alpha) >= design.power

    def equivalent(n: int) -> bool:
        return error_of(design, n, equal=True).equivalence_power(design.margin, design.alpha) >= design.power

    figures = {"sd": math.sqrt(spread), "people": _smallest(powerful, design)}
    if figures["people"] < math.inf:
        figures["power"] = error_of(design, figures["people"]).power(design.effect, design.alpha)
    if design.images is not None:
        figures["images_floor"] = error_of(design, MAX_PEOPLE).error
    mean, deviation = MINUTES[design.form]
    figures["people_for_equivalence"] = _smallest(equivalent, design)
    usual = math.ceil(design.arms * (mean + 3 * deviation))
    figures["minutes"] = usual if design.minutes is None else design.minutes
    pay = figures["minutes"] * design.wage / 60 * (1 + design.fee)
    figures["cost"] = round(design.groups * figures["people"] * pay, 2)
    return figures


def _smallest(enough: Callable[[int], bool], design: Design) -> float:
    """Fewest people, at least three, for whom a condition holds; infinite if the images prevent it."""
    people = range(FEWEST, MAX_PEOPLE + 1)
    index = bisect_left(people, True, key=enough)
    if index < len(people):
        return people[index]
    if design.images is not None:
        return math.inf
    raise ValueError(f"More than {MAX_PEOPLE} people would be needed: expect a larger effect, or a lower power.")


def command(**arguments: Any) -> str:
    """The plan of a study as lines of text; takes the arguments of :class:`Design`."""
    design = Design(**arguments)
    each = " in each of 2 groups" if design.groups == 2 else ""
    lines = []
    for key, value in plan(design).items():
        text = f"{value:,.0f}" if float(value).is_integer() else f"{value:.3f}" if value < 1 else f"{value:,.2f}"
        if value == math.inf:
            text = "no number suffices: use more images"
        lines.append(f"{HEADINGS[key].format(each=each):<70} {text}")
    return "\n".join(lines)
