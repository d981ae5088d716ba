"""Concept activation maps: where in an image the latent agrees with the vector of a concept."""

from __future__ import annotations

from typing import ClassVar, Literal, cast, get_args

import torch
from torch import Tensor

from protometry.explanations.explainer import Explainer, Kind, Question
from protometry.lightning_modules.contract import InterpretableModel
from protometry.metrics.concepts.maps import concept_activation_maps
from protometry.metrics.primitives.checks import check_choice
from protometry.metrics.primitives.upsample import Mode, upsample_maps

Scale = Literal["paper", "score"]


class CoAM(Explainer):
    """Concept activation map of a concept, or of a class as the sum of its concepts' maps by their weights.

    Source: Aysel et al. (2025), equation 2: ``F_j = (1 / D) Σ_d c_jd E_d`` with the concept vector c and the latent E
    of D channels, then enlarged. The class view is ``Σ_j θ_kj F_j`` with the head's weights θ, which is ours. Maps are
    signed; the paper does not say how it enlarges.

    Args:
        scale: ``"paper"`` as above; ``"score"`` for the model's own maps, whose mean is the concept's score before any
            sigmoid, such as ``(c_j E + b_j) / ||c_j||`` of a post-hoc CBM with margins. A positive factor or an offset
            of a map moves no region.
        mode: how cells become pixels.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import ConceptBottleneck
        >>> model = ConceptBottleneck(num_concepts=5, num_classes=4, image_size=(32, 48)).eval()
        >>> explainer, images = CoAM(scale="score"), torch.rand(1, 3, 32, 48)
        >>> maps = explainer.attribute(model, images, Targets("unit", torch.tensor([[3, -1]])))
        >>> maps.shape, bool(maps[:, 1].isnan().all())
        (torch.Size([1, 2, 32, 48]), True)
    """

    key: ClassVar[str] = "coam"
    explains: ClassVar[frozenset[Kind]] = frozenset({"unit", "class"})

    def __init__(self, scale: Scale = "paper", mode: Mode = "bilinear") -> None:
        check_choice("scale", scale, get_args(Scale))
        check_choice("mode", mode, get_args(Mode))
        self.scale: Scale = scale
        self.mode: Mode = mode

    def supports(self, model: InterpretableModel) -> str | None:
        """None for concepts that are mean projections of the latent on vectors, with a weight matrix."""
        units = model.units()
        if units.kind != "concept":
            return "its units are not concepts"
        projected = units.vectors is not None and units.comparison == "projection" and units.pool == "mean"
        if not projected or units.weight is None:
            return "its concepts have no vectors, or no weights"
        return None

    @torch.no_grad()
    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        units, maps = model.units(), question.output.maps
        if self.scale == "paper":
            maps = concept_activation_maps(cast(Tensor, question.output.latent), cast(Tensor, units.vectors))
        if question.kind == "unit":
            chosen = maps[torch.arange(len(question.ids), device=question.ids.device), question.ids]
        else:
            weights = (cast(Tensor, units.weight) * units.active)[question.ids]
            chosen = torch.einsum("bu,buij->bij", weights, maps)
        return upsample_maps(chosen, question.size, self.mode, model.geometry.lattice)
