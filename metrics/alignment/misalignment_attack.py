"""The attack under which misalignment is measured: it lowers the score of a unit from outside its region."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_at_least, check_tensor


def masked_projected_gradient(  # noqa: PLR0913
    score_function: Callable[[Tensor], Tensor],
    images: Tensor,
    mask: Tensor,
    epsilon: Tensor | float,
    step_size: Tensor | float,
    steps: int = 40,
    start: Tensor | None = None,
    clamp: bool = True,
) -> Tensor:
    """Lower a score by changing only the pixels of a mask, each by at most ``epsilon``.

    Source: Sacha et al. (2024), after Madry et al. (2018). Every step is ``x - step_size sign(gradient)``, projected to
    the ball of radius ``epsilon`` in the maximum norm. Deviation: the score itself is lowered; a cross-entropy over a
    single logit, as in the released code, has no gradient. Parameters keep their gradients, and it works in inference
    mode.

    Args:
        score_function: maps images to scores of any shape, whose sum is lowered.
        images: ``(B, 3, H, W)`` float in [0, 1].
        mask: ``(B, 1, H, W)`` bool, True where a pixel may change.
        epsilon: largest change, broadcast against ``images``; per channel of shape ``(3, 1, 1)``.
        step_size: change per step, alike.
        steps: number of steps; with 0 the start alone.
        start: ``(B, 3, H, W)`` first change, such as ``epsilon`` times
            :func:`protometry.metrics.functional.keyed_uniform`; None for no change.
        clamp: whether changed pixels are brought back to [0, 1].

    Returns:
        ``(B, 3, H, W)``, equal to ``images`` outside the mask.

    Example:
        >>> mask = torch.tensor([[[[True, False]]]])
        >>> attacked = masked_projected_gradient(torch.sum, torch.full((1, 3, 1, 2), 0.5), mask, 0.25, 0.1, steps=5)
        >>> attacked[0, 0]
        tensor([[0.2500, 0.5000]])
    """
    check_tensor("images", images, ("B", 3, "H", "W"), "float")
    check_tensor("mask", mask, (len(images), 1, *images.shape[2:]), "bool")
    check_at_least("steps", steps, 0)
    if start is not None:
        check_tensor("start", start, tuple(images.shape), "float")

    def projected(moved: Tensor) -> Tensor:
        moved = torch.minimum(torch.maximum(moved, images - epsilon), images + epsilon)
        return torch.where(mask, moved.clamp(0, 1) if clamp else moved, images)

    with torch.inference_mode(False), torch.enable_grad():
        images = images.detach().clone()  # a tensor made in inference mode cannot take part in a gradient
        attacked = projected(images if start is None else images + start)
        for _ in range(steps):
            attacked = attacked.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(score_function(attacked).sum(), attacked)
            attacked = projected(attacked.detach() - step_size * gradient.sign())
    return attacked.detach()
