"""How many people a study needs, how long they take and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from studies.statistics.power import (
    accuracy_error,
    accuracy_sd,
    people_for_equivalence,
    people_needed,
    power,
    power_of,
    smallest,
)
from studies.study import OPTIONS, Form, TaskName
from studies.tasks import task_of

# minutes per participant, mean and standard deviation, of Kim et al. 2022, section 5.1 and supplement
MINUTES = {"heatmap": (6.9, 3.5), "units": (13.6, 6.2), "tree": (10.4, 3.1), "none": (6.9, 3.5)}
HEADINGS = {
    "sd": "standard deviation of accuracy over people",
    "d": "effect in standard deviations (Cohen's d)",
    "people": "people needed{each}",
    "power": "power with so many people",
    "people_for_images": "people needed{each} where the images are a sample",
    "images_floor": "smallest standard error that more people can reach",
    "people_for_equivalence": "people needed{each} to show equivalence within the margin",
    "minutes": "planned minutes per person (mean + 3 SD)",
    "cost": "cost, paid by mean duration",
}


@dataclass(frozen=True)
class Design:
    """What is known of a study before it is run.

    Args:
        effect: difference of accuracies that should be found: from chance, or between two groups; in (0, 1).
        task: question that is asked, or the output of the model; decides the accuracy of guessing.
        form: form of the explanation; decides the duration.
        items: answers per person and cell.
        icc: share of the variance of answers that is between people, in [0, 1).
        icc_images: share between images, in [0, 1); needs ``images``.
        images: different images per cell in all; None leaves the images fixed.
        groups: 1 against chance, or 2 groups of different people.
        power: probability of finding the effect.
        alpha: level of the two-sided test.
        margin: largest difference that would not matter, for equivalence.
        wage: per hour.
        fee: of the platform, as a share of the pay.
        minutes: mean duration; that of the form in Kim et al. 2022 if None.
    """

    effect: float
    task: Literal[TaskName, "output"] = "distinction"
    form: Form = "heatmap"
    items: int = 5
    icc: float = 0.0
    icc_images: float = 0.0
    images: int | None = None
    groups: Literal[1, 2] = 1
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
        for name, least in (("items", 1), ("images", 2), ("wage", 0), ("fee", 0), ("minutes", 0)):
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise ValueError(f"Expected argument `{name}` to be finite and at least {least}, but got {value}.")
        if self.icc < 0 or self.icc_images < 0 or self.icc + self.icc_images >= 1:
            raise ValueError(
                f"Expected arguments `icc` and `icc_images` to be shares adding up to less than 1, but got {self.icc} "
                f"and {self.icc_images}."
            )
        if self.icc_images and self.images is None:
            raise ValueError("Expected argument `images`, the number of different images, with `icc_images`.")

    @property
    def chance(self) -> float:
        """Accuracy of guessing."""
        return 1 / OPTIONS if self.task == "output" else task_of(self.task, self.form).chance


def plan(design: Design) -> dict[str, float]:
    """Plan a study.

    The spread of accuracies is that at chance. Where images are a sample, the power is that of the test with errors
    clustered by people and images (:func:`studies.statistics.clusters.clustered_test`).

    Returns:
        Figures by the keys of ``HEADINGS``: numbers of people are per group; infinite where no number of people
        suffices and only more images would help.

    Example:
        >>> figures = plan(Design(effect=0.1, items=5, icc=0.2))
        >>> round(figures["sd"], 3), figures["people"], round(figures["cost"], 2)
        (0.26, 55, 75.9)
    """
    chance, groups = design.chance, design.groups
    sd = accuracy_sd(chance, design.items, design.icc)
    people = people_needed(design.effect / sd, design.power, groups=groups, alpha=design.alpha)
    figures = {"sd": sd, "d": design.effect / sd, "people": people}
    figures["power"] = power(design.effect / sd, people, groups=groups, alpha=design.alpha)
    most = float(people)
    if design.images is not None:
        images = design.images

        def error(n: float) -> float:
            icc = (design.icc, design.icc_images)
            seen = min(images, n * design.items)
            return accuracy_error(chance, design.items, people=n, images=seen, icc=icc) * math.sqrt(groups)

        def enough(n: int) -> bool:
            df = groups * (min(n, images) - 1)
            return power_of(design.effect / error(n), df, design.alpha) >= design.power

        try:
            most = smallest(enough)
        except ValueError:
            most = math.inf
        figures |= {"people_for_images": most, "images_floor": error(math.inf)}
    figures["people_for_equivalence"] = people_for_equivalence(
        design.margin / sd, design.power, groups=groups, alpha=design.alpha
    )
    mean, spread = MINUTES[design.form]
    scale = 1.0 if design.minutes is None else design.minutes / mean
    figures["minutes"] = (mean + 3 * spread) * scale
    figures["cost"] = groups * max(people, most) * mean * scale * design.wage / 60 * (1 + design.fee)
    return figures


def command(**arguments: Any) -> str:
    """The plan of a study as lines of text; the arguments are those of :class:`Design`."""
    design = Design(**arguments)
    each = " in each of 2 groups" if design.groups == 2 else ""
    lines = []
    for key, value in plan(design).items():
        text = f"{value:,.0f}" if float(value).is_integer() else f"{value:.3f}" if value < 1 else f"{value:,.2f}"
        if value == math.inf:
            text = "no number suffices: use more images"
        lines.append(f"{HEADINGS[key].format(each=each):<70} {text}")
    return "\n".join(lines)
