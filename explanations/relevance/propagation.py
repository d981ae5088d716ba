"""What the explainers of relevance propagation share: the start, whether they fit a model, and a warning."""

from __future__ import annotations

import warnings
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from protometry.explanations.explainer import Explainer, refuse_training
from protometry.explanations.relevance.start import relevance_start
from protometry.lightning_modules.contract import InterpretableModel, ModelOutput

MAX_AMPLIFICATION = 10.0

# model -> how it was looked at -> the modules it had then, and what was found
_reasons: WeakKeyDictionary[nn.Module, dict[object, tuple[tuple[int, ...], str | None]]] = WeakKeyDictionary()


class Propagation(Explainer):
    """Base of the explainers that pass relevance from the latent to the pixels."""

    def __init__(self) -> None:
        self._amplified: list[Tensor] = []

    def supports(self, model: InterpretableModel) -> str | None:
        """None, or what stands in the way; a model not seen before is shown one black image to find out.

        Raises:
            ValueError: if such a model is in training mode.
        """
        module = cast(nn.Module, model)
        reasons, way = _reasons.setdefault(module, {}), type(self)._obstacle
        structure = tuple(map(id, module.modules()))
        if way not in reasons or reasons[way][0] != structure:
            refuse_training(model)
            reasons[way] = (structure, self._obstacle(model))
        return reasons[way][1]

    def _obstacle(self, model: InterpretableModel) -> str | None:
        """What keeps relevance from getting from the units of a model to its pixels."""
        raise NotImplementedError

    def attribute(self, *args: Any, **options: Any) -> Tensor:
        """As in the base; also warns of amplified relevance."""
        self._amplified.clear()
        maps = super().attribute(*args, **options)
        if self._amplified and torch.stack(self._amplified).any():
            warnings.warn(
                f"Sums of opposite signs amplified relevance more than {MAX_AMPLIFICATION:g} times, so that these maps "
                "say little. Use another explainer, such as Upsample.",
                stacklevel=2,
            )
        return maps

    def _note_amplified(self, maps: Tensor, size: Tensor) -> None:
        """Compare maps ``(B, H, W)`` with the sum of absolute relevance ``(B,)`` that they started with."""
        self._amplified.append((maps.abs().sum((1, 2)) > MAX_AMPLIFICATION * size).any())


def unit_start(model: InterpretableModel, output: ModelOutput, ids: Tensor, amounts: Tensor) -> Tensor:
    """Relevance of the latent ``(B, D, h, w)`` for one unit per image, which sums to ``amounts``; both ``(B,)``."""
    return relevance_start(output, model.units(), ids[:, None], amounts[:, None])


def class_start(model: InterpretableModel, output: ModelOutput, ids: Tensor) -> Tensor:
    """The same for one class per image: the starts of all units, which sum to their contributions."""
    contributions = model.contributions(output, ids)
    units = torch.arange(contributions.shape[1], device=ids.device).expand_as(contributions)
    return relevance_start(output, model.units(), units, contributions)


def misfit(model: InterpretableModel, output: ModelOutput) -> str | None:
    """What keeps units from having a start, or None; the output must have a latent."""
    latent, units = cast(Tensor, output.latent), model.units()
    vectors = units.vectors
    if "context" in output.extras:
        return "its units are read from embeddings, which relevance cannot be shared among"
    if vectors is not None and vectors.shape[1:] != (units.parts * latent.shape[1],):
        return f"its units are not vectors of one cell with {latent.shape[1]} channels"
    if vectors is None and output.scores.shape[1] != latent.shape[1]:
        return "its units have no vectors and are not the channels of the latent"
    if output.maps.shape[2:] != latent.shape[2:]:
        return "its maps and its latent differ in their cells"
    return None
