"""The path of one image through a decision tree, checked against what the model says."""

from __future__ import annotations

from typing import Any

import torch

from explanations.tree_path import Node, Step, grow, path
from lightning_modules.contract import DecidesByTree
from reports.explained_model import ExplainedImage, ExplainedModel

_CLOSE = 1e-4


def tree_of(subject: ExplainedModel) -> Node | None:
    """The tree without what is cut off; None for models without one.

    Args:
        subject: the model.
    """
    return grow(subject.model) if isinstance(subject.model, DecidesByTree) else None


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
    hard = subject.model.inference == "greedy"
    reach = tree.log_reach(scores, hard=hard).double().exp()[0]
    _check(subject, image, tree, reach)
    steps, leaf = path(grow(subject.model), scores[0])
    assert leaf.leaf is not None
    return steps, leaf, float(reach[leaf.leaf])


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
