"""Contributions to the decision for a class, above the mean over classes, and which of them an explanation shows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from protometry.lightning_modules.contract import DecidesByTree, InterpretableModel, ModelOutput


@dataclass(frozen=True)
class Decision:
    """Contributions to the decision for one class per image.

    Args:
        contributions: ``(B, E)`` float64, of every unit, of every cell where units are classes, or of every leaf of a
            tree.
        shown: ``(B, E)`` bool, the contributions of largest absolute value, ties in order; for a tree, the leaf at the
            end of the path that takes the likelier branch at every node.
    """

    contributions: Tensor
    shown: Tensor


def against_others(values: Tensor, multi_label: bool, dim: int = 0) -> Tensor:
    """Values of all classes less their mean over classes, which a softmax of the logits does not see.

    A sigmoid sees each logit by itself: with multilabel data, values stay as they are. PIPNet's softmax reads
    log(1 + o^e) of its logits o, and does see the mean of o: there, values say by how much a class stands out from the
    average class, as its arg-max does.

    Example:
        >>> against_others(torch.tensor([3.0, 1.0, 2.0]), multi_label=False)
        tensor([ 1., -1.,  0.])
    """
    return values if multi_label else values - values.mean(dim=dim, keepdim=True)


@torch.no_grad()
def decide(
    model: InterpretableModel,
    output: ModelOutput,
    classes: Tensor,
    most: int,
    multi_label: bool = False,
    rivals: Tensor | None = None,
) -> Decision:
    """Contributions to the decision for a class, and which of them an explanation shows.

    Units add their weight times their score to a logit, or what the model itself says if it has no weight matrix;
    cells of a model whose units are classes add a share of their evidence; all less the mean over classes
    (:func:`against_others`), or less what they add to ``rivals``, one other class per image. Leaves of a tree add to
    the probability of the class what the paths to them give, whatever the rivals.
    """
    if isinstance(model, DecidesByTree):
        return _by_leaf(model, output.scores, classes)
    contributions = _additive(model, output, classes, multi_label)
    if rivals is not None:
        contributions = contributions - _additive(model, output, rivals, multi_label)
    order = contributions.abs().argsort(dim=1, descending=True, stable=True)[:, :most]
    return Decision(contributions, torch.zeros_like(contributions, dtype=torch.bool).scatter_(1, order, True))


def _additive(model: InterpretableModel, output: ModelOutput, classes: Tensor, multi_label: bool) -> Tensor:
    """``(B, E)`` float64, what units or cells add to the logit of a class, less the mean over classes."""
    units = model.units()
    if units.kind == "class":
        cells = against_others(output.maps.flatten(2).double(), multi_label, dim=1)
        return cells[torch.arange(len(cells), device=cells.device), classes] / cells.shape[2]
    if units.weight is None:
        return _of_the_model(model, output, classes, multi_label).masked_fill(~units.active, 0)
    weight = against_others(units.weight.double(), multi_label)
    return (weight[classes] * output.scores.double()).masked_fill(~units.active, 0)


def _of_the_model(model: InterpretableModel, output: ModelOutput, classes: Tensor, multi_label: bool) -> Tensor:
    """``(B, U)`` float64, the contributions that a model without a weight matrix names, less the mean over classes."""
    own = model.contributions(output, classes).double()
    if multi_label:
        return own
    labels = range(output.logits.shape[1])
    total = sum(model.contributions(output, torch.full_like(classes, label)).double() for label in labels)
    return own - total / len(labels)


def leaf_reach(model: DecidesByTree, scores: Tensor) -> Tensor:
    """``(B, L)`` float64, how much each leaf of a tree counts for images with scores ``(B, U)``: rows sum to 1.

    The probability of reaching it; 1 for one leaf alone where the model decides by one.
    """
    reach = model.tree.log_reach(scores, hard=model.inference == "greedy").double()
    if model.inference == "sample_max":
        return torch.zeros_like(reach).scatter_(1, reach.argmax(dim=1, keepdim=True), 1.0)
    return reach.exp()


def _by_leaf(model: DecidesByTree, scores: Tensor, classes: Tensor) -> Decision:
    """What the path to every leaf gives to the probability of the class."""
    tree, reach = model.tree, leaf_reach(model, scores)
    logits = tree.leaf_logits.double()
    chances = logits.sigmoid() if tree.multilabel else logits.softmax(dim=1)
    end = tree.log_reach(scores, hard=True).argmax(dim=1, keepdim=True)
    return Decision(reach * chances.T[classes], torch.zeros_like(reach, dtype=torch.bool).scatter_(1, end, True))
