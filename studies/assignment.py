"""Who sees what: the arms and the items of a new participant."""

from __future__ import annotations

import hashlib
import hmac
import random
from collections import Counter

from protometry.studies.study import Arm, Key, Study


def participant_seed(study: Study, key: Key, number: int) -> str:
    """Seed of all that is random for one participant: a hash of the participant's number, keyed by seed and salt."""
    secret = f"{study.id} {study.seed} {key.salt}".strip()
    return hmac.new(secret.encode(), str(number).encode(), hashlib.sha256).hexdigest()


def arm_orders(study: Study) -> list[list[Arm]]:
    """The arms of a participant, in the orders given by the first columns of a Latin square.

    Returns:
        One order per arm that begins with it; every arm takes every place equally often and, if their number is
        even, equally often before every other one (Williams 1949).
    """
    number = len(study.arms)
    columns = [(place + 1) // 2 if place % 2 else -(place // 2) for place in range(study.assignment.arms)]
    return [[study.arms[(row + column) % number] for column in columns] for row in range(number)]


def choose_items(study: Study, arms: list[Arm], key: Key, seen: Counter[str], seed: str) -> list[str]:
    """Items of a new participant in their order.

    Args:
        study: with its assignment.
        arms: of the participant, in their order.
        key: says which predictions are right.
        seen: how many participants who finished or are still taking part have each item.
        seed: of the participant; decides the order only.

    Returns:
        Ids, arm by arm: of the form that is least filled, or the items of right and of wrong predictions that were
        shown least, ties by the order of the study, no image twice; and among them the checks of the arm. Of items that
        are scored and show attention, as in older studies, everybody gets equally many, by their share in the arm.
    """
    names: list[str] = []
    images = {key.items[check.id].image for arm in arms for check in arm.checks}
    for arm in arms:
        if study.assignment.by == "forms":
            forms = sorted({item.form for item in arm.items})
            form = min(forms, key=lambda name: sum(seen[item.id] for item in arm.items if item.form == name))
            chosen = [item.id for item in arm.items if item.form == form]
        else:
            chosen = _least_shown(study, arm, key, seen, images | {key.items[name].image for name in names})
        chosen += [check.id for check in arm.checks]
        random.Random(f"{seed} {arm.id} items").shuffle(chosen)
        names += chosen
    return names


def _least_shown(study: Study, arm: Arm, key: Key, seen: Counter[str], images: set[str]) -> list[str]:
    """Items with right and with wrong predictions that show none of the images."""
    chosen: list[str] = []
    for right, number in ((True, study.assignment.right), (False, study.assignment.wrong)):
        kind = {
            item.id: (item.attention is not None, bool(key.items[item.id].catch))
            for item in arm.items
            if key.items[item.id].right == right
        }
        left = _shares(Counter(kind.values()), number)
        free = sorted((name for name in kind if key.items[name].image not in images), key=lambda name: seen[name])
        own = []
        for name in free:
            if left[kind[name]]:
                left[kind[name]] -= 1
                own.append(name)
        others = [name for name in free if name not in own]  # where too few of one sort show other images
        chosen += own + others[: number - len(own)]
    return chosen


def _shares(sizes: Counter[tuple[bool, bool]], number: int) -> Counter[tuple[bool, bool]]:
    """A number divided in proportion to sizes, by the largest remainders (Hamilton's method)."""
    shares = Counter({name: number * size // sizes.total() for name, size in sizes.items()})
    order = sorted(sizes, key=lambda name: (-(number * sizes[name] % sizes.total()), name))
    return shares + Counter(order[: number - shares.total()])
