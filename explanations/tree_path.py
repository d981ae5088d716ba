"""A decision tree as nested nodes, and the path of one image through it, for reports and studies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from torch import Tensor

from protometry.lightning_modules.contract import DecidesByTree

_TOP = 5  # classes of a leaf


@dataclass(frozen=True)
class TreeNode:
    """A node or a leaf.

    Args:
        unit: that a node tests; None for a leaf.
        classes: of a leaf, class and probability of the five largest.
        leaf: index of a leaf among all leaves of the model; None for a node.
    """

    unit: int | None
    absent: TreeNode | None = None
    present: TreeNode | None = None
    classes: tuple[tuple[int, float], ...] = ()
    leaf: int | None = None

    @property
    def label(self) -> int | None:
        """The class of a leaf; None for a node."""
        return self.classes[0][0] if self.classes else None


@dataclass(frozen=True)
class TreeStep:
    """A decision on the path of an image.

    Args:
        present: how much its unit is there, in 0..1.
    """

    node: TreeNode
    present: float

    @property
    def is_present(self) -> bool:
        """Whether the path continues as if the unit were there."""
        return self.present > 0.5

    @property
    def following(self) -> TreeNode:
        """Where the decision leads."""
        return cast(TreeNode, self.node.present if self.is_present else self.node.absent)


def grow(model: DecidesByTree) -> TreeNode:
    """The tree without its pruned parts."""
    return _node(model, 0)


def _node(model: DecidesByTree, index: int) -> TreeNode:
    tree = model.tree
    if index >= tree.nodes:
        logits = tree.leaf_logits[index - tree.nodes].detach()
        chances = logits.sigmoid() if tree.multilabel else logits.softmax(dim=0)
        best = chances.argsort(descending=True, stable=True)[:_TOP].tolist()
        return TreeNode(None, classes=tuple((label, float(chances[label])) for label in best), leaf=index - tree.nodes)
    route = int(tree.route[index])
    if route:
        return _node(model, 2 * index + route)
    return TreeNode(index, _node(model, 2 * index + 1), _node(model, 2 * index + 2))


def path(root: TreeNode, scores: Tensor) -> tuple[list[TreeStep], TreeNode]:
    """The likelier way at every node, and the leaf at its end.

    Source: Nauta et al. 2021, greedy inference: to the right where the score exceeds one half.

    Example:
        >>> import torch
        >>> leaves = [TreeNode(None, classes=((label, 1.0),)) for label in range(3)]
        >>> root = TreeNode(0, leaves[0], TreeNode(1, leaves[1], leaves[2]))
        >>> steps, leaf = path(root, torch.tensor([0.9, 0.5]))
        >>> [(step.node.unit, step.is_present) for step in steps], leaf.label
        ([(0, True), (1, False)], 1)
    """
    steps: list[TreeStep] = []
    node = root
    while node.unit is not None:
        steps.append(TreeStep(node, float(scores[node.unit])))
        node = steps[-1].following
    return steps, node
