"""PIPNet (Nauta et al. 2023, *PIP-Net: Patch-Based Intuitive Prototypes*): a prototype is a softmax channel.

Architecture, losses and phases top to bottom. Training uses two views of every image with corresponding cells; the same
channel must respond in both. Deviations from the released code: BatchNorm keeps its running statistics where its group
is frozen, and both stages have one batch size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from protometry.lightning_modules.backbones.sections import backbone_sections
from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.interpretable import InterpretableModule, LossTerm
from protometry.lightning_modules.bases.losses import alignment, cross_entropy, multilabel_margin, tanh_uniformity
from protometry.lightning_modules.bases.training_inputs import data_of
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.lightning_modules.heads.linear_head import LinearHead
from protometry.lightning_modules.phases import FIT_HEAD, OptimizerSpec, Phase, PhasePlan, SchedulerSpec

PRETRAIN_LOSSES = {"alignment_ramp": 1.0, "tanh_uniformity": 5.0}
TRAIN_LOSSES = {"alignment": 5.0, "tanh_uniformity": 2.0, "pipnet_class": 2.0}
LED_LOSSES = {"alignment": 1.0, "tanh_uniformity": 1.0, "pipnet_class": 4.0}  # ours: dominated by the labels
OWNER_THRESHOLD = 1e-3  # a class is explained by the units it weighs more than this
SMALL_BATCH = 32
SHRINK = "shrink_head"

_EVERYTHING = ("stem", "backbone_early", "backbone", "backbone_last", "addon")
_HEAD = {"head": 0.05}
_NET = {"backbone": 5e-4, "backbone_last": 5e-4, "addon": 5e-3}
_WHOLE_NET = _NET | {"backbone_early": 5e-4}
_MOVING, _ALL_MOVING = ["backbone", "backbone_last"], ["backbone_early", "backbone", "backbone_last"]
_TUNED = {"backbone": 1e-4, "backbone_last": 1e-4, "addon": 3e-3}
_SCRATCH = dict.fromkeys(_EVERYTHING, 6e-3)
_COSINE = SchedulerSpec("CosineAnnealingLR", {"eta_min": 5e-6}, per="step")
_RESTARTS = SchedulerSpec("CosineAnnealingWarmRestarts", {"T_0": 10, "eta_min": 1e-3})
_CYCLE = SchedulerSpec("OneCycleLR", per="step")
_LATE_CYCLE = SchedulerSpec("OneCycleLR", {"pct_start": 0.6}, per="step")  # channels are learnt before weights go


def paired(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch whose first half of rows are the images and whose second half are their other views.

    Raises:
        ValueError: without the second view.
    """
    if "second_view" not in batch:
        raise ValueError(
            f"Expected the training batch of PIPNet to have `second_view`, but got only {sorted(batch)}. Train with an "
            "ImageDataModule, which PIPNet asks for two views."
        )
    views = {"image": torch.cat([batch["image"], batch["second_view"]])}
    targets = ("label", "labels", "label_certainty", "class_targets")
    return views | {name: torch.cat([batch[name]] * 2) for name in targets if name in batch}


def _phase(
    name: str,
    epochs: int,
    rates: dict[str, float],
    losses: dict[str, float],
    scheduler: SchedulerSpec,
    key: str | None = None,
    **changes: Any,
) -> Phase:
    optimizer = OptimizerSpec("AdamW", {"weight_decay": 0.0}, key)
    return Phase(name, epochs, rates, losses, optimizer=optimizer, scheduler=scheduler, **changes)


def _full(name: str, epochs: int, **changes: Any) -> Phase:
    """A part of the original stage that trains everything; between the parts, the head is shrunk again."""
    return _phase(name, epochs, _WHOLE_NET | _HEAD, TRAIN_LOSSES, _RESTARTS, "train", bn=_ALL_MOVING, **changes)


def _tuned(name: str, epochs: int, **changes: Any) -> Phase:
    """A part of the stage of ``pretrained``, whose head is sparse only at its end: no earlier epoch can be the best."""
    return _phase(name, epochs, _TUNED | _HEAD, LED_LOSSES, _LATE_CYCLE, "train", bn="eval", **changes)


class PIPNet(LinearHead, InterpretableModule):
    """Patch-based intuitive prototypes network.

    Source: Nauta et al. 2023. Presets: ``original`` (the schedule of the released code), ``quanproto`` (Schlinge et al.
    2025, CUB; set ``score_threshold: 0``), and ours: ``sketch`` (a backbone from scratch; set ``shrinkage: 3.5e-2``)
    and ``pretrained`` (a pretrained backbone, few images; set ``num_features`` and ``shrinkage: 4e-2``). A backbone has
    the groups ``stem`` (up to one cell per 4 pixels), ``backbone_early``, ``backbone`` and ``backbone_last``. Phases
    with scheduler ``CosineAnnealingWarmRestarts`` are one training stage, as in the released code: the restarts (every
    ``T_0`` epochs, from the second step on) are the head's; the other groups follow one cosine that is as long as the
    stage, waits while they are frozen, and ends at a hundredth of the rate of ``backbone``.

    Args:
        num_features: U, channels of a 1×1 convolution after the backbone; None takes the channels of the backbone,
            without a convolution and without the group ``addon``.
        shrinkage: subtracted from every head weight after every step of a phase that trains the head; the authors' 1e-3
            is for 10,000 steps.
        score_threshold: at inference, scores below it are 0; an image whose logits are all 0 is an abstention.

    Raises:
        ValueError: if ``num_features`` is below 2, ``shrinkage`` negative, ``score_threshold`` outside [0, 1), or a
            phase solves the last layer with negative weights.

    Example:
        >>> model = PIPNet(num_classes=4, image_size=(32, 32)).eval()
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.logits.shape, output.scores.shape, output.maps.shape
        (torch.Size([3, 4]), torch.Size([3, 128]), torch.Size([3, 128, 4, 4]))
        >>> output.extras["abstain"]  # nothing is learnt yet: no unit reaches the threshold
        tensor([True, True, True])
    """

    card = Card(
        name="PIP-Net",
        units="softmax channels of the backbone, no vectors",
        decision="non-negative sparse head",
        paper="Nauta et al. 2023",
        url="https://doi.org/10.1109/CVPR52729.2023.00269",
        page="pipnet.md",
        tiny={"num_features": 8},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": PhasePlan(
            (
                _phase("pretrain", 10, _NET, PRETRAIN_LOSSES, _COSINE, bn=_MOVING),
                _phase("head", 3, _HEAD, {"pipnet_class": 2.0}, _RESTARTS, "train", bn="eval"),
                _phase("partial", 7, _NET | _HEAD, TRAIN_LOSSES, _RESTARTS, "train", bn=_MOVING),
                _full("full", 19),
                _full("full_from_30", 30, on_enter=(SHRINK,)),
                _full("full_from_60", 1, on_enter=(SHRINK,), on_exit=("ignore_silent",), selectable=True),
            )
        ),
        "quanproto": PhasePlan(
            (
                Phase("warm", 5, dict.fromkeys(_EVERYTHING, 1e-5), PRETRAIN_LOSSES),
                Phase(
                    "joint",
                    100,
                    dict.fromkeys(_EVERYTHING, 3e-5) | {"backbone_last": 2e-4} | _HEAD | {"exponent": 0.05},
                    TRAIN_LOSSES,
                    scheduler=SchedulerSpec("StepLR", {"step_size": 35, "gamma": 0.5}),
                    selectable=True,
                ),
            )
        ),
        "pretrained": PhasePlan((_tuned("train", 14), _tuned("end", 1, selectable=True))),
        "sketch": PhasePlan((_phase("train", 7, _SCRATCH | _HEAD, LED_LOSSES, _CYCLE, selectable=True),)),
    }
    actions: ClassVar[tuple[str, ...]] = (SHRINK,)

    def __init__(
        self, num_features: int | None = None, shrinkage: float = 1e-3, score_threshold: float = 0.1, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if num_features is not None and num_features < 2:
            raise ValueError(f"Expected argument `num_features` to be null or at least 2, but got {num_features}.")
        if shrinkage < 0:
            raise ValueError(f"Expected argument `shrinkage` to be at least 0, but got {shrinkage}.")
        if not 0 <= score_threshold < 1:
            raise ValueError(f"Expected argument `score_threshold` to be in [0, 1), but got {score_threshold}.")
        for phase in self.plan.phases:
            if FIT_HEAD in phase.on_enter and not phase.head.nonnegative:
                setting = f"`phases.{phase.name}.head.nonnegative`"
                raise ValueError(f"Expected {setting} to be true, because PIPNet has no negative weights.")
        self.shrinkage = shrinkage
        units = num_features or self.backbone.out_channels
        self.addon: nn.Module = nn.Identity()
        if num_features is not None:
            self.addon = nn.Conv2d(self.backbone.out_channels, units, 1)
            nn.init.xavier_uniform_(self.addon.weight)
        self.linear = nn.Linear(units, self.num_classes, bias=False)
        nn.init.normal_(self.linear.weight, 1.0, 0.1)
        self.exponent = nn.Parameter(torch.tensor(2.0))
        self.score_threshold: Tensor
        self.register_buffer("score_threshold", torch.tensor(score_threshold))
        for group in set(_EVERYTHING) - self.parameter_groups().keys():  # presets name them; not every model has them
            named = [phase.name for phase in self.plan.phases if group in phase.trainable]
            self.plan = self.plan.override({name: {"trainable": {group: None}} for name in named})

    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, softmax over channels in every cell, best cell, threshold (evaluation mode), non-negative head."""
        maps = self.addon(self.backbone(images)).float().softmax(dim=1)
        pooled = maps.amax(dim=(2, 3))
        scores = pooled * self._active()
        if not self.training:
            scores = scores.masked_fill(scores < self.score_threshold, 0.0)
        logits = self.head(scores)
        return ModelOutput(logits, scores, maps, maps, {"pooled": pooled, "abstain": logits.amax(dim=1) == 0})

    def head(self, scores: Tensor) -> Tensor:
        """Logits ``(B, K)`` of scores ``(B, U)``, never negative."""
        return F.linear(scores, self.linear.weight.relu())

    def probabilities(self, logits: Tensor) -> Tensor:
        """softmax(log1p(o^e)) ``(B, K)`` of logits o ``(B, K)`` with the exponent e; sigmoid if multilabel."""
        return super().probabilities(self._class_logits(logits))

    def _class_logits(self, logits: Tensor) -> Tensor:
        return torch.log1p(logits.float().pow(self.exponent))

    def units(self) -> UnitTable:
        """Channels; a class owns those with a weight above 0.001, the threshold of compactness."""
        weight = self.linear.weight.relu()
        owner = weight.T > OWNER_THRESHOLD
        return UnitTable(kind="prototype", active=self._active(), owner=owner, pool="max", weight=weight)

    def _active(self) -> Tensor:
        return (self.linear.weight > 0).any(dim=0)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Groups ``stem``, ``backbone_early``, ``backbone``, ``backbone_last``, ``addon``, ``head`` and ``exponent``.

        Without a stem, an add-on or, with ``until``, a last section there are no such groups. The exponent is constant
        unless a phase trains it.
        """
        groups = backbone_sections(self.backbone)
        groups |= {"addon": list(self.addon.parameters()), "head": list(self.linear.parameters())}
        groups |= {"exponent": [self.exponent]}
        return {name: parameters for name, parameters in groups.items() if parameters}

    # -- training ----------------------------------------------------------------------------------------------------
    def setup(self, stage: str) -> None:
        """Ask the data module for two views of every training image.

        Raises:
            ValueError: also if a training batch would be a single image.
        """
        super().setup(stage)
        if stage != "fit":
            return
        datamodule = data_of(self.trainer)
        datamodule.configure_loaders(two_views=True)
        size, processes = datamodule.batch_size, self.trainer.world_size
        images = math.ceil(len(datamodule.dataset("train")) / processes)
        if 1 in (size, images % size):
            raise ValueError(
                f"Expected the training batches of PIPNet to have at least 2 images, but {images} images per process "
                f"in batches of {size} make one of a single image. Choose another `data.batch_size`."
            )
        if size * processes < SMALL_BATCH:
            rank_zero_warn(
                f"PIPNet trains with batches of {size * processes} images. Below {SMALL_BATCH} its tanh loss is known "
                "to end at chance, and accumulating gradients does not help: raise `data.batch_size`."
            )

    def teardown(self, stage: str) -> None:
        """Reset the data module for other models."""
        if stage == "fit":
            data_of(self.trainer).configure_loaders(two_views=False)

    def loss_terms(self) -> dict[str, LossTerm]:
        """Terms over a :func:`paired` batch: the first half of the rows is one view, the second half the other.

        ``alignment_ramp`` is ``alignment`` times the share of the phase done, epoch / epochs with the first epoch as 1.
        """
        return {
            "alignment": lambda output, batch: alignment(*output.maps.chunk(2)),
            "alignment_ramp": lambda output, batch: self._ramp() * alignment(*output.maps.chunk(2)),
            "tanh_uniformity": lambda output, batch: tanh_uniformity(*output.extras["pooled"].chunk(2)),
            "pipnet_class": self._class_loss,
        }

    def _ramp(self) -> float:
        return (self.plan.locate(self.current_epoch)[1] + 1) / self.phase.epochs

    def _class_loss(self, output: ModelOutput, batch: dict[str, Any]) -> Tensor:
        logits = self._class_logits(output.logits)
        if self.task == "multilabel":
            return multilabel_margin(logits, self.targets(batch))
        return cross_entropy(logits, batch["label"], batch.get("class_targets"), self.class_weights)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """One step over both views of every image, in one forward pass."""
        return super().training_step(paired(batch), batch_idx)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """The optimiser's step, then, if the phase trains the head, the proximal step W ← max(W - shrinkage, 0).

        Under a ``OneCycleLR`` the shrinkage follows the head's rate: ``shrinkage`` at the top, and almost 0 at the end,
        where it would otherwise remove weights that are no longer trained. An exponent that is trained stays at least
        1, as in the code of Schlinge et al. 2025.
        """
        super().optimizer_step(epoch, batch_idx, optimizer, *args, **kwargs)
        for group in optimizer.param_groups:
            if group["name"] == "head" and FIT_HEAD not in self.phase.on_enter:
                self._shrink(group["lr"] / group["max_lr"] if "max_lr" in group else 1.0)
            elif group["name"] == "exponent":
                self.exponent.data.clamp_(min=1.0)

    @torch.no_grad()
    def _shrink(self, share: float = 1.0) -> None:
        self.linear.weight.sub_(share * self.shrinkage).clamp_(min=0.0)

    def shrink_head(self, trainer: Trainer) -> dict[str, float]:
        """Action ``shrink_head``: one more proximal step, as the released code takes before epochs 30 and 60."""
        before = (self.linear.weight > 0).sum()
        self._shrink()
        return {"weights_before": float(before), "weights_after": float((self.linear.weight > 0).sum())}

    @torch.no_grad()
    def load_weights(self, weight: Tensor) -> None:
        """Set weights ``(K, U)``, none negative; channels without weight become inactive."""
        self.linear.weight.copy_(weight)

    @torch.no_grad()
    def ignore(self, units: Tensor) -> None:
        """Set the weights of some units ``(U,)`` bool to 0."""
        self.linear.weight.masked_fill_(units, 0.0)

    def on_train_epoch_end(self) -> None:
        """Log the number of classes without any weight, which no gradient can restore."""
        dead = (self.linear.weight <= 0).all(dim=1).sum()
        self.log("train/dead_classes", dead.float(), rank_zero_only=True)

    def configure_optimizers(self) -> Any:
        """The optimiser of the phase; warm restarts apply to the head only, and one cosine to the other groups."""
        restarts = self.phase.scheduler
        if restarts is None or restarts.name != "CosineAnnealingWarmRestarts":
            return super().configure_optimizers()
        optimizer, _ = PhasePlan((replace(self.phase, scheduler=None),)).build(0, self.parameter_groups(), 1)
        stage, steps = [p for p in self.plan.phases if p.scheduler == restarts], self.steps_per_epoch()
        first = next(p for p in stage if p is self.phase or p.goes_on_with(self.phase))
        before = stage[: stage.index(first)]  # phases that share a scheduler continue counting
        done = sum(phase.epochs for phase in before)
        net_done = sum(phase.epochs for phase in before if "backbone" in phase.trainable)
        length, period = sum(phase.epochs for phase in stage), restarts.kwargs["T_0"]
        net_least = self.phase.trainable.get("backbone", 0.0) / 100

        def multiplier(name: str, rate: float) -> Callable[[int], float]:
            least = (restarts.kwargs.get("eta_min", 0.0) if name == "head" else net_least) / (rate or 1.0)
            if name == "head":  # the released code sets its rate after the step
                return lambda step: _cosine(max(done + (step - 1) / steps, 0.0) % period / period, least)
            return lambda step: _cosine((net_done + step / steps) / length, least)

        schedule = LambdaLR(optimizer, [multiplier(name, rate) for name, rate in self.phase.trainable.items()])
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def _cosine(share: float, least: float) -> float:
    """From 1 at share 0 down to ``least`` at share 1."""
    return least + (1 - least) * (1 + math.cos(math.pi * share)) / 2
