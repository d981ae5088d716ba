"""What a study is: arms of items that are shown, the pages around them, and the key that stays with its owner.

``Study`` is ``study.json`` of a bundle and holds everything a participant may see; ``Key`` is ``key.json``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

SCHEMA = 1
OPTIONS = 4  # classes to choose from

TaskName = Literal["agreement", "distinction"]  # each is a file of studies/tasks
Form = Literal["heatmap", "units", "tree", "none"]
Rating = Literal["rows", "first_disagreement", "none"]
Similarity = Literal["scale", "binary", "pairwise"]
TREE_LEAVES = ("absent absent", "absent present", "present absent", "present present")


Id = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Media = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\.(png|webp|jpg)$")]
Count = Annotated[int, Field(ge=0)]
NotNegative = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class UnitShown:
    """One unit as it is shown.

    Attributes:
        id: opaque, unique in its item.
        pictures: names in ``media/``, from the photo's region to the photo that the unit comes from.
        decision: for a node of a tree, what the model decided; None where the participant decides.
        evidence: ``score``, ``weight`` and ``contribution``, in an arm that shows them.
    """

    id: Id
    pictures: Annotated[list[Media], Field(min_length=1)]
    decision: Literal["present", "absent"] | None = None
    evidence: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """One class, explained.

    Attributes:
        id: opaque, unique in its item.
        pictures: maps of the class.
        rows: its units, or the nodes of a tree's path.
        examples: training photos of the class.
        label: name of the class, in an arm that shows labels.
        evidence: ``probability`` that the model gives the class, in an arm of maps that shows it.
    """

    id: Id
    pictures: list[Media] = field(default_factory=list)
    rows: list[UnitShown] = field(default_factory=list)
    examples: list[Media] = field(default_factory=list)
    label: str | None = None
    evidence: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Item:
    """One photo with its explanations.

    Attributes:
        id: opaque, unique in the study.
        photo: name in ``media/``.
        options: the predicted class (agreement; distinction with a tree: the path up to its last nodes), or four.
        decisions: for distinction with a tree, the last node but one, then the node after its absence and the one
            after its presence.
        leaves: names of the classes that the last decisions lead to, as in ``TREE_LEAVES``, in an arm with labels.
        form: which of several fixed sets of items it belongs to.
        attention: an answer of the confidence scale that the page asks for, to see that it is read.
    """

    id: Id
    photo: Media
    options: list[Option]
    decisions: list[UnitShown] = field(default_factory=list)
    leaves: list[str] = field(default_factory=list)
    form: int = 0
    attention: int | None = None


@dataclass(frozen=True)
class Example:
    """An item of the preview, and whether its prediction (or, with several options, which of them) is right."""

    item: Item
    right: bool
    answer: str | None = None


@dataclass(frozen=True)
class Arm:
    """One method as it is shown.

    Attributes:
        accuracy: of the model in percent; participants read it in the questions about the trade-off.
        preview: one example with a right and one with a wrong prediction.
        rating: whether every row is rated, or participants name the first row that they disagree with (tree).
        similarity: how rows are rated: on four points, alike or not, or by which of two rows is more alike.
        clarity: whether participants are asked how clear it is what a unit shows.
        origin: model, SHA-256 of checkpoint and data, and explainer.
        checks: items that everybody sees among the others, to see that pages are read; no answer to them is scored.
    """

    id: Id
    form: Form
    accuracy: Annotated[float, Field(gt=0, le=100)]
    items: list[Item]
    preview: list[Example]
    rating: Rating = "rows"
    control: Literal["random", "shuffled"] | None = None
    similarity: Similarity = "scale"
    clarity: bool = False
    origin: dict[str, str] = field(default_factory=dict)
    checks: list[Item] = field(default_factory=list)

    def is_scored(self, item: Item) -> bool:
        """Whether answers to an item count."""
        return all(item.id != check.id for check in self.checks)


@dataclass(frozen=True)
class Assignment:
    """Who sees what.

    Attributes:
        people: places in every arm.
        right: items with a right prediction per participant.
        wrong: items with a wrong one.
        by: ``balanced`` gives every participant the items that were shown least; ``forms`` a fixed set of items.
        reserve_minutes: after how long without an answer a place is given to somebody else.
        arms: how many arms a participant sees, one after the other, with other images in each.
    """

    people: Annotated[int, Field(ge=1)]
    right: Count
    wrong: Count
    by: Literal["balanced", "forms"] = "balanced"
    reserve_minutes: NotNegative = 60.0
    arms: Annotated[int, Field(ge=1)] = 1


@dataclass(frozen=True)
class Pages:
    """Which optional pages a study has; the trade-off is left out in arms without an explanation."""

    demographics: bool = False
    quiz: bool = True
    output: bool = False
    tradeoff: bool = True
    comments: bool = True
    contact: str = ""


Flag = Literal["straight_line", "fast", "focus_lost", "failed_catch", "pictures_missing", "no_javascript", "clock"]


@dataclass(frozen=True)
class Quality:
    """What is decided before data are collected.

    Attributes:
        min_seconds: on an item; who is below it in the median is flagged as fast, and so is who answers all pages in
            less than a tenth of ``platform.minutes``; 0 for neither.
        max_focus_losses: how often the window may be left during all items.
        max_failed_catches: how many questions that show attention may be answered otherwise.
        exclude: flags that lead to exclusion in the second set of results.
        family: keys of results whose p values are corrected together (Holm).
        margin: of equivalence, a difference of accuracies that would not matter.
    """

    min_seconds: NotNegative = 2.0
    max_focus_losses: Count = 20
    max_failed_catches: Count = 0
    exclude: list[Flag] = field(default_factory=list)
    family: list[str] = field(default_factory=list)
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.1


@dataclass(frozen=True)
class Platform:
    """Where participants come from and what they get.

    Attributes:
        kind: ``prolific`` takes ids from the query of the link, and leads back at the end.
        completed: completion code.
        screened: code of those who failed the quiz twice.
        wage: per hour.
        minutes: planned duration.
        bonus: paid for an accuracy above chance.
    """

    kind: Literal["local", "prolific"] = "local"
    completed: str = ""
    screened: str = ""
    wage: NotNegative = 12.0
    minutes: Annotated[float, Field(gt=0)] = 15.0
    bonus: NotNegative = 0.0

    @property
    def pay(self) -> float:
        """For taking part, without bonus."""
        return self.wage * self.minutes / 60


@dataclass(frozen=True)
class Study:
    """Everything a participant may see, and how participants are treated."""

    id: Id
    title: Annotated[str, Field(pattern=r"\S")]
    seed: int
    task: TaskName
    arms: Annotated[list[Arm], Field(min_length=1)]
    assignment: Assignment
    pages: Pages = field(default_factory=Pages)
    quality: Quality = field(default_factory=Quality)
    platform: Platform = field(default_factory=Platform)
    language: Literal["en"] = "en"
    schema: int = SCHEMA

    def arm(self, name: str) -> Arm:
        """The arm of a name."""
        return next(arm for arm in self.arms if arm.id == name)


@dataclass(frozen=True)
class ItemKey:
    """The truth about an item, which never leaves the server.

    Attributes:
        image: which test image it shows; the same in every arm.
        answer: id of the option that is right; for a tree, one of :data:`TREE_LEAVES` or several joined by ``|``.
        output: id of the option that the model scores highest.
        scores: similarity, by row.
        catch: allowed values of a question that shows attention.
    """

    image: str
    right: bool
    answer: str | None = None
    output: str | None = None
    scores: dict[str, float] = field(default_factory=dict)
    catch: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Key:
    """The answers to a study, by item.

    Attributes:
        salt: of ids and of the order in which participants see items, so that nobody can compute either from the seed.
    """

    study: str
    items: dict[str, ItemKey]
    salt: str
