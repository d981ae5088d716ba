"""Whether the concepts that decide on an image are in the image."""

from __future__ import annotations

import torch
from torch import Tensor

from metrics.functional.concept_importance import most_important
from metrics.functional.primitives.checks import check_tensor


def concept_existence(importance: Tensor, concept_labels: Tensor, k: int) -> Tensor:
    """Share of the k most important concepts that the image has.

    Source: Aysel et al. (2025), equation 9, with l = ``k``. Concepts that are not eligible are left out: with fewer
    than k of the others, the share is of those.

    Args:
        importance: ``(B, L)`` float, see :func:`concept_importance`; minus infinity for a concept that is not eligible.
        concept_labels: ``(B, L)`` bool, the concepts of the image.
        k: number of concepts, 1 to L.

    Returns:
        ``(B,)`` float64 in [0, 1], higher is better; NaN without an eligible concept and where an importance is NaN or
        infinite.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> importance, labels = torch.tensor([[0.9, 0.4, -0.5]]), torch.tensor([[False, True, False]])
        >>> [concept_existence(importance, labels, k).item() for k in (1, 2)]
        [0.0, 0.5]
    """
    check_tensor("concept_labels", concept_labels, tuple(importance.shape), "bool")
    ids, eligible = most_important(importance, k)
    hits = concept_labels.gather(1, ids) & eligible
    count = eligible.sum(dim=1)
    return (hits.sum(dim=1).double() / count).masked_fill(count == 0, torch.nan)


def concept_existence_baselines(prevalence: Tensor, k: int, order: Tensor | None = None) -> dict[str, Tensor]:
    """What rankings reach that never look at the image.

    Args:
        prevalence: ``(L,)`` float in [0, 1], share of the images with each concept.
        k: number of concepts, 1 to L.
        order: ``(L,)`` int64, a ranking of the concepts, such as by how frequent they are in training; by
            ``prevalence`` itself, ties to the lower index, if None.

    Returns:
        Scalars, float64: ``chance``, of a random ranking, is the mean prevalence; ``prevalence`` the mean over the
        first k concepts of ``order``.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> {name: value.item() for name, value in concept_existence_baselines(torch.tensor([1.0, 0.5, 0]), 2).items()}
        {'chance': 0.5, 'prevalence': 0.75}
    """
    check_tensor("prevalence", prevalence, ("L",), "float")
    by_prevalence, _ = most_important(prevalence[None], k)
    if order is not None:
        check_tensor("order", order, tuple(prevalence.shape), "int64")
    first = by_prevalence[0] if order is None else order[:k]
    return {"chance": prevalence.double().mean(), "prevalence": prevalence.double()[first].mean()}
