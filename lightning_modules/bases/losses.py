"""Loss terms, each a mean over images in float32, >= 0, lower is better where nothing else is said.

Models name them, and phase plans weight them.
"""

from __future__ import annotations

import torch
from torch import Tensor, distributed
from torch.distributed.nn.functional import all_reduce
from torch.nn import functional as F


def cross_entropy(
    logits: Tensor, labels: Tensor, class_targets: Tensor | None = None, class_weights: Tensor | None = None
) -> Tensor:
    """Cross-entropy, with soft targets if an image is compatible with several classes.

    Source: soft targets as Hesse et al. 2023 (FunnyBirds): 1/|T| on the classes T that agree with the visible parts;
    class weights as Schlinge et al. 2025. Deviation: the weighted sum is divided by the number of images, not by the
    weights in the batch, so that processes and accumulated batches equal one large batch.

    Args:
        logits: ``(B, K)`` float.
        labels: ``(B,)`` int64, used if ``class_targets`` is None.
        class_targets: ``(B, K)`` float, rows sum to 1.
        class_weights: ``(K,)`` float; None for equal ones.

    Example:
        >>> round(cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3])).item(), 4)
        1.3863
    """
    targets = labels if class_targets is None else class_targets
    return F.cross_entropy(logits.float(), targets, class_weights, reduction="sum") / len(logits)


def concept_bce(logits: Tensor, concepts: Tensor, weights: Tensor | None = None) -> Tensor:
    """Binary cross-entropy of the concepts of an image, summed over concepts.

    Source: Koh et al. 2020 (concept bottleneck models): mean over images of Σ_l v_l BCE(logit_l, c_l). As in their
    code, v_l weighs presence and absence of a concept alike.

    Args:
        logits: ``(B, L)`` float.
        concepts: ``(B, L)`` float, c in [0, 1]; NaN where unknown, which adds 0.
        weights: ``(L,)`` float >= 0, v; None for ones.

    Example:
        >>> round(concept_bce(torch.zeros(4, 2), torch.ones(4, 2), torch.tensor([1.0, 2.0])).item(), 4)
        2.0794
    """
    known = (~concepts.isnan()).float() * (1.0 if weights is None else weights)
    losses = F.binary_cross_entropy_with_logits(logits.float(), concepts.nan_to_num(), known, reduction="sum")
    return losses / len(logits)


def multilabel_margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The multi-label margin loss: how closely the logits of absent labels approach the logits of present ones.

    Source: Schlinge et al. 2025 (QuanProto), multi-label margin loss: mean over images of
    (1/K) Σ_{c present} Σ_{j absent} max(0, 1 - (o_c - o_j)). Unlike binary cross-entropy, it requires no negative
    logits and therefore no negative head weights.

    Args:
        logits: ``(B, K)`` float, o. Memory: B·K² numbers.
        labels: ``(B, K)`` bool, or float with NaN where unknown, which is neither present nor absent.

    Returns:
        Scalar >= 0, lower is better; an image with no present or no absent label adds 0.

    Example:
        >>> multilabel_margin(torch.tensor([[2.0, 1.5, 0.0, 3.0]]), torch.tensor([[True, True, False, False]])).item()
        1.125
    """
    logits = logits.float()
    margins = (1 - logits[:, :, None] + logits[:, None, :]).clamp_min(0.0)
    pairs = (labels == 1)[:, :, None] & (labels == 0)[:, None, :]
    return margins.masked_fill(~pairs, 0.0).sum(dim=(1, 2)).mean() / logits.shape[1]


def cluster(distances: Tensor, own: Tensor, targets: Tensor) -> Tensor:
    """Mean distance to the nearest prototype of the image's own class.

    Source: Chen et al. 2019 (ProtoPNet), cluster cost; for multilabel data Schlinge et al. 2025: the mean over
    the labels of an image of the term for each. Deviation: the exact minimum; the released code's
    ``max((D - d) * mask)`` is wrong where distances exceed the channel count D.

    Args:
        distances: ``(B, U)`` float, smallest distance of every prototype to a patch of the image.
        own: ``(K, U)`` bool, the prototype belongs to the class.
        targets: ``(B,)`` int64, or if multilabel ``(B, K)`` bool, or float with NaN where unknown, which is left out.
            Memory: then B·K·U numbers.

    Returns:
        Scalar >= 0, lower is better; classes without a prototype and images without a label are left out (0 if nothing
        is left).

    Example:
        >>> own = torch.tensor([[True, True, False], [False, False, True]])
        >>> distances = torch.tensor([[150.0, 170.0, 1.0]])
        >>> cluster(distances, own, torch.tensor([0])).item()
        150.0
        >>> cluster(distances, own, torch.tensor([[True, True]])).item()
        75.5
    """
    one_label = targets.ndim == 1
    candidates = own[targets][:, None] if one_label else own[None]  # (B or 1, labels, U)
    nearest = distances.float()[:, None].where(candidates, torch.inf).amin(dim=2)
    counted = candidates.any(dim=2) if one_label else (targets == 1) & own.any(dim=1)
    labels = counted.sum(dim=1)
    means = nearest.where(counted, 0.0).sum(dim=1) / labels.clamp_min(1)
    return means.sum() / (labels > 0).sum().clamp_min(1)


def separation(distances: Tensor, own: Tensor, targets: Tensor) -> Tensor:
    """Mean distance to the nearest prototype of another class; higher is better, the coefficient is negative.

    Source: Chen et al. 2019 (ProtoPNet), separation cost; multilabel data and deviation as for :func:`cluster`. The
    other classes of a label include the other labels of its image.

    Example:
        >>> own = torch.tensor([[True, True, False], [False, False, True]])
        >>> separation(torch.tensor([[150.0, 170.0, 1.0]]), own, torch.tensor([0])).item()
        1.0
    """
    return cluster(distances, ~own, targets)


def off_class_l1(weight: Tensor, owner: Tensor) -> Tensor:
    """Sum, not mean, of absolute head weights between classes and prototypes they do not own.

    Source: Chen et al. 2019 (ProtoPNet), convex optimisation of the last layer.

    Example:
        >>> off_class_l1(torch.tensor([[1.0, -0.5], [-0.25, 1.0]]), torch.eye(2, dtype=torch.bool)).item()
        0.75
    """
    return weight.float().abs().masked_fill(owner.T, 0.0).sum()


def orthonormality(bases: Tensor) -> Tensor:
    """How far the vectors of each basis are from orthonormal, summed, not averaged, over bases.

    Source: Wang et al. 2021 (TesNet), orthonormality loss: Σ_k ‖B_k B_kᵀ − I‖₁, the sum of absolute entries as in the
    released code.

    Args:
        bases: ``(K, M, D)`` float, the rows of B_k are the M vectors of basis k.

    Example:
        >>> bases = torch.tensor([[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.0, 1.0]]])
        >>> round(orthonormality(bases).item(), 4)  # the cosine 0.6, twice
        1.2
    """
    bases = bases.float()
    return (bases @ bases.mT - torch.eye(bases.shape[1], device=bases.device)).abs().sum()


def subspace_separation(bases: Tensor) -> Tensor:
    """The distance between the subspaces that bases span, summed over pairs; higher is better.

    Source: Wang et al. 2021 (TesNet), subspace separation with the projection metric of the Grassmann manifold:
    Σ_{a<b} ‖B_aᵀB_a − B_bᵀB_b‖ / √2 (Frobenius), a distance between subspaces as far as the bases are orthonormal. The
    square is ‖B_aB_aᵀ‖² + ‖B_bB_bᵀ‖² − 2‖B_aB_bᵀ‖², which needs no D×D matrices; two equal bases have no gradient.

    Args:
        bases: ``(K, M, D)`` float, the rows of B_k are the M vectors of basis k. Memory: (K·M)² numbers.

    Example:
        >>> lines = torch.tensor([[[1.0, 0.0]], [[0.6, 0.8]], [[0.0, 1.0]]])
        >>> round(subspace_separation(lines).item(), 4)  # the sines of their angles: 0.8 + 1 + 0.6
        2.4
    """
    classes, size = bases.shape[:2]
    vectors = bases.float().flatten(0, 1)
    shared = (vectors @ vectors.T).square().view(classes, size, classes, size).sum(dim=(1, 3))  # ‖B_aB_bᵀ‖²
    own = shared.diagonal()
    first, second = torch.triu_indices(classes, classes, 1, device=bases.device)
    squares = own[first] + own[second] - 2 * shared[first, second]
    return (squares.clamp_min(1e-10) / 2).sqrt().sum()


def closeness(bases: Tensor) -> Tensor:
    """How far apart the vectors of different classes are: minus their smallest inner product, lower if they are close.

    Source: Wang et al. 2023 (ST-ProtoPNet), closeness loss: the mean over classes a ≠ b of −min_ij ⟨a_i, b_j⟩.

    Args:
        bases: ``(K, M, D)`` float, M unit vectors of each class. Memory: (K·M)² numbers.

    Returns:
        Scalar in [-1, 1]; minimising it pulls the farthest vectors of every two classes together.

    Example:
        >>> closeness(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[0.0, -1.0]]])).item()  # 0, 0 and -1, each twice
        0.3333333432674408
    """
    return -_between_classes(bases).amin(dim=(1, 2)).mean()


def discrimination(bases: Tensor) -> Tensor:
    """How close the vectors of different classes come: their largest inner product.

    Source: Wang et al. 2023 (ST-ProtoPNet), discrimination loss: the mean over classes a ≠ b of max_ij ⟨a_i, b_j⟩.
    Arguments and memory as for :func:`closeness`.

    Example:
        >>> discrimination(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]], [[0.0, -1.0]]])).item()  # 0, 0 and -1, each twice
        -0.3333333432674408
    """
    return _between_classes(bases).amax(dim=(1, 2)).mean()


def _between_classes(bases: Tensor) -> Tensor:
    """Inner products ``(pairs, M, M)`` of the vectors of every two classes."""
    first, second = torch.triu_indices(len(bases), len(bases), 1, device=bases.device)
    return torch.einsum("aid,bjd->abij", bases.float(), bases.float())[first, second]


def slot_orthogonality(logits: Tensor, adjacent: bool = False) -> Tensor:
    """The similarity of the slots of a class: cosines of their logits, summed over ordered pairs, per slot.

    Source: Rymarczyk et al. 2022 (ProtoPool), orthogonality loss: Σ_k Σ_{i≠j} cos(Q_ki, Q_kj) / (S·K). The released
    code of Schlinge et al. 2025 has Σ_k Σ_i cos(Q_ki, Q_k,i+1) / (S·K), a tenth of it for ten equal slots.

    Args:
        logits: ``(K, U, S)`` float, Q.
        adjacent: only pairs of a slot and the next.

    Returns:
        Scalar in [-1, S - 1], lower is better.

    Example:
        >>> twice = torch.tensor([[[1.0, 2.0], [0.0, 0.0]]])  # one class, two slots on one prototype
        >>> slot_orthogonality(twice).item(), slot_orthogonality(twice, adjacent=True).item()
        (1.0, 0.5)
    """
    unit = F.normalize(logits.float(), dim=1)
    cosines = torch.einsum("kui,kuj->kij", unit, unit)
    following = cosines.diagonal(offset=1, dim1=1, dim2=2).sum()
    pairs = following if adjacent else cosines.sum() - cosines.diagonal(dim1=1, dim2=2).sum()
    return pairs / (logits.shape[0] * logits.shape[2])


def part_orthogonality(parts: Tensor) -> Tensor:
    """How similar the parts of the prototypes of a class are to each other.

    Source: Donnelly et al. 2022 (Deformable ProtoPNet), orthogonality loss. √(Σ_k ‖P_k P_kᵀ - I‖²), the rows of P_k
    being the parts of all prototypes of class k, of length 1. The root, to which the published coefficient belongs, is
    that of the released code; the paper has none.

    Args:
        parts: ``(K, n, D)`` float.

    Returns:
        Scalar >= 0, lower is better.

    Example:
        >>> round(part_orthogonality(torch.tensor([[[3.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [1.0, 1.0]]])).item(), 4)
        1.0
    """
    unit = F.normalize(parts.float(), dim=2)
    cosines = unit @ unit.transpose(1, 2)
    size: Tensor = (cosines - torch.eye(cosines.shape[1], device=cosines.device)).norm()
    return size


def coherence(parts: Tensor, openness: Tensor) -> Tensor:
    """How unlike the parts of a prototype are: the largest cosine distance of two parts that count, mean of prototypes.

    Source: Ma et al. 2024 (ProtoViT), coherence loss: mean over u of max_ij (1 - cos(p_ui, p_uj)) σ_ui σ_uj.

    Args:
        parts: ``(U, P, D)`` float, p.
        openness: ``(U, P)`` float in [0, 1], σ, how much a part counts.

    Example:
        >>> parts = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]])
        >>> coherence(parts, torch.tensor([[1.0, 1.0, 0.0]])).item()
        1.0
    """
    unit = F.normalize(parts.float(), dim=2)
    distances = (1 - unit @ unit.mT) * openness[:, :, None] * openness[:, None]
    return distances.amax(dim=(1, 2)).mean()


def alignment(first: Tensor, second: Tensor) -> Tensor:
    """The disagreement of corresponding cells of two views.

    Source: Nauta et al. 2023 (PIP-Net), alignment loss L_A. ½ Σ over both directions of the mean over cells of
    -log(⟨p, stop(p')⟩ + 1e-12), where stop() cuts the gradient. Without the stop the value is the same and the
    gradient twice as large.

    Args:
        first: ``(B, U, h, w)`` float, softmax over U, of one view.
        second: ``(B, U, h, w)`` float, of the other view.

    Returns:
        Scalar >= 0, lower is better; 0 if every cell answers with the same single unit in both views.

    Example:
        >>> views = torch.tensor([0.5, 0.5]).view(1, 2, 1, 1), torch.tensor([0.25, 0.75]).view(1, 2, 1, 1)
        >>> round(alignment(*views).item(), 4)
        0.6931
    """
    both = -torch.log((first.float() * second.float()).sum(dim=1) + 1e-12).mean()
    return (both + both.detach()) / 2  # each view learns from one direction only: half the gradient of `both`


def tanh_uniformity(first: Tensor, second: Tensor) -> Tensor:
    """The tanh loss, which grows with the number of units that are absent from the batch.

    Source: Nauta et al. 2023 (PIP-Net), tanh loss L_T. -½ Σ over both views of the mean over units of
    log(tanh(Σ_b s_bu) + 1e-8). The sum over images is not a mean: it saturates for large batches (exp(-L_T) is the
    geometric mean of tanh(Σ); at 1 the term teaches nothing), and it runs over the images of **all processes**, through
    an all-reduce with gradient. The gradients averaged by DDP then equal the gradient of one process with the
    whole batch, which sums per process would not.

    Args:
        first: ``(B, U)`` float in [0, 1], largest value of every unit in one view.
        second: ``(B, U)`` float, of the other view.

    Returns:
        Scalar >= 0, lower is better, the same in every process.

    Example:
        >>> round(tanh_uniformity(torch.tensor([[0.5], [0.5]]), torch.tensor([[1.0], [0.0]])).item(), 4)
        0.2723
    """
    sums = torch.stack([first.float().sum(0), second.float().sum(0)])
    if distributed.is_initialized():
        sums = all_reduce(sums)  # type: ignore[no-untyped-call]
    return -torch.log(torch.tanh(sums) + 1e-8).mean()


def feature_diversity(maps: Tensor, logits: Tensor, weight: Tensor, active: Tensor) -> Tensor:
    """The feature diversity loss: how little the features of the predicted class differ in where they look.

    Source: Norrenbrock et al. 2024 (Q-SENN) and 2025 (QPM): minus the mean over images of
    Σ_ij max_u S_u,ij g_u a_u, with the softmax S_u over the cells of map u, g_u = mean(map_u) / max_v mean(map_v) and
    a_u = |W_ŷu| / (‖W_ŷ‖ + 1e-5) for the predicted class ŷ. The coefficient β is the phase's.

    Args:
        maps: ``(B, U, h, w)`` float, >= 0.
        logits: ``(B, K)`` float, with the largest for ŷ.
        weight: ``(K, U)`` float, W.
        active: ``(U,)`` bool, features over which the largest mean is taken.

    Returns:
        Scalar <= 0, lower is better: lower the more cells are dominated by different features.

    Example:
        >>> maps = torch.tensor([[[[9.0, 0.0]], [[0.0, 9.0]]]])  # two features that look at two cells
        >>> logits, weight = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0], [1.0, 0.0]])
        >>> round(feature_diversity(maps, logits, weight, torch.tensor([True, True])).item(), 3)
        -1.414
    """
    cells = maps.float().flatten(2)
    means = cells.mean(2)
    size = means / means.where(active, -torch.inf).amax(1, keepdim=True).clamp_min(1e-6)
    chosen = weight.float()[logits.argmax(1)]
    share = chosen.abs() / (chosen.norm(dim=1, keepdim=True) + 1e-5)
    led: Tensor = (cells.softmax(2) * (size * share)[:, :, None]).amax(1)
    return -led.sum(1).mean()


def feature_sparsity(maps: Tensor, active: Tensor) -> Tensor:
    """The mean size of the values of maps, which is small where features respond in few cells.

    Source: Zimmermann et al. 2026 (DINO-QPM), sparsity loss. Their code adds the mean size of maps with coefficient 5
    and of their pooled values with coefficient 1; for maps that are nowhere negative these are the same number.

    Args:
        maps: ``(B, U, h, w)`` float.
        active: ``(U,)`` bool, the features that count.

    Returns:
        Scalar >= 0, lower is better.

    Example:
        >>> maps = torch.tensor([[[[4.0, 0.0]], [[0.0, 2.0]], [[9.0, 9.0]]]])
        >>> feature_sparsity(maps, torch.tensor([True, True, False])).item()
        1.5
    """
    means = maps.float().abs().mean(dim=(0, 2, 3))
    return means.where(active, 0.0).sum() / active.sum().clamp_min(1)
