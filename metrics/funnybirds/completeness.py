"""Completeness: the four checks of important parts at the one threshold that is chosen for them."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_tensor

_COMPARED_DIGITS = 12  # sums over images in another order differ in later ones


def select_threshold(csdc: Tensor, pc: Tensor, dc: Tensor, d: Tensor) -> int:
    """The one threshold at which the four completeness checks are reported.

    Source: Hesse et al. (2023): the first argmax of ``CSDC/3 + PC/3 + DC/3 + D``, compared to 12 digits. The published
    rule chooses it on the very images it is reported on; see :func:`heldout_completeness`.

    Args:
        csdc: ``(T,)`` float, mean of the controlled synthetic data check at each threshold.
        pc: ``(T,)`` float, of the preservation check.
        dc: ``(T,)`` float, of the deletion check.
        d: ``(T,)`` float, of distractibility.

    Returns:
        Index of the threshold.

    Raises:
        ValueError: if a value is not finite, as the controlled synthetic
            data check of a model without any correct prediction is.

    Example:
        >>> low, high = torch.tensor([0.2, 0.4, 0.4]), torch.tensor([0.9, 0.9, 0.8])
        >>> select_threshold(low, low, low, high)
        1
    """
    scores = _score(csdc, pc, dc, d)
    if not scores.numel() or not scores.isfinite().all():
        raise ValueError(
            "Expected arguments `csdc`, `pc`, `dc` and `d` to hold a finite value for every threshold, but got "
            f"{tuple(scores.shape)} thresholds, {int((~scores.isfinite()).sum())} of them with an undefined check."
        )
    return int(scores.round(decimals=_COMPARED_DIGITS).argmax())


def heldout_completeness(csdc: Tensor, pc: Tensor, dc: Tensor, d: Tensor) -> float:
    """Completeness at a threshold that was chosen on other images.

    Source: none; what the rule of Hesse et al. (2023) gains by choosing on the evaluated images is the difference to
    their completeness.

    Returns:
        ``((CSDC + PC + DC) / 3 + D) / 2`` in [0, 1], higher is better; NaN if a check is undefined in one half.

    Example:
        >>> halves = torch.tensor([[0.2, 0.4], [0.7, 0.6]])
        >>> round(heldout_completeness(halves, halves, halves, halves), 4)
        0.6
    """
    for name, value in (("csdc", csdc), ("pc", pc), ("dc", dc), ("d", d)):
        check_tensor(name, value, (2, "T"), "float")
    chosen, reported = zip(*(value.unbind() for value in (csdc, pc, dc, d)), strict=True)
    scores = _score(*reported)
    if not (scores.isfinite().all() and _score(*chosen).isfinite().all()):
        return float("nan")
    return float(scores[select_threshold(*chosen)] / 2)


def funnybirds_aggregate(  # noqa: PLR0913 - the six scores of the protocol and their thresholds
    csdc: Tensor, pc: Tensor, dc: Tensor, d: Tensor, sd: Tensor, ts: Tensor, thresholds: Tensor
) -> dict[str, float]:
    """The summary scores of the protocol.

    Source: Hesse et al. (2023); ``completeness_mean`` is the wording of Opłatek et al. (2024). At the one threshold of
    :func:`select_threshold`:

    - ``completeness``: ``((CSDC + PC + DC) / 3 + D) / 2``; ``completeness_mean``: ``(CSDC + PC + DC + D) / 4``;
      ``completeness_area``: the mean of completeness over all thresholds.
    - ``correctness``: SD; ``contrastivity``: TS; ``overall``: mean of completeness, correctness and contrastivity.
    - ``threshold``: the one chosen.

    An explanation that calls all parts and no background important is nearly complete for every model that uses all
    parts: print the number of important parts next to it.

    Args:
        csdc: ``(T,)`` float, mean of the controlled synthetic data check at each threshold.
        pc: ``(T,)`` float, of the preservation check.
        dc: ``(T,)`` float, of the deletion check.
        d: ``(T,)`` float, of distractibility.
        sd: float scalar, single deletion.
        ts: float scalar, target sensitivity.
        thresholds: ``(T,)`` float.

    Returns:
        The seven numbers, fractions, higher is better except for the threshold; NaN where a component is undefined.

    Example:
        >>> csdc, pc, dc, d, sd, ts, t = torch.tensor([0.6, 0.3, 0.6, 0.8, 0.5, 0.7, 0.1]).double()
        >>> scores = funnybirds_aggregate(csdc[None], pc[None], dc[None], d[None], sd, ts, t[None])
        >>> round(scores["completeness"], 4), round(scores["completeness_mean"], 4), round(scores["overall"], 4)
        (0.65, 0.575, 0.6167)
    """
    check_tensor("thresholds", thresholds, tuple(csdc.shape), "float")
    check_tensor("sd", sd, (), "float")
    check_tensor("ts", ts, (), "float")
    complete = _score(csdc, pc, dc, d) / 2
    at = [complete, (csdc.double() + pc.double() + dc.double() + d.double()) / 4, thresholds.double()]
    if complete.isfinite().all():
        index = select_threshold(csdc, pc, dc, d)
        completeness, mean, threshold = (float(values[index]) for values in at)
    else:
        completeness = mean = threshold = float("nan")
    correctness, contrastivity = float(sd), float(ts)
    return {
        "completeness": completeness,
        "completeness_mean": mean,
        "completeness_area": float(complete.mean()),
        "correctness": correctness,
        "contrastivity": contrastivity,
        "overall": (completeness + correctness + contrastivity) / 3,
        "threshold": threshold,
    }


def _score(csdc: Tensor, pc: Tensor, dc: Tensor, d: Tensor) -> Tensor:
    """``(T,)`` float64, twice the completeness at each threshold."""
    check_tensor("csdc", csdc, ("T",), "float")
    for name, value in (("pc", pc), ("dc", dc), ("d", d)):
        check_tensor(name, value, (len(csdc),), "float")
    return torch.stack([csdc.double(), pc.double(), dc.double()]).sum(dim=0) / 3 + d.double()
