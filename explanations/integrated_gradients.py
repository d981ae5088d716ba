"""Integrated gradients, the explainer that compares an image with a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor

from protometry.explanations.explainer import Explainer, Kind, Question
from protometry.explanations.grad_cam_and_gradient import differentiable, gradient_of, run_with_graph
from protometry.lightning_modules.contract import InterpretableModel
from protometry.metrics.primitives.checks import check_at_least, check_choice


class IntegratedGradients(Explainer):
    """Gradients integrated along the straight line from a baseline to the image.

    Source: Sundararajan et al. (2017), "Axiomatic attribution for deep networks", equation 1:
    (x - x0) ⊙ ∫ ∇y(x0 + a (x - x0)) da, summed over RGB. Deviation: the midpoint rule, a = (i + 1/2) / ``steps``.
    Every target costs ``steps`` forward and backward passes. The sum of a map is y(x) - y(x0) only in the limit.

    Args:
        steps: points on the line.
        baseline: x0: ``"black"``, a colour as three numbers in [0, 1] (such as the data set's mean), or a tensor
            ``(3, 1, 1)`` or ``(3, H, W)``.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import Classifier
        >>> model, images = Classifier(num_classes=4, image_size=(32, 32)).eval(), torch.rand(1, 3, 32, 32)
        >>> explainer, targets = IntegratedGradients(steps=64), Targets("class", torch.tensor([[0]]))
        >>> explainer.attribute(model, images, targets).shape
        torch.Size([1, 1, 32, 32])
    """

    key: ClassVar[str] = "ig"
    explains: ClassVar[frozenset[Kind]] = frozenset({"unit", "class"})

    def __init__(self, steps: int = 50, baseline: Literal["black"] | Sequence[float] | Tensor = "black") -> None:
        check_at_least("steps", steps, 1)
        self.steps = steps
        self.baseline = _baseline(baseline)

    def _start(self, images: Tensor) -> Tensor:
        if self.baseline.shape[1:] not in ((1, 1), images.shape[2:]):
            raise ValueError(
                f"Expected argument `baseline` to be of the images' size {tuple(images.shape[2:])}, but got "
                f"{tuple(self.baseline.shape[1:])}."
            )
        self.baseline = self.baseline.to(images)  # kept there: a copy to the device waits for it
        return self.baseline.expand_as(images)

    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            images = differentiable(question.images)
            start, total = self._start(images), torch.zeros_like(images)
            for step in range(self.steps):
                pixels = torch.lerp(start, images, (step + 0.5) / self.steps).requires_grad_()
                total += gradient_of(run_with_graph(model, pixels), question.kind, question.ids, pixels, keep=False)
        return ((images - start) * total).sum(dim=1) / self.steps


def _baseline(baseline: str | Sequence[float] | Tensor) -> Tensor:
    """The baseline as ``(3, 1, 1)`` or ``(3, H, W)``."""
    if isinstance(baseline, str):
        check_choice("baseline", baseline, ("black",))
        return torch.zeros(3, 1, 1)
    tensor = baseline if isinstance(baseline, Tensor) else torch.tensor(baseline, dtype=torch.float32).view(-1, 1, 1)
    if tensor.ndim != 3 or len(tensor) != 3 or not bool(((tensor >= 0) & (tensor <= 1)).all()):
        raise ValueError(
            "Expected argument `baseline` to be 'black', three numbers or a tensor (3, 1, 1) or (3, H, W), all in "
            f"[0, 1], but got {baseline!r}."
        )
    return tensor
