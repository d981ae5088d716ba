"""How a simulated participant answers: with a planted ability that the analysis must find again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from studies.flow import Step, expected
from studies.questions import Answer, Answers, Question
from studies.study import ItemKey, Study

Policy = Literal["guesser", "believer", "ideal", "noisy", "straight_liner"]


@dataclass(frozen=True)
class Observer:
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

    policy: Policy = "guesser"
    d_prime: float = 1.0
    criterion: float = 0.0
    lapse: float = 0.0
    slope: float = 3.0
    person_sd: float = 0.3
    noise_sd: float = 0.5
    leave_at: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.lapse <= 1 or self.person_sd < 0 or self.noise_sd < 0:
            raise ValueError("Expected `lapse` in [0, 1], and `person_sd` and `noise_sd` of at least 0.")

    def respond(self, study: Study, step: Step, key: ItemKey | None, seed: str) -> Answers:
        """Answers to a page.

        Args:
            study: which is answered.
            step: page, as this participant sees it.
            key: of its item.
            seed: of the participant; the answers are a function of it and of the page.
        """
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
                seen = {row: self.slope * key.scores.get(row, 0.5) + chance.gauss(0, self.noise_sd) for row in rows}
                answers[question.name] = max(seen, key=seen.__getitem__)
        if step.item.attention is not None:
            answers["attention"] = step.item.attention
        if chance.random() < self.lapse:
            return answers
        answers |= self._agreement(step, key, chance) if study.task == "agreement" else self._choice(step, key, chance)
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

    def _agreement(self, step: Step, key: ItemKey, chance: random.Random) -> Answers:
        if self.policy == "believer":
            return {"confidence": 4}
        if self.policy == "ideal":
            mean = sum(key.scores.values()) / len(key.scores) if key.scores else 1.0
            return {"confidence": 4 if mean >= 0.5 else 1}
        latent = (self.d_prime if key.right else -self.d_prime) / 2 + chance.gauss(0, 1) - self.criterion
        return {"confidence": (4 if latent > 0.7 else 3) if latent > 0 else (1 if latent < -0.7 else 2)}

    def _choice(self, step: Step, key: ItemKey, chance: random.Random) -> Answers:
        right = (key.answer or "").split("|")
        if step.item is not None and step.item.decisions:
            if self.policy == "believer":
                return {f"decision.{number}": "present" for number in range(3)}
            leaves = ["absent absent", "absent present", "present absent", "present present"]
            evidence = {leaf: chance.gauss(self.d_prime if leaf in right else 0, 1) for leaf in leaves}
            best = right[0] if self.policy == "ideal" else max(evidence, key=evidence.__getitem__)
            first, second = best.split()
            return {"decision.0": first, "decision.1" if first == "absent" else "decision.2": second}
        options = [option.id for option in step.item.options] if step.item else []
        if self.policy == "believer":
            chosen = {"answer": options[0], "output": options[0]}
        elif self.policy == "ideal":
            chosen = {"answer": key.output or right[0], "output": key.output or right[0]}
        else:
            noise = {
                name: {option: chance.gauss(self.d_prime if option in truth else 0, 1) for option in options}
                for name, truth in (("answer", right), ("output", [key.output]))
            }
            chosen = {name: max(evidence, key=evidence.__getitem__) for name, evidence in noise.items()}
        asked = {question.name for question in step.questions}
        return {name: value for name, value in chosen.items() if name in asked}
