"""What a task knows of its items, its question and its answers, and how simulated participants answer it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from protometry.studies.questions import Answers, Question
from protometry.studies.study import Item, ItemKey

if TYPE_CHECKING:
    from protometry.explanations.tree_path import TreeNode, TreeStep  # loads torch, which a server does without


@dataclass(frozen=True)
class Ability:
    """How well a simulated participant distinguishes right from wrong."""

    policy: Literal["guesser", "believer", "ideal", "noisy", "straight_liner"] = "guesser"
    d_prime: float = 1.0
    criterion: float = 0.0


class Task(ABC):
    """A kind of question about a photo, with one form of explanation.

    Attributes:
        text: name of its instructions in the texts.
        chance: accuracy of guessing.
        main: the question whose answer is graded.
        done: by people who were right, for sentences about results.
        scale: of the question ``confidence``: belief in the prediction, or confidence in one's own answer.
        options: classes that an item shows.
        decisions: of a tree, that an item leaves to participants.
        paths: of a tree, that can be asked about, for errors.
        right_only: why wrong predictions cannot be asked about; empty if they can.
    """

    text: str
    chance: float
    main: str
    done = "answered correctly"
    scale: Literal["belief", "confidence"] = "confidence"
    options = 1
    decisions = 0
    paths = ""
    right_only = ""

    def classes(self, ranked: list[int], truth: int) -> list[int]:
        """Classes that an item shows, of all classes by falling logit.

        The true class takes the place of the last of several where it is not among them.
        """
        best = ranked[: self.options]
        return best if truth in best or self.options == 1 else [*best[:-1], truth]

    def split(self, steps: list[TreeStep]) -> tuple[list[TreeStep], list[TreeNode], list[int]] | None:
        """Divide the path of a photo through a tree.

        Returns:
            The steps that are shown, the nodes that are left to participants, and the classes they lead to; None where
            the path cannot be asked about.
        """
        return (steps, [], []) if steps else None

    def answer(self, options: dict[int, str], leaves: list[int], truth: int) -> str | None:
        """The right answer, from the ids of the options by class, or the classes that open decisions lead to."""
        return None

    def answers(self, item: Item) -> Sequence[str]:
        """What may be the right answer of an item, in the order shown."""
        return []

    def questions(self, item: Item, choices: tuple[tuple[str, str], ...], say: dict[str, Any]) -> list[Question]:
        """The questions before the confidence, with ids and names of the options as choices."""
        return []

    @abstractmethod
    def chosen(self, item: Item, answers: Answers) -> str | None:
        """The option that was believed or chosen, or the leaf that decisions in a tree lead to."""

    def is_right(self, item: Item, key: ItemKey, answers: Answers) -> bool:
        """Whether an item was answered correctly: for the participant's own result, the tables and the bonus."""
        return self.chosen(item, answers) in (key.answer or "").split("|")

    @abstractmethod
    def simulated(self, ability: Ability, item: Item, key: ItemKey, generator: random.Random) -> Answers:
        """Answers of a simulated believer, ideal or noisy observer."""
