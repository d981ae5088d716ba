"""The one rule by which answers count as right: for the participant's own result, the tables and the bonus."""

from __future__ import annotations

from studies.questions import BELIEVED, Answers
from studies.study import ItemKey, Study


def believed(answers: Answers) -> bool:
    """Whether the belief in a prediction is 3 or 4 of 4."""
    confidence = answers["confidence"]
    assert isinstance(confidence, int)
    return confidence >= BELIEVED


def chosen(answers: Answers) -> str | None:
    """The option that was chosen, or the leaf that the decisions in a tree lead to."""
    if "decision.0" in answers:
        first = answers["decision.0"]
        return f"{first} {answers['decision.1' if first == 'absent' else 'decision.2']}"
    answer = answers.get("answer")
    return answer if isinstance(answer, str) else None


def is_right(study: Study, key: ItemKey, answers: Answers) -> bool:
    """Whether an item was answered rightly.

    Agreement: a right prediction was believed, or a wrong one was not. Distinction: the class that is right was chosen.
    """
    if study.task == "agreement":
        return believed(answers) == key.right
    return chosen(answers) in (key.answer or "").split("|")


def failed_catches(key: ItemKey, answers: Answers, attention: int | None) -> int:
    """How many questions of an item that show attention were not answered as expected."""
    failed = sum(str(answers.get(name)) not in allowed for name, allowed in key.catch.items())
    return failed + (attention is not None and answers.get("attention") != attention)
