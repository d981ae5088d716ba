"""The page of a decision tree, and the path of an image through it, checked against the model's output."""

from __future__ import annotations

from typing import Any

import torch

from protometry.evaluation.explained.additive import TOLERANCE
from protometry.evaluation.explained.explained_model import ExplainedImage, ExplainedModel
from protometry.evaluation.pages.contents import ReportContents
from protometry.evaluation.pages.site import Site
from protometry.explanations.tree_path import TreeNode, TreeStep, grow, path
from protometry.lightning_modules.contract import DecidesByTree


def tree_page(site: Site, contents: ReportContents) -> None:
    """Write the page of the pruned tree, if the model has one."""
    model = contents.explained.model
    if isinstance(model, DecidesByTree):
        nodes = contents.explained.units.active.nonzero().flatten().tolist()[: contents.limits.units]
        site.page("tree.html", "tree", tree=grow(model), sources=contents.explained.sources.of(nodes))


def way(explained: ExplainedModel, image: ExplainedImage) -> tuple[list[TreeStep], TreeNode, float] | None:
    """The likeliest way at every node, the leaf at its end and the probability of reaching it.

    Raises:
        ValueError: if the probabilities of the leaves do not sum to 1, or their mixture is not what the model says.
    """
    model = explained.model
    if not isinstance(model, DecidesByTree):
        return None
    tree: Any = model.tree
    scores = image.output.scores.detach()
    reach = tree.log_reach(scores, hard=model.inference == "greedy").double().exp()[0]
    if model.inference == "distributed" and not tree.multilabel:
        _check(image, explained.class_names[image.label], reach, tree.leaf_logits)
    steps, leaf = path(grow(model), scores[0])
    assert leaf.leaf is not None
    return steps, leaf, float(reach[leaf.leaf])


def _check(image: ExplainedImage, class_name: str, reach: torch.Tensor, leaf_logits: torch.Tensor) -> None:
    mixed = float((reach * leaf_logits.detach().double().softmax(dim=1)[:, image.label]).sum())
    said = image.tables[0][0].probability
    if abs(float(reach.sum()) - 1) > TOLERANCE or abs(mixed - said) > TOLERANCE:
        raise ValueError(
            f"Expected the leaves on the page of image {image.sample_id} to give {class_name} the probability "
            f"{said:.6f} with paths that sum to 1, but got {mixed:.6f} and {float(reach.sum()):.6f}."
        )
