"""ST-ProtoPNet (Wang et al. 2023): support prototypes near the boundaries between classes, trivial ones far from them.

Architecture, losses and phases top to bottom, as far as they differ from TesNet. Equations and coefficients are those
of the released code for cropped images. Deviations from it, besides those of TesNet: every step minimises the sum of
the losses of both sets, which the code minimises in turn, a batch each, because each would leave the other set without
gradient; and the add-ons are layers of one network with two groups of channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.class_prototypes import fine_tuned, from_scratch
from protometry.lightning_modules.bases.interpretable import LossTerm, Task
from protometry.lightning_modules.bases.losses import (
    closeness,
    cluster,
    discrimination,
    orthonormality,
    separation,
)
from protometry.lightning_modules.contract import ModelOutput, SourceTable, UnitTable
from protometry.lightning_modules.phases import PhasePlan, SchedulerSpec
from protometry.lightning_modules.tesnet import BasisVectors, TesNet, published
from protometry.metrics.primitives.checks import check_choice

Addons = Literal["tanh", "linear"]
LOSSES = {
    "cross_entropy": 1.0,
    "cluster": 0.8,
    "separation": -0.08,
    "support_separation": -0.48,
    "orthonormality": 1e-3,
    "closeness": 1.0,
    "discrimination": 1.0,
}
DECAY = SchedulerSpec("MultiStepLR", {"milestones": [2, 4, 6, 8], "gamma": 0.2})


def two_addons(inputs: int, channels: int, addon: Addons) -> nn.Sequential:
    """Two add-ons side by side, each to D ``channels``, Kaiming normal by the fan-out of one, bias 0.

    ``tanh`` has two 1×1 convolutions with tanh after each, ``linear`` one convolution.
    """
    check_choice("addon", addon, get_args(Addons))
    layers: list[nn.Module] = [nn.Conv2d(inputs, 2 * channels, 1)]
    if addon == "tanh":
        layers += [nn.Tanh(), nn.Conv2d(2 * channels, 2 * channels, 1, groups=2), nn.Tanh()]
    for convolution in layers[::2]:
        nn.init.normal_(convolution.weight, std=(2 / channels) ** 0.5)  # type: ignore[arg-type]
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
    return nn.Sequential(*layers)


class TwoSets(BasisVectors):
    """Basis vectors of two sets, each compared with its own half of the channels ``(B, 2·D, h, w)`` of a latent.

    Every class has M = ``per_class`` trivial prototypes, for the first half, and then as many support prototypes.
    """

    support: Tensor

    def __init__(self, num_prototypes: int, channels: int, per_class: int, positive: bool) -> None:
        super().__init__(num_prototypes, channels, positive)
        self.register_buffer("support", torch.arange(num_prototypes) // per_class % 2 == 1, persistent=False)

    def of_own_set(self, trivial: Tensor, support: Tensor, units: Tensor | None) -> Tensor:
        """The value ``(B, U, h, w)`` for the set of each of the ``units`` ``(B, n)``, or of all."""
        chosen = self.support if units is None else self.support[units]
        return torch.where(chosen[..., None, None], support, trivial)

    def distances(self, latent: Tensor, exact: bool | None = None, units: Tensor | None = None) -> Tensor:
        """Distances of every cell to every prototype, or to some, in the half of its set."""
        trivial, support = latent.chunk(2, dim=1)
        first, second = super().distances(trivial, exact, units), super().distances(support, exact, units)
        return self.of_own_set(first, second, units)

    def lengths(self, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """Norms ``(B, U, h, w)`` of the half of the set of each prototype."""
        trivial, support = latent.chunk(2, dim=1)
        return self.of_own_set(super().lengths(trivial), super().lengths(support), units)

    def padded(self) -> Tensor:
        """``(U, 2·D)``, the vectors in the latent of both sets: 0 in the half of the other set."""
        return torch.cat([self.vectors * ~self.support[:, None], self.vectors * self.support[:, None]], dim=1)

    @torch.no_grad()
    def load_patches(self, patches: Tensor, valid: Tensor, source: SourceTable) -> None:
        """Copy the half of its set of each patch ``(U, 2·D)``."""
        trivial, support = patches.chunk(2, dim=1)
        super().load_patches(torch.where(self.support[:, None], support, trivial), valid, source)


class STProtoPNet(TesNet):
    """Prototypical part network with support and trivial prototypes.

    Source: Wang et al. 2023. Each set has its own add-on, prototypes and head; the logits of both are added, so that
    both are units of one table and one head. Presets: ``original`` (the published schedule up to its projection, and
    its last layer, for a VGG or ResNet), ``sketch`` and ``pretrained`` (ours), which solve the last layer on the scores
    of both sets.

    Args:
        prototypes_per_class: M, prototypes of a class in each of the two sets.
        prototype_channels: D, channels of each add-on and of the prototypes; the latent has 2·D.
        addon: ``tanh`` is the original (1×1 convolution, tanh, 1×1 convolution, tanh); ``linear`` is one 1×1
            convolution.

    Example:
        >>> model = STProtoPNet(num_classes=4, image_size=(32, 32), prototypes_per_class=2)
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.logits.shape, output.scores.shape, output.latent.shape
        (torch.Size([3, 4]), torch.Size([3, 16]), torch.Size([3, 128, 4, 4]))
    """

    card = Card(
        name="ST-ProtoPNet",
        units="prototypes of a class, far from other classes or near them",
        decision="linear head over largest projections of both sets",
        paper="Wang et al. 2023",
        url="https://arxiv.org/abs/2301.04011",
        page="st_protopnet.md",
        tiny={"prototypes_per_class": 2, "prototype_channels": 8},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": published(LOSSES, 16, 10, 5e-4, DECAY),
        "sketch": from_scratch(LOSSES),
        "pretrained": fine_tuned(LOSSES),
    }
    tasks: ClassVar[tuple[Task, ...]] = ("multiclass",)
    prototypes: TwoSets

    def __init__(
        self, prototypes_per_class: int = 5, prototype_channels: int = 64, addon: Addons = "tanh", **kwargs: Any
    ) -> None:
        super().__init__(2 * prototypes_per_class, prototype_channels, "linear", **kwargs)
        self.addon = two_addons(self.backbone.out_channels, prototype_channels, addon)
        self.prototypes = TwoSets(len(self.owner), prototype_channels, prototypes_per_class, positive=addon == "tanh")

    def units(self) -> UnitTable:
        """Prototypes of both sets, owned by their class, as vectors of the latent of both."""
        return replace(super().units(), vectors=self.prototypes.padded())

    def loss_terms(self) -> dict[str, LossTerm]:
        """Terms of both sets, added: each has its own cross-entropy, cluster cost and orthonormality.

        ``separation`` and ``discrimination`` are of trivial prototypes, ``support_separation`` and ``closeness`` of
        support prototypes.
        """
        own, active, support = self.owner.T, self.prototypes.active, self.prototypes.support
        half = len(self.owner) // self.num_classes // 2  # the trivial prototypes of a class
        terms = super().loss_terms()
        del terms["subspace_separation"]

        def of(term: Callable[..., Tensor], *sets: Tensor) -> LossTerm:
            return lambda output, batch: torch.stack([term(output, batch, members) for members in sets]).sum()

        def errors(output: ModelOutput, batch: dict[str, Any], members: Tensor) -> Tensor:
            return terms["cross_entropy"](replace(output, logits=self.head(output.scores * members)), batch)

        def nearest_own(output: ModelOutput, batch: dict[str, Any], members: Tensor) -> Tensor:
            return cluster(output.extras["distance"], own & active & members, self.targets(batch))

        def nearest_other(output: ModelOutput, batch: dict[str, Any], members: Tensor) -> Tensor:
            return separation(output.extras["distance"], own | ~active | ~members, self.targets(batch))

        return terms | {
            "cross_entropy": of(errors, ~support, support),
            "cluster": of(nearest_own, ~support, support),
            "separation": of(nearest_other, ~support),
            "support_separation": of(nearest_other, support),
            "orthonormality": lambda output, batch: orthonormality(torch.cat(self.bases().chunk(2, dim=1))),
            "discrimination": lambda output, batch: discrimination(self.bases()[:, :half]),
            "closeness": lambda output, batch: closeness(self.bases()[:, half:]),
        }
