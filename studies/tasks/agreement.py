"""Agreement: is the prediction right?"""

from __future__ import annotations

import random

from protometry.studies.questions import Answers
from protometry.studies.study import Form, Item, ItemKey
from protometry.studies.tasks.task import Ability, Task

BELIEVED = 3  # from this point of the scale on, a prediction counts as believed


class Agreement(Task):
    """The belief in a prediction; right if a right prediction is believed, or a wrong one is not."""

    text = "agreement"
    chance = 0.5
    main = "confidence"
    done = "judged the prediction correctly"
    scale = "belief"

    def chosen(self, item: Item, answers: Answers) -> str | None:
        """The predicted class, if it was believed."""
        belief = answers["confidence"]
        assert isinstance(belief, int)
        return item.options[0].id if belief >= BELIEVED else None

    def is_right(self, item: Item, key: ItemKey, answers: Answers) -> bool:
        """Whether the prediction was believed just if it is right."""
        return (self.chosen(item, answers) is not None) == key.right

    def simulated(self, ability: Ability, item: Item, key: ItemKey, generator: random.Random) -> Answers:
        """The belief; the ideal observer's in a mean score of at least one half."""
        if ability.policy == "believer":
            return {"confidence": 4}
        if ability.policy == "ideal":
            mean = sum(key.scores.values()) / len(key.scores) if key.scores else 1.0
            return {"confidence": 4 if mean >= 0.5 else 1}
        latent = (ability.d_prime if key.right else -ability.d_prime) / 2 + generator.gauss(0, 1) - ability.criterion
        return {"confidence": (4 if latent > 0.7 else 3) if latent > 0 else (1 if latent < -0.7 else 2)}


def task(form: Form) -> Task:
    """The same with every form of explanation."""
    return Agreement()
