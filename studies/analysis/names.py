"""What results are called in words, by the question they answer: for the page and the codebook."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from protometry.studies.flow import Status
from protometry.studies.study import Flag, Form, TaskName

Unit = Literal["", "%", "points"]


@dataclass(frozen=True)
class Name:
    """What a result is called.

    Attributes:
        text: in tables.
        unit: percent and points (of percent) are printed 100 times the value.
        did: what people did, for the sentence about a share that is tested; ``{done}`` is the task's.
    """

    text: str
    unit: Unit = ""
    did: str = ""


OPEN = 5  # questions at the begin whose tables need no click
QUESTIONS: dict[str, dict[str, Name]] = {
    "How often are people right?": {
        "total": Name("accuracy, all photos", "%", "{done} for {share} of the photos"),
        "correct": Name("accuracy, right predictions", "%", "{done} for {share} of the photos with a right prediction"),
        "incorrect": Name(
            "accuracy, wrong predictions", "%", "{done} for {share} of the photos with a wrong prediction"
        ),
    },
    "Do people tell right from wrong predictions, or believe both?": {
        "over_belief": Name("wrong predictions that were believed", "%"),
        "d_prime": Name("sensitivity d′ (0: right and wrong predictions are believed alike)"),
        "criterion": Name("criterion c (below 0: people tend to believe)"),
    },
    "Do people see which class the model chose?": {
        "output_correct": Name(
            "named the model's class, right predictions",
            "%",
            "named the class that the model chose for {share} of the photos with a right prediction",
        ),
        "output_incorrect": Name(
            "named the model's class, wrong predictions",
            "%",
            "named the class that the model chose for {share} of the photos with a wrong prediction",
        ),
    },
    "How much more accurate would a model without an explanation have to be?": {
        "tradeoff_low": Name("little at stake", "points"),
        "tradeoff_medium": Name("more at stake", "points"),
        "tradeoff_high": Name("much at stake", "points"),
    },
    "Do people see the similarity that the model sees?": {
        "similarity_spearman": Name("Spearman correlation of ratings and scores (positive: they agree)"),
        "similarity_rank_position": Name("correlation of mean ratings and ranks (negative: they agree)"),
        "similarity_alpha": Name("Krippendorff's α between people"),
        "similarity_rating_chosen": Name("mean rating, classes that were chosen or believed"),
        "similarity_rating_rejected": Name("mean rating, classes that were not chosen or believed"),
        "similarity_pairwise": Name(
            "pairs in which people and model choose the same row",
            "%",
            "took the row that the model scores higher in {share} of the pairs",
        ),
        "clarity": Name("how clear it is what a unit shows (1 to 4)"),
    },
    "Do people think they understand?": {
        "understanding_intro": Name("understanding, before the task (1 to 5)"),
        "understanding_task": Name("understanding, after the task"),
        "understanding_results": Name("understanding, after seeing one's own result"),
        "understanding_change": Name("change of understanding after seeing one's own result"),
    },
    "Do people know when they are right?": {
        "total_confidence": Name("mean confidence rating, all photos"),
        "correct_confidence": Name("mean confidence rating, right predictions"),
        "incorrect_confidence": Name("mean confidence rating, wrong predictions"),
        "output_correct_confidence": Name("mean confidence in the model's class, right predictions"),
        "output_incorrect_confidence": Name("mean confidence in the model's class, wrong predictions"),
        "confidence_gamma": Name("γ of confidence and accuracy (1: the surer, the more often right)"),
        "confidence_brier": Name("Brier score of confidence (0 is best)"),
    },
    "Are people surer, or right more often, where an automatic metric is larger?": {
        "confidence_vs": Name("Spearman correlation of confidence ratings and {metric}"),
        "accuracy_vs": Name("Spearman correlation of right answers and {metric}"),
    },
    "Who took part, and for how long?": {
        "experience": Name("experience with machine learning (1 to 5)"),
        "warmup_tree": Name("warm-up questions answered correctly", "%"),
        "minutes": Name("minutes on all pages"),
    },
}
NAMES = {short: name for names in QUESTIONS.values() for short, name in names.items()}

FORMS: dict[Form, str] = {
    "heatmap": "heat maps of classes",
    "units": "prototypes or concepts with the photos they come from",
    "tree": "the path through a tree",
    "none": "photos without an explanation",
}
CONTROLS = {"none": "", "random": ", replaced by random ones", "shuffled": ", replaced by another class's"}
STATUSES: dict[Status, str] = {
    "completed": "finished",
    "active": "did not finish",
    "screened": "failed the quiz twice",
    "declined": "did not agree to take part",
    "withdrawn": "withdrew",
}
FLAGS: dict[Flag, str] = {
    "straight_line": "gave the same rating throughout",
    "fast": "answered too fast",
    "focus_lost": "left the window too often",
    "failed_catch": "failed checks of attention",
    "pictures_missing": "did not see all pictures",
    "no_javascript": "had JavaScript off",
    "clock": "had a clock that was set back",
}


def short(key: str) -> str:
    """A result key without ``study/``, the task, and the metric that answers are correlated with.

    Example:
        >>> short("study/agreement_total"), short("study/accuracy_vs_localisation/iou"), short("study/minutes")
        ('total', 'accuracy_vs', 'minutes')
    """
    name = key.removeprefix("study/")
    for task in get_args(TaskName):
        name = name.removeprefix(f"{task}_")
    before, versus, _ = name.partition("_vs_")
    return f"{before}_vs" if versus else name


def name_of(key: str) -> Name:
    """The name of a result.

    Example:
        >>> name_of("study/distinction_correct").text
        'accuracy, right predictions'
    """
    name = NAMES[short(key)]
    return replace(name, text=name.text.format(metric=key.partition("_vs_")[2]))


def unit_of(key: str, arm: str) -> Unit:
    """The unit of a result of an arm, or of a pair of arms, ``<arm> - <arm>``, whose values are differences."""
    unit = name_of(key).unit
    return "points" if unit and is_pair(arm) else unit


def is_pair(arm: str) -> bool:
    """Whether results belong to a pair of arms."""
    return " - " in arm


def figure(value: float | None, unit: Unit = "") -> str:
    """A number as it is printed; n/a where it is undefined.

    Example:
        >>> figure(0.624, "%"), figure(-0.021, "points"), figure(3.7), figure(None)
        ('62.4 %', '-2.1 points', '3.70', 'n/a')
    """
    if value is None:
        return "n/a"
    number = bare(value, unit)
    return f"{number} {unit}" if unit else number


def bare(value: float, unit: Unit) -> str:
    """A number without its unit."""
    if unit:
        return f"{100 * value:+.1f}" if unit == "points" else f"{100 * value:.1f}"
    return f"{value:.2f}"


def with_interval(value: float | None, interval: list[float | None], unit: Unit) -> str:
    """A number with its 95 % interval, if there is one.

    Example:
        >>> with_interval(0.624, [0.551, 0.697], "%"), with_interval(3.7, [None, None], "")
        ('62.4 % [55.1, 69.7]', '3.70')
    """
    low, high = interval
    if low is None or high is None:
        return figure(value, unit)
    return f"{figure(value, unit)} [{', '.join(bare(bound, unit).lstrip('+') for bound in (low, high))}]"


def p_value(p: float) -> str:
    """A p value as it is printed.

    Example:
        >>> p_value(0.0004), p_value(0.0031), p_value(0.612), p_value(1.0)
        ('p < .001', 'p = .003', 'p = .61', 'p = 1')
    """
    if p < 0.001:
        return "p < .001"
    text = f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
    return "p = 1" if text == "1.00" else f"p = {text.lstrip('0')}"
