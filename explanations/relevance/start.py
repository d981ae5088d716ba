"""Start of relevance propagation: relevance of the latent, in the cells in which units found their evidence."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from protometry.lightning_modules.contract import ModelOutput, UnitTable

_EXACT = 1e-12  # keeps the inverse square of a distance finite
_SMALLEST = torch.finfo(torch.float32).tiny


def relevance_start(output: ModelOutput, units: UnitTable, ids: Tensor, amounts: Tensor) -> Tensor:
    """Relevance of the latent ``(B, D, h, w)`` for units ``ids`` ``(B, n)`` of each image, which sums to ``amounts``.

    Source: Gautam et al. (2023) for prototypes compared by distance: all of it in the best cell (the first in row-major
    order), channel c gets q_c/Σq with q_c = 1/((z_c - p_c)² + 1e-12). Ours, for the rest: prototypes compared by an
    inner product share by max(z_c p_c, 0); a channel of the latent is its own share; units pooled by their mean start
    in all cells, by max(z_c v_c, 0) over channels and cells. Where no product is positive the shares are by |z_c v_c|,
    and where all are zero by |v_c|. Of focal pooling only the maximum is explained. Units of several parts start in the
    cells of their parts, by the channels of all parts, each part of length 1.

    Example:
        >>> latent = torch.tensor([[[[0.0, 1.0]], [[0.0, 3.0]]]])  # two channels, two cells
        >>> output = ModelOutput(torch.ones(1, 2), torch.ones(1, 1), torch.tensor([[[[0.0, 5.0]]]]), latent)
        >>> units = UnitTable("prototype", torch.tensor([True]), torch.ones(1, 2) > 0, "max",
        ...     vectors=torch.tensor([[2.0, 1.0]]), comparison="projection")
        >>> relevance_start(output, units, torch.tensor([[0]]), torch.tensor([[10.0]])).flatten(1)
        tensor([[0., 4., 0., 6.]])
    """
    latent = output.latent
    if latent is None:
        raise ValueError("Expected argument `output` to have a latent, but it is None.")
    if units.pool == "mean":
        dense = torch.zeros_like(output.scores).scatter_(1, ids, amounts)
        return _over_all_cells(latent, units.vectors, dense)
    return _in_best_cells(latent, output, units, ids, amounts)


def _in_best_cells(latent: Tensor, output: ModelOutput, units: UnitTable, ids: Tensor, amounts: Tensor) -> Tensor:
    """All relevance of a unit in the cell with the largest value of its map, or in the cells of its parts."""
    rows = torch.arange(len(ids), device=ids.device)[:, None]
    if output.cells is None:
        cells = output.maps[rows, ids].flatten(2).argmax(2, keepdim=True)  # (B, n, P)
    else:
        cells = output.cells[rows, ids]
    if units.vectors is None:
        shares = F.one_hot(ids, latent.shape[1]).to(latent)
    else:
        patches = latent.flatten(2).transpose(1, 2)[rows[:, :, None], cells]  # (B, n, P, D)
        vectors = units.vectors[ids].view_as(patches)
        if units.parts > 1:
            patches, vectors = F.normalize(patches, dim=3), F.normalize(vectors, dim=3)
        shares = _shares(patches.flatten(2), vectors.flatten(2), units.comparison == "distance")
    start = latent.new_zeros(len(latent), latent.shape[2] * latent.shape[3], latent.shape[1])  # channels last
    relevance = (shares * amounts[:, :, None]).view(len(ids), -1, latent.shape[1])
    start.scatter_add_(1, cells.flatten(1)[:, :, None].expand_as(relevance), relevance)
    return start.transpose(1, 2).reshape(latent.shape)


def _shares(patches: Tensor, vectors: Tensor, by_distance: bool) -> Tensor:
    """Shares of the channels ``(B, n, P·D)``, which sum to 1."""
    if by_distance:
        closeness = ((patches - vectors).square() + _EXACT).reciprocal()
        return closeness / closeness.sum(2, keepdim=True)
    products = patches * vectors
    shares = vectors.abs()
    for better in (products.abs(), products.clamp(min=0)):
        shares = torch.where(better.sum(2, keepdim=True) > 0, better, shares)
    return shares / shares.sum(2, keepdim=True).clamp(min=_SMALLEST)


def _over_all_cells(latent: Tensor, vectors: Tensor | None, amounts: Tensor) -> Tensor:
    """The relevance of units ``(B, U)`` by max(z_c v_c, 0) over channels and cells, without a (B, U, D, h, w) tensor.

    With z = z⁺ - z⁻ and v = v⁺ - v⁻ the share is (z⁺ v⁺ + z⁻ v⁻) / Σ, so that units can be summed before cells appear.
    """
    weight = torch.eye(latent.shape[1], device=latent.device) if vectors is None else vectors
    positive, negative, size = weight.clamp(min=0), (-weight).clamp(min=0), weight.abs()
    above, below, magnitude = latent.clamp(min=0), (-latent).clamp(min=0), latent.abs()
    evidence = above.sum((2, 3)) @ positive.T + below.sum((2, 3)) @ negative.T  # (B, U)
    products = magnitude.sum((2, 3)) @ size.T
    everything = (size.sum(1) * (latent.shape[2] * latent.shape[3])).expand_as(products)
    supporting, opposed = evidence > 0, (evidence <= 0) & (products > 0)
    by_evidence, by_product, by_weight = (
        torch.where(chosen, amounts / total.clamp(min=_SMALLEST), 0)
        for chosen, total in ((supporting, evidence), (opposed, products), (~supporting & ~opposed, everything))
    )
    return (
        above * (by_evidence @ positive)[:, :, None, None]
        + below * (by_evidence @ negative)[:, :, None, None]
        + magnitude * (by_product @ size)[:, :, None, None]
        + (by_weight @ size)[:, :, None, None]
    )
