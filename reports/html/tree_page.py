"""A decision tree as nested lists, and the way of one image through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from lightning_modules.contract import DecidesByTree
from reports.explained_model import ExplainedImage, ExplainedModel

_TOP = 5  # classes of a leaf
_CLOSE = 1e-4


@dataclass(frozen=True)
class Node:
    """A node or a leaf.

    Args:
        unit: that a node asks for; None for a leaf.
        absent: where the way goes without it.
        present: where it goes with it.
        classes: of a leaf, name and probability of the largest.
    """

    unit: int | None
    absent: Node | None = None
    present: Node | None = None
    classes: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Step:
    """A decision on the way of an image.

    Args:
        unit: asked for.
        present: how much it is there, in 0..1.
    """

    unit: int
    present: float


def grow(subject: ExplainedModel) -> Node | None:
    """The tree without what is cut off; None for models without one.

    Args:
        subject: the model.
    """
    return _node(subject, 0) if isinstance(subject.model, DecidesByTree) else None


def _node(subject: ExplainedModel, index: int) -> Node:
    tree: Any = subject.model.tree  # type: ignore[attr-defined]
    if index >= tree.nodes:
        logits = tree.leaf_logits[index - tree.nodes].detach()
        chances = logits.sigmoid() if tree.multilabel else logits.softmax(dim=0)
        best = chances.argsort(descending=True, stable=True)[:_TOP].tolist()
        return Node(None, classes=tuple((subject.class_names[label], float(chances[label])) for label in best))
    route = int(tree.route[index])
    if route:
        return _node(subject, 2 * index + route)
    return Node(index, _node(subject, 2 * index + 1), _node(subject, 2 * index + 2))


def way(subject: ExplainedModel, image: ExplainedImage) -> tuple[list[Step], Node, float] | None:
    """The likeliest way at every node, the leaf at its end and the probability of reaching it.

    Args:
        subject: the model; None is returned for models without a tree.
        image: explained.

    Raises:
        ValueError: if the probabilities of the leaves do not sum to 1, or their mixture is not what the model says.
    """
    if not isinstance(subject.model, DecidesByTree):
        return None
    tree: Any = subject.model.tree
    scores = image.output.scores.detach()
    reach = tree.log_reach(scores, hard=subject.model.inference == "greedy").double().exp()[0]
    _check(subject, image, tree, reach)
    steps: list[Step] = []
    index = 0
    while index < tree.nodes:
        route, score = int(tree.route[index]), float(scores[0, index])
        if not route:
            steps.append(Step(index, score))
            route = 2 if score > 0.5 else 1
        index = 2 * index + route
    return steps, _node(subject, index), float(reach[index - tree.nodes])


def _check(subject: ExplainedModel, image: ExplainedImage, tree: Any, reach: torch.Tensor) -> None:
    label = image.predicted
    if subject.model.inference != "distributed" or tree.multilabel:  # type: ignore[attr-defined]
        return
    mixed = float((reach * tree.leaf_logits.detach().double().softmax(dim=1)[:, label]).sum())
    said = image.tables[0][0].probability
    if abs(float(reach.sum()) - 1) > _CLOSE or abs(mixed - said) > _CLOSE:
        raise ValueError(
            f"Expected the leaves on the page of image {image.sample_id} to give {subject.class_names[label]} the "
            f"probability {said:.6f} with ways that sum to 1, but got {mixed:.6f} and {float(reach.sum()):.6f}."
        )
