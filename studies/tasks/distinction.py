"""Distinction: which of four classes is right? With a tree: where do its last decisions lead?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from protometry.studies.questions import Answers, Question
from protometry.studies.study import OPTIONS, TREE_LEAVES, Form, Item, ItemKey
from protometry.studies.tasks.task import Ability, Task

if TYPE_CHECKING:
    from protometry.explanations.tree_path import TreeNode, TreeStep


class Distinction(Task):
    """The choice of a class; the page may also ask which one the model chose (``output``)."""

    text = "distinction"
    chance = 1 / OPTIONS
    main = "answer"
    done = "chose the right class"
    options = OPTIONS

    def answer(self, options: dict[int, str], leaves: list[int], truth: int) -> str | None:
        """The option of the true class."""
        return options[truth]

    def answers(self, item: Item) -> Sequence[str]:
        """The options."""
        return [option.id for option in item.options]

    def questions(self, item: Item, choices: tuple[tuple[str, str], ...], say: dict[str, Any]) -> list[Question]:
        """Which class is right."""
        return [Question("answer", "choice", say["questions"]["answer"], choices)]

    def chosen(self, item: Item, answers: Answers) -> str | None:
        """The option."""
        return str(answers["answer"])

    def simulated(self, ability: Ability, item: Item, key: ItemKey, generator: random.Random) -> Answers:
        """The class that is right, and the one that the model chose; the ideal observer takes this one for both."""
        right, output = (key.answer or "").split("|"), key.output or ""
        best = output or right[0]
        return {
            "answer": _choice(ability, self.answers(item), right, best, generator),
            "output": _choice(ability, self.answers(item), [output], best, generator),
        }


class LastDecisions(Distinction):
    """Distinction with a tree: its last two decisions about a photo, which lead to four classes."""

    text = "distinction_tree"
    main = "decision.0"
    options = 1
    decisions = 3  # the last node but one, then the node after its absence and the one after its presence
    paths = " by two last decisions between four classes"
    right_only = "the two last decisions of a tree cannot lead to the right class where the decisions before were wrong"

    def split(self, steps: list[TreeStep]) -> tuple[list[TreeStep], list[TreeNode], list[int]] | None:
        """At least one step is shown, and the last two have to be between four classes."""
        last = steps[-2].node if len(steps) > 2 else None
        after = [node for node in (last.absent, last.present) if node is not None] if last else []
        ends = [leaf.label for node in after for leaf in (node.absent, node.present) if leaf is not None]
        leaves = [label for label in ends if label is not None]
        return (steps[:-2], [last, *after], leaves) if last and len(set(leaves)) == OPTIONS else None

    def answer(self, options: dict[int, str], leaves: list[int], truth: int) -> str | None:
        """The leaf of the true class."""
        return TREE_LEAVES[leaves.index(truth)] if truth in leaves else None

    def answers(self, item: Item) -> Sequence[str]:
        """The leaves."""
        return TREE_LEAVES

    def questions(self, item: Item, choices: tuple[tuple[str, str], ...], say: dict[str, Any]) -> list[Question]:
        """Every decision that is left."""
        present = tuple((name, say["items"][name]) for name in ("absent", "present"))
        text, nodes = say["questions"]["decision"], say["items"]["nodes"]
        return [
            Question(f"decision.{number}", "choice", text, present, about=node) for number, node in enumerate(nodes)
        ]

    def chosen(self, item: Item, answers: Answers) -> str | None:
        """The leaf that the decisions lead to."""
        first = answers["decision.0"]
        return f"{first} {answers['decision.1' if first == 'absent' else 'decision.2']}"

    def simulated(self, ability: Ability, item: Item, key: ItemKey, generator: random.Random) -> Answers:
        """The decisions that lead to a leaf; the believer finds everything present."""
        if ability.policy == "believer":
            return {f"decision.{number}": "present" for number in range(self.decisions)}
        right = (key.answer or "").split("|")
        first, second = _choice(ability, TREE_LEAVES, right, right[0], generator).split()
        return {"decision.0": first, "decision.1" if first == "absent" else "decision.2": second}


def _choice(ability: Ability, options: Sequence[str], right: list[str], best: str, generator: random.Random) -> str:
    if ability.policy in ("believer", "ideal"):
        return options[0] if ability.policy == "believer" else best
    evidence = {option: generator.gauss(ability.d_prime if option in right else 0, 1) for option in options}
    return max(evidence, key=evidence.__getitem__)


def task(form: Form) -> Task:
    """The last decisions of a tree, or a class."""
    return LastDecisions() if form == "tree" else Distinction()
