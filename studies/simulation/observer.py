"""How a simulated participant answers: with a planted ability that the analysis must recover."""

from __future__ import annotations

import random
from dataclasses import dataclass

from protometry.studies.flow import Page, expected
from protometry.studies.questions import Answer, Answers, Question
from protometry.studies.study import ItemKey, Study
from protometry.studies.tasks import task_of
from protometry.studies.tasks.task import Ability


@dataclass(frozen=True)
class SimulatedParticipant(Ability):
    """A simulated participant.

    Policies: a ``guesser`` answers uniformly; a ``believer`` believes every prediction and takes the first option; an
    ``ideal`` observer believes where the mean score of the rows is at least one half and chooses what the model scores
    highest; a ``noisy`` one has a sensitivity and a criterion; a ``straight_liner`` gives the same point everywhere.
    All but the guesser and the straight-liner rate rows by ``slope (score - .5) + person + noise`` about the middle of
    the scale, and answer questions that show attention as asked.

    Args:
        policy: how photos are answered.
        d_prime: of the noisy observer: its evidence for a prediction is ``± d′ / 2 + N(0, 1)``, for an option N(0, 1),
            plus d′ for the right one.
        criterion: of the noisy observer: predictions are believed above it.
        lapse: probability of a guess, in [0, 1].
        slope: of ratings over the score of the model.
        person_sd: standard deviation of ratings between people.
        noise_sd: within people.
        leave_at: index of the page at which the participant leaves.
    """

    lapse: float = 0.0
    slope: float = 3.0
    person_sd: float = 0.3
    noise_sd: float = 0.5
    leave_at: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.lapse <= 1 or self.person_sd < 0 or self.noise_sd < 0:
            raise ValueError("Expected `lapse` in [0, 1], and `person_sd` and `noise_sd` of at least 0.")

    def respond(self, study: Study, step: Page, key: ItemKey | None, seed: str) -> Answers:
        """Answers to a page, as a function of it and of the seed of the participant."""
        chance = random.Random(f"{seed} answers {step.arm.id} {step.page} {step.number}")
        if step.page == "consent":
            return {"consent": "agree"}
        if step.page.startswith("quiz"):
            return expected(study, step.page)
        answers = {question.name: self._any(question, chance) for question in step.questions}
        if step.item is None or key is None or self.policy in ("guesser", "straight_liner"):
            return answers
        person = random.Random(f"{seed} person").gauss(0, self.person_sd)
        for question in step.questions:
            kind, *rows = question.name.split(".")
            if question.name in key.catch:
                answers[question.name] = int(key.catch[question.name][-1])
            elif kind == "similarity":
                points = len(question.options)
                rating = self.slope * (key.scores.get(rows[0], 0.5) - 0.5) + person + chance.gauss(0, self.noise_sd)
                answers[question.name] = min(max(round((points + 1) / 2 + rating), 1), points)
            elif kind == "pair":
                alike = {row: self.slope * key.scores.get(row, 0.5) + chance.gauss(0, self.noise_sd) for row in rows}
                answers[question.name] = max(alike, key=alike.__getitem__)
        if step.item.attention is not None:
            answers["attention"] = step.item.attention
        if chance.random() < self.lapse:
            return answers
        answers |= task_of(study.task, step.arm.form).simulated(self, step.item, key, chance)
        return {name: answers[name] for name in (question.name for question in step.questions)}

    def _any(self, question: Question, chance: random.Random) -> Answer:
        if question.kind == "text":
            return "simulated"
        if question.kind == "accuracy":
            return float(chance.randint(50, 100))
        if self.policy == "straight_liner":
            value = question.options[min(2, len(question.options) - 1)][0]
        else:
            value = chance.choice(question.options)[0]
        return int(value) if question.kind == "scale" else value
