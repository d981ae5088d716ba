"""Who sees what: the arms and the items of a new participant."""

from __future__ import annotations

import hashlib
import hmac
import random
from collections import Counter

from protometry.studies.study import Arm, Key, Study


def participant_seed(study: Study, key: Key, number: int) -> str:
    """Seed of all that is random for one participant: a hash of the participant's number, keyed by seed and salt."""
    secret = f"{study.id} {study.seed} {key.salt}"
    return hmac.new(secret.encode(), str(number).encode(), hashlib.sha256).hexdigest()


def arm_orders(study: Study) -> list[list[Arm]]:
    """The arms of a participant, in the orders given by the first columns of a Latin square.

    Returns:
        One order per arm that begins with it; every arm takes every place equally often and, if their number is
        even, equally often before every other one (Williams 1949).
    """
    number = len(study.arms)
    columns = [(column + 1) // 2 if column % 2 else -(column // 2) for column in range(study.assignment.arms)]
    return [[study.arms[(row + column) % number] for column in columns] for row in range(number)]


def choose_items(study: Study, arms: list[Arm], key: Key, shown: Counter[str], seed: str) -> list[str]:
    """Items of a new participant in their order, which the seed decides.

    ``shown`` is how many participants who finished or are still taking part have each item.

    Returns:
        Ids, arm by arm: of the form that is least filled, or the items of right and of wrong predictions that were
        shown least, ties by the order of the study, no image twice; and among them the checks of the arm.
    """
    names: list[str] = []
    images = {key.items[check.id].image for arm in arms for check in arm.checks}
    for arm in arms:
        if study.assignment.by == "forms":
            forms = sorted({item.form for item in arm.items})
            form = min(forms, key=lambda name: sum(shown[item.id] for item in arm.items if item.form == name))
            chosen = [item.id for item in arm.items if item.form == form]
        else:
            chosen = _least_shown(study, arm, key, shown, images | {key.items[name].image for name in names})
        chosen += [check.id for check in arm.checks]
        random.Random(f"{seed} {arm.id} items").shuffle(chosen)
        names += chosen
    return names


def _least_shown(study: Study, arm: Arm, key: Key, shown: Counter[str], images: set[str]) -> list[str]:
    """Items with right and with wrong predictions that show none of the images."""
    chosen: list[str] = []
    free = [item.id for item in arm.items if key.items[item.id].image not in images]
    for right, number in ((True, study.assignment.right), (False, study.assignment.wrong)):
        chosen += sorted((name for name in free if key.items[name].right == right), key=shown.__getitem__)[:number]
    return chosen
