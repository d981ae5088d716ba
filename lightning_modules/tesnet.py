"""TesNet (Wang et al. 2021): every class owns a basis of unit vectors, onto which the cells of an image are projected.

Architecture, losses and phases top to bottom. Equations and coefficients are those of the released code. Deviations
from it: prototypes become the patches nearest in direction, as the cluster cost compares them, instead of those with
the largest projection; training ends with the last layer after that projection, where the code goes on for nine epochs
that leave the prototypes no patches; BatchNorm keeps its running statistics in phases that freeze the backbone.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.class_prototypes import HEAD_LOSSES, ClassPrototypes, fine_tuned, from_scratch
from protometry.lightning_modules.bases.interpretable import LossTerm
from protometry.lightning_modules.bases.losses import orthonormality, subspace_separation
from protometry.lightning_modules.contract import ModelOutput
from protometry.lightning_modules.heads.addon import AddonKind, addon_layers
from protometry.lightning_modules.heads.prototypes import PrototypeLayer, nearest_distance
from protometry.lightning_modules.phases import Phase, PhasePlan, SchedulerSpec
from protometry.metrics.primitives.checks import check_at_least

LOSSES = {
    "cross_entropy": 1.0,
    "cluster": 0.8,
    "separation": -0.08,
    "orthonormality": 1e-4,
    "subspace_separation": -1e-7,
}


def published(losses: dict[str, float], joint: int, last: int, decay: float, scheduler: SchedulerSpec) -> PhasePlan:
    """Five warm epochs, then ``joint`` with a weight ``decay``, and ``last`` after the only projection."""
    rates, decays = {"addon": 3e-3, "prototypes": 3e-3}, {"backbone": decay, "addon": decay}
    whole = {"backbone": 1e-4} | rates
    return PhasePlan(
        (
            Phase("warm", 5, rates, losses, weight_decay={"addon": decay}, bn="eval"),
            Phase("joint", joint, whole, losses, weight_decay=decays, scheduler=scheduler),
            Phase("last", last, {"head": 1e-4}, HEAD_LOSSES, bn="eval", on_enter=("project",), selectable=True),
        )
    )


class BasisVectors(PrototypeLayer):
    """Prototypes onto which cells are projected, while distances compare directions.

    Source: Wang et al. 2021 (TesNet): s = ⟨z, b⟩ with b = p/‖p‖, and d = 1 − cos(z, b), 1 more than in their code.
    Both come from one comparison, s = (1 − d)‖z‖, and are as exact as those of :class:`PrototypeLayer`.

    Example:
        >>> layer = BasisVectors(1, 2).eval()
        >>> _ = layer.vectors.data.copy_(torch.tensor([[0.0, 2.0]]))
        >>> z = torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)
        >>> round(layer.distances(z).item(), 4), round(layer.maps(z).item(), 4)
        (0.2, 4.0)
    """

    def __init__(self, num_prototypes: int, channels: int, positive: bool = False) -> None:
        super().__init__(num_prototypes, channels, "cosine")
        if positive:  # directions that a sigmoid can take
            self.vectors.data.uniform_()
        self.normalize()

    @torch.no_grad()
    def normalize(self) -> None:
        """Put the vectors back on the unit sphere."""
        self.vectors.copy_(F.normalize(self.vectors, dim=1))

    def maps(self, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """Projections ``(B, U, h, w)`` of every cell onto all or some prototypes, in units of the latent."""
        return self.projections(self.distances(latent, units=units), latent, units)

    def projections(self, distances: Tensor, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """Projections of a latent ``(B, D, h, w)`` whose distances are known."""
        return (1 - distances) * self.lengths(latent.float(), units)

    def lengths(self, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """Norms of the vectors that the prototypes are compared with, ``(B, 1, h, w)`` if all are with the same."""
        lengths: Tensor = latent.norm(dim=1, keepdim=True)  # whose gradient is 0 for a vector 0
        return lengths


class TesNet(ClassPrototypes):
    """Transparent embedding space network.

    Source: Wang et al. 2021. Presets: ``original`` (the published schedule up to its projection, and its last layer),
    ``sketch`` (ours, for the from-scratch backbone) and ``pretrained`` (ours, for a pretrained backbone and few
    images). The last two solve the last layer.

    Args:
        prototypes_per_class: M, vectors in the basis of a class, at most D if they are to be orthogonal.
        prototype_channels: D, channels of the add-on and of the prototypes.
        addon: ``sigmoid`` is the original (1×1 convolution, ReLU, 1×1 convolution, sigmoid); ``linear`` is one 1×1
            convolution.
        own_class_init: initial head weight between a class and its own prototypes.
        off_class_init: initial head weight between a class and a prototype of another class; null if a class reads only
            its own prototypes, which fixes these weights at 0.

    Example:
        >>> model = TesNet(num_classes=4, image_size=(32, 32), prototypes_per_class=2)
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.logits.shape, output.scores.shape, output.maps.shape
        (torch.Size([3, 4]), torch.Size([3, 8]), torch.Size([3, 8, 4, 4]))
    """

    card = Card(
        name="TesNet",
        units="prototypes of a class, orthogonal directions of patches",
        decision="linear head over largest projections",
        paper="Wang et al. 2021",
        url="https://openaccess.thecvf.com/content/ICCV2021/html/Wang_Interpretable_Image_Recognition_by_Constructing_Transparent_Embedding_Space_ICCV_2021_paper.html",
        page="tesnet.md",
        tiny={"prototypes_per_class": 2, "prototype_channels": 8},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": published(LOSSES, 6, 20, 1e-3, SchedulerSpec("MultiStepLR", {"milestones": [4], "gamma": 0.1})),
        "sketch": from_scratch(LOSSES),
        "pretrained": fine_tuned(LOSSES),
    }
    prototypes: BasisVectors

    def __init__(
        self,
        prototypes_per_class: int = 10,
        prototype_channels: int = 64,
        addon: AddonKind = "sigmoid",
        own_class_init: float = 1.0,
        off_class_init: float | None = -0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("prototypes_per_class", prototypes_per_class), ("prototype_channels", prototype_channels)):
            check_at_least(name, value, 1)
        self.addon = addon_layers(self.backbone.out_channels, prototype_channels, 1 if addon == "linear" else 2, addon)
        units = prototypes_per_class * self.num_classes
        self.prototypes = BasisVectors(units, prototype_channels, positive=addon == "sigmoid")
        self.own_prototypes(prototypes_per_class, own_class_init, off_class_init)

    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, add-on, projection of every cell onto every prototype, largest projection, linear head.

        In training, ``extras`` has the cosine distances of the cells nearest in direction.
        """
        latent = self.embed(images)
        distances = self.prototypes.distances(latent)
        maps = self.prototypes.projections(distances, latent)
        scores = self.pool(maps) * self.prototypes.active
        extras = {"distance": nearest_distance(distances)} if self.training else {}
        return ModelOutput(self.head(scores), scores, maps, latent, extras)

    def on_train_batch_end(self, *args: Any) -> None:
        """Trained prototypes return to the unit sphere after every step, as in the released code."""
        if self.prototypes.vectors.requires_grad:
            self.prototypes.normalize()

    def bases(self) -> Tensor:
        """``(K, M, D)`` float, the unit vectors of each class; 0 for pruned ones."""
        vectors = F.normalize(self.prototypes.vectors.float(), dim=1) * self.prototypes.active[:, None]
        return vectors.view(self.num_classes, -1, vectors.shape[1])

    def loss_terms(self) -> dict[str, LossTerm]:
        """Adds ``orthonormality`` and ``subspace_separation`` of the bases of the classes."""
        return super().loss_terms() | {
            "orthonormality": lambda output, batch: orthonormality(self.bases()),
            "subspace_separation": lambda output, batch: subspace_separation(self.bases()),
        }
