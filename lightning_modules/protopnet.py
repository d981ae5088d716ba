"""ProtoPNet (Chen et al. 2019, *This Looks Like That*): class-owned prototypes, log-similarity, linear head.

Architecture, losses and phases top to bottom. Deviations from the released code: the cluster and separation costs are
exact minima, BatchNorm keeps its running statistics in phases that train the head only, and a prototype without a patch
keeps its vector. The pruned variant is a phase plan with a ``prune`` phase appended, not another class.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.class_prototypes import HEAD_LOSSES, ClassPrototypes, fine_tuned, from_scratch
from protometry.lightning_modules.bases.interpretable import LossTerm
from protometry.lightning_modules.bases.losses import cluster, cross_entropy, multilabel_margin
from protometry.lightning_modules.contract import ModelOutput
from protometry.lightning_modules.heads.addon import AddonKind, addon_layers
from protometry.lightning_modules.heads.prototypes import (
    PrototypeLayer,
    Similarity,
    nearest_distance,
)
from protometry.lightning_modules.phases import OptimizerSpec, Phase, PhasePlan, SchedulerSpec, one_cycle
from protometry.metrics.primitives.checks import check_at_least, check_choice
from protometry.metrics.primitives.peaks import margin_to_elsewhere

LOSSES = {"cross_entropy": 1.0, "cluster": 0.8, "separation": -0.08}
CHANNELS = 128  # of the add-on, where nothing is said
Addon = Literal[AddonKind, "metric"]
COSINE_LOSSES = {"cross_entropy": 1.0, "cluster": 1.0, "separation": -0.1}


def _joint(name: str, epochs: int, scheduler: SchedulerSpec) -> Phase:
    """A joint phase with the original rates; all of a plan share one optimiser and one step-wise decay."""
    rates = {"backbone": 1e-4, "addon": 3e-3, "prototypes": 3e-3}
    return Phase(
        name,
        epochs,
        rates,
        LOSSES,
        weight_decay={"backbone": 1e-3, "addon": 1e-3},
        optimizer=OptimizerSpec("Adam", key="joint"),
        scheduler=scheduler,
    )


def _last(name: str) -> Phase:
    return Phase(name, 20, {"head": 1e-4}, HEAD_LOSSES, bn="eval", on_enter=("project",), selectable=True)


_DECAY = SchedulerSpec("MultiStepLR", {"milestones": [4, 9, 14], "gamma": 0.1})  # stepped before each epoch
_EVERY_TENTH = SchedulerSpec("StepLR", {"step_size": 10, "gamma": 0.1})
_METRIC = one_cycle(
    "metric",
    15,
    {"addon": 1e-3},
    {"cross_entropy_without_own": 1.0, "margin": -1.0},
    OptimizerSpec("AdamW", {"weight_decay": 0.0}),
    bn="eval",
    on_enter=("recurring_patches",),
)
_CALIBRATED = Phase("last", 1, {"head": 0.0}, HEAD_LOSSES, bn="eval", on_enter=("calibrate",), selectable=True)
_WARM = Phase("warm", 5, {"addon": 3e-3, "prototypes": 3e-3}, LOSSES, weight_decay={"addon": 1e-3}, bn="eval")


class ProtoPNet(ClassPrototypes):
    """Prototypical part network.

    Source: Chen et al. 2019. Presets: ``original`` (two cycles of the published schedule), ``quanproto`` (Schlinge et
    al. 2025, CUB; set ``off_class_init: 0``, ``epsilon: 1e-14``, ``prototype_range: [0.4, 1]`` and, with single labels,
    ``class_weights: true``, as the files in ``configs/model/quanproto`` do), ``funnybirds`` (Opłatek et al. 2024: rates
    fall every tenth epoch, one projection after 25), ``sketch`` (ours, for the from-scratch backbone),
    ``pretrained`` (ours, for a pretrained backbone, cosine similarity and few images) and ``frozen`` (ours, for a
    pretrained backbone that stays as it is: prototypes start as the patches that recur in the images of a class and
    remain these patches, while the metric that compares them is learnt; set ``addon: metric``, ``similarity:
    cosine_exp``, ``own_class_init: 5`` and ``off_class_init: null``).

    ``sketch`` and ``pretrained`` solve the last layer, the authors' three train it as published, and ``frozen`` leaves
    its weights equal. docs/models/protopnet.md has the effect of the solution, which was not measured with the authors'
    schedules.

    Args:
        prototypes_per_class: prototypes owned by each class.
        prototype_channels: D, channels of the add-on and of the prototypes, by default 128; with ``metric``, those of
            the backbone.
        addon: ``sigmoid`` is the original (1×1 convolution, ReLU, 1×1 convolution, sigmoid); ``linear`` is one 1×1
            convolution, which suits ``cosine`` and few training images; ``metric`` is one square matrix, the identity
            at first, for cells and prototypes alike.
        similarity: ``l2_log``, ``cosine`` or ``cosine_exp``.
        epsilon: ε of ``l2_log``.
        own_class_init: initial head weight between a class and its own prototypes.
        off_class_init: initial head weight between a class and a prototype of another class; null if a class reads only
            its own prototypes, which fixes these weights at 0.
        prototype_range: with ``l2_log``, prototypes start uniformly between these two numbers.

    Example:
        >>> import torch
        >>> model = ProtoPNet(num_classes=4, image_size=(32, 32), prototypes_per_class=2)
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.logits.shape, output.scores.shape, output.maps.shape
        (torch.Size([3, 4]), torch.Size([3, 8]), torch.Size([3, 8, 4, 4]))
    """

    card = Card(
        name="ProtoPNet",
        units="prototypes of a class, patches of training images",
        decision="linear head over best similarities",
        paper="Chen et al. 2019",
        url="https://arxiv.org/abs/1806.10574",
        page="protopnet.md",
        tiny={"prototypes_per_class": 2, "prototype_channels": 8},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": PhasePlan(
            (_WARM, _joint("joint", 6, _DECAY), _last("last"), _joint("joint2", 10, _DECAY), _last("last2"))
        ),
        "funnybirds": PhasePlan((_WARM, _joint("joint", 20, _EVERY_TENTH), _last("last"))),
        "quanproto": PhasePlan(
            (
                Phase("warm", 5, {"addon": 2.7e-5, "prototypes": 2.7e-5}, LOSSES, bn="eval"),
                Phase(
                    "joint",
                    100,
                    {"backbone": 4.7e-5, "addon": 4.9e-5, "prototypes": 2.3e-3},
                    LOSSES,
                    scheduler=SchedulerSpec("StepLR", {"step_size": 35, "gamma": 0.5}),
                ),
                Phase(
                    "last",
                    10,
                    {"head": 1e-4},
                    {"cross_entropy": 1.0, "off_class_l1": 1e-3},
                    bn="eval",
                    on_enter=("project",),
                    selectable=True,
                ),
            )
        ),
        "pretrained": fine_tuned(COSINE_LOSSES),
        "frozen": PhasePlan((_METRIC, _CALIBRATED)),
        "sketch": from_scratch(LOSSES),
    }

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        prototypes_per_class: int = 10,
        prototype_channels: int | None = None,
        addon: Addon = "sigmoid",
        similarity: Similarity = "l2_log",
        epsilon: float = 1e-4,
        own_class_init: float = 1.0,
        off_class_init: float | None = -0.5,
        prototype_range: tuple[float, float] = (0.0, 1.0),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        low, high = prototype_range
        if not -math.inf < low < high < math.inf:
            raise ValueError(
                f"Expected argument `prototype_range` to be two finite numbers, the lower first, but got {low}, {high}."
            )
        check_choice("addon", addon, get_args(Addon))
        is_frozen = self.hparams["preset"] == "frozen"
        if is_frozen and self.task == "multilabel":
            raise ValueError(
                "Expected argument `preset` to be another one than 'frozen' with `task: multilabel`, because its "
                "prototypes start as patches of images of one label."
            )
        if is_frozen and addon != "metric":
            raise ValueError(
                "Expected argument `addon` to be 'metric' with `preset: frozen`, where prototypes stay patches "
                f"while the add-on is trained, but got {addon!r}."
            )
        inputs, metric = self.backbone.out_channels, addon == "metric"
        channels = (inputs if metric else CHANNELS) if prototype_channels is None else prototype_channels
        for name, value in (("prototypes_per_class", prototypes_per_class), ("prototype_channels", channels)):
            check_at_least(name, value, 1)
        if metric and channels != inputs:
            raise ValueError(
                f"Expected argument `prototype_channels` to be null with `addon: metric`, whose matrix keeps the "
                f"{inputs} channels of the backbone, but got {channels}."
            )
        layers = 1 if addon == "linear" else 2
        self.addon = nn.Identity() if addon == "metric" else addon_layers(inputs, channels, layers, addon)
        units = prototypes_per_class * self.num_classes
        self.prototypes = PrototypeLayer(units, channels, similarity, epsilon, metric)
        if similarity == "l2_log":
            self.prototypes.vectors.data.mul_(high - low).add_(low)
        self.own_prototypes(prototypes_per_class, own_class_init, off_class_init)

    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, add-on, similarity of every cell to every prototype, best cell, linear head.

        In training, scores are the similarities of the nearest cells, whose distances are in ``extras``, and maps have
        no gradient: the gradient of the logarithm would need twice the memory and time of the rest of the head.
        """
        latent = self.embed(images)
        if not self.training:
            maps = self.prototypes.maps(latent)
            scores = self.pool(maps) * self.prototypes.active
            return ModelOutput(self.head(scores), scores, maps, latent)
        distances = self.prototypes.distances(latent)
        nearest = nearest_distance(distances)
        maps = self.prototypes.similarities(distances.detach())
        scores = self.prototypes.similarities(nearest) * self.prototypes.active
        extras = {"distance": nearest} | ({"distances": distances} if "margin" in self.phase.losses else {})
        return ModelOutput(self.head(scores), scores, maps, latent, extras)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Those of the modules; the matrix of ``addon: metric`` is the add-on."""
        groups = super().parameter_groups()
        if self.prototypes.metric is not None:
            groups |= {"addon": [*self.prototypes.metric.parameters()], "prototypes": [self.prototypes.vectors]}
        return groups

    def _cross_entropy_without_own(self, output: ModelOutput, batch: dict[str, Any]) -> Tensor:
        others = batch["sample_key"][:, None] != self.prototypes.sample_key
        logits = self.head(output.scores * others)
        return cross_entropy(logits, batch["label"], batch.get("class_targets"), self.class_weights)

    def _margin(self, output: ModelOutput, batch: dict[str, Any]) -> Tensor:
        per_class = len(self.owner) // self.num_classes
        own = batch["label"][:, None] * per_class + torch.arange(per_class, device=self.owner.device)
        images = torch.arange(len(own), device=own.device)[:, None]
        margins, active = margin_to_elsewhere(output.extras["distances"][images, own]), self.prototypes.active[own]
        return (margins * active).sum() / active.sum().clamp_min(1)

    def loss_terms(self) -> dict[str, LossTerm]:
        """Adds two terms for single labels and two others for multilabel data.

        Ours: ``cross_entropy_without_own`` (a prototype says nothing about the image that it is a patch of) and
        ``margin`` (of the prototypes of the image's class, see :func:`margin_to_elsewhere`; higher is better, the
        coefficient is negative). As the released code of Schlinge et al. 2025 has them: ``multilabel_margin_sum`` (over
        the images of a batch, not their mean) and ``absent_separation`` (mean over the labels an image does not have of
        the distance to their nearest prototype).
        """
        if self.task != "multilabel":
            return super().loss_terms() | {
                "cross_entropy_without_own": self._cross_entropy_without_own,
                "margin": self._margin,
            }
        own = self.owner.T & self.prototypes.active
        return super().loss_terms() | {
            "multilabel_margin_sum": lambda output, batch: (
                len(batch["labels"]) * multilabel_margin(output.logits, self.targets(batch))
            ),
            "absent_separation": lambda output, batch: cluster(
                output.extras["distance"], own, self.targets(batch) == 0
            ),
        }
