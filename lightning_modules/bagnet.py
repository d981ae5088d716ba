"""BagNet: the mean of the class evidence of small image patches. Its units are the classes."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protometry.lightning_modules.backbones import BackboneOptions
from protometry.lightning_modules.backbones.bagnet import BAGNETS
from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.interpretable import InterpretableModule
from protometry.lightning_modules.classifier import Classifier
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.lightning_modules.phases import PhasePlan


class BagNet(InterpretableModule):
    """Class logits of every cell, each of which sees a square of 9, 17 or 33 pixels, averaged over cells.

    Source: Brendel and Bethge (2019), "Approximating CNNs with bag-of-local-features models works surprisingly well on
    ImageNet". The map of a class holds its logit at every cell, bias included, so its mean is the logit, and a cell
    depends on no pixel outside its receptive field: the map is the explanation, and the default in evaluations. Images
    need not be square. Presets: as for :class:`~protometry.lightning_modules.Classifier`.

    Args:
        backbone: one of ``bagnet9``, ``bagnet17`` and ``bagnet33``, the default.

    Raises:
        ValueError: if the backbone is another one, or the images are smaller than its receptive field.

    Example:
        >>> model = BagNet(num_classes=4, image_size=(32, 48), backbone={"name": "bagnet9"}).eval()
        >>> output = model(torch.rand(2, 3, 32, 48))
        >>> output.maps.shape, torch.allclose(output.maps.mean((2, 3)), output.logits)
        (torch.Size([2, 4, 3, 5]), True)
    """

    card = Card(
        name="BagNet",
        units="classes",
        decision="mean of the evidence of small patches",
        paper="Brendel and Bethge 2019",
        url="https://arxiv.org/abs/1904.00760",
        page="bagnet.md",
        tiny={"backbone": {"name": "bagnet9", "width": 16}},
    )
    presets: ClassVar[dict[str, PhasePlan]] = Classifier.presets

    def __init__(self, backbone: BackboneOptions | None = None, **kwargs: Any) -> None:
        options: BackboneOptions = {"name": "bagnet33"} if backbone is None else backbone
        if options.get("name") not in BAGNETS:
            raise ValueError(
                f"Expected argument `backbone.name` of BagNet to be one of {list(BAGNETS)}, but got "
                f"{options.get('name')!r}. Use `Classifier` for other backbones."
            )
        super().__init__(backbone=options, **kwargs)
        self.linear = nn.Linear(self.backbone.out_channels, self.num_classes)

    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, linear layer at every cell, mean over cells."""
        latent = self.backbone(images)
        maps = self.linear(latent.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        scores = maps.mean(dim=(2, 3))
        return ModelOutput(self.head(scores), scores, maps, latent)

    def head(self, scores: Tensor) -> Tensor:
        """Logits ``(B, K)`` of scores ``(B, K)``: the same."""
        return scores

    @torch.no_grad()
    def dense_maps(self, images: Tensor) -> Tensor:
        """Class logits of the patch around every pixel, as the paper draws them.

        Deviation: patches that reach beyond the image see black there; the authors pad the normalised image with 0.

        Args:
            images: ``(B, 3, H, W)`` float, RGB in [0, 1].

        Returns:
            ``(B, K, H, W)`` float; every 8th row and column is a shift of the grid of ``forward``.

        Example:
            >>> _ = torch.manual_seed(0)  # logits of about 40 that cancel to nearly 0 would need a wider tolerance
            >>> model = BagNet(num_classes=2, image_size=(9, 9), backbone={"name": "bagnet9"}).eval()
            >>> image = torch.rand(1, 3, 9, 9)
            >>> torch.allclose(model.dense_maps(image)[0, :, 4, 4], model(image).logits[0], atol=1e-5)
            True
        """
        geometry = self.geometry
        margin, step = (geometry.receptive_field or 0) // 2, int(geometry.jump or 1)
        padded = F.pad(images, [margin] * 4)
        dense = images.new_empty(len(images), self.num_classes, *images.shape[2:])
        for top, left in product(range(min(step, images.shape[2])), range(min(step, images.shape[3]))):
            dense[:, :, top::step, left::step] = self(padded[:, :, top:, left:]).maps
        return dense

    def units(self) -> UnitTable:
        """The classes; each owns itself.

        A class is compared with every cell by an inner product with its weights, which therefore serve as its vector
        for relevance propagation. They are not stored patches, so metrics of prototypes ignore them.
        """
        weight = torch.eye(self.num_classes, device=self.linear.weight.device)
        active = torch.ones(self.num_classes, dtype=torch.bool, device=weight.device)
        return UnitTable(
            kind="class",
            active=active,
            owner=weight > 0,
            pool="mean",
            weight=weight,
            vectors=self.linear.weight,
            comparison="projection",
        )
