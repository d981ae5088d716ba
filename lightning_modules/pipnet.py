"""PIPNet (Nauta et al. 2023, *PIP-Net: Patch-Based Intuitive Prototypes*): a prototype is a softmax channel.

Architecture, losses and phases top to bottom. Training sees two views of every image whose cells correspond; the same
channel must answer in both. Deviations from the released code: BatchNorm keeps its running statistics where its group
is frozen, the moments of AdamW restart with every phase, and both stages have one batch size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, distributed, nn
from torch.distributed.nn.functional import all_reduce
from torch.nn import functional as F
from torch.optim.lr_scheduler import LambdaLR

from lightning_modules.contract import ModelOutput, UnitTable
from lightning_modules.interpretable import InterpretableModule, LossTerm
from lightning_modules.losses import cross_entropy
from lightning_modules.phases import OptimizerSpec, Phase, PhasePlan, SchedulerSpec

BatchNorm = Literal["train", "eval"] | list[str]

PRETRAIN_LOSSES = {"alignment_ramp": 1.0, "tanh_uniformity": 5.0}
TRAIN_LOSSES = {"alignment": 5.0, "tanh_uniformity": 2.0, "pipnet_class": 2.0}
SHRINKAGE = 1e-3  # taken from every head weight after every step
OWNER_THRESHOLD = 1e-3  # a class is explained by the units it weighs more than this
SMALL_BATCH = 32
_ADAMW = OptimizerSpec("AdamW", {"weight_decay": 0.0})
_RESTARTS = SchedulerSpec("CosineAnnealingWarmRestarts", {"T_0": 10, "eta_min": 1e-3})

# where trunk_early, trunk and trunk_last begin among the stages of a trunk (blocks of layer4 counted one by one)
_TRUNK_CUTS = {
    "sketch": (1, 2, 3),
    "mobilenet_v2": (4, 7, 17),
    "resnet18": (5, 6, 7),
    "resnet34": (5, 6, 7),
    "resnet50": (5, 6, 9),
}


def alignment(first: Tensor, second: Tensor) -> Tensor:
    """How differently corresponding cells of two views answer.

    Source: Nauta et al. 2023, alignment loss L_A. ½ Σ over both directions of the mean over cells of
    -log(⟨p, stop(p')⟩ + 1e-12), where stop() cuts the gradient. Without the stop the value is the same and the
    gradient twice as large.

    Args:
        first: ``(B, U, h, w)`` float, softmax over U, of one view.
        second: ``(B, U, h, w)`` float, of the other view.

    Returns:
        Scalar >= 0, lower is better; 0 if every cell answers with the same single unit in both views.

    Example:
        >>> views = torch.tensor([0.5, 0.5]).view(1, 2, 1, 1), torch.tensor([0.25, 0.75]).view(1, 2, 1, 1)
        >>> round(alignment(*views).item(), 4)
        0.6931
    """
    both = -torch.log((first.float() * second.float()).sum(dim=1) + 1e-12).mean()
    return (both + both.detach()) / 2  # each view learns from one direction only: half the gradient of `both`


def tanh_uniformity(first: Tensor, second: Tensor) -> Tensor:
    """How many units no image of the batch shows.

    Source: Nauta et al. 2023, tanh loss L_T. -½ Σ over both views of the mean over units of
    log(tanh(Σ_b s_bu) + 1e-8). The sum over images is not a mean: it saturates for large batches (exp(-L_T) is the
    geometric mean of tanh(Σ); at 1 the term teaches nothing), and it runs over the images of **all processes**, through
    an all-reduce with gradient. After DDP has averaged the gradients they are those of one process with the whole
    batch; sums per process would give others.

    Args:
        first: ``(B, U)`` float in [0, 1], largest value of every unit in one view.
        second: ``(B, U)`` float, of the other view.

    Returns:
        Scalar >= 0, lower is better, the same in every process.

    Example:
        >>> round(tanh_uniformity(torch.tensor([[0.5], [0.5]]), torch.tensor([[1.0], [0.0]])).item(), 4)
        0.2723
    """
    sums = torch.stack([first.float().sum(0), second.float().sum(0)])
    if _processes() > 1:
        sums = all_reduce(sums)  # type: ignore[no-untyped-call]
    return -torch.log(torch.tanh(sums) + 1e-8).mean()


def paired(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch whose first half of rows are the images and whose second half are their other views.

    Args:
        batch: ``image`` and ``second_view`` (B, 3, H, W), ``label`` (B,), and ``class_targets`` (B, K) if there are.

    Returns:
        ``image`` (2B, 3, H, W) and the targets, each twice.

    Raises:
        ValueError: without the second view, or for a single image.
    """
    if "second_view" not in batch:
        raise ValueError(
            f"Expected the training batch of PIPNet to have `second_view`, but got only {sorted(batch)}. Train with "
            "data whose training samples carry two photometric views of one geometry."
        )
    if len(batch["image"]) < 2:
        raise ValueError(
            f"Expected the training batch of PIPNet to have at least 2 images, but got {len(batch['image'])}. Choose "
            "`data.batch_size` so that neither a batch nor the rest at the end of an epoch is a single image."
        )
    views = {"image": torch.cat([batch["image"], batch["second_view"]])}
    return views | {name: torch.cat([batch[name]] * 2) for name in ("label", "class_targets") if name in batch}


def _pretrain(epochs: int, rates: dict[str, float], bn: BatchNorm) -> Phase:
    schedule = SchedulerSpec("CosineAnnealingLR", {"eta_min": 5e-6}, per="step")
    return Phase("pretrain", epochs, rates, PRETRAIN_LOSSES, bn=bn, optimizer=_ADAMW, scheduler=schedule)


def _train(name: str, epochs: int, rates: dict[str, float], bn: BatchNorm, selectable: bool = False) -> Phase:
    return Phase(
        name,
        epochs,
        rates | {"head": 0.05},
        TRAIN_LOSSES,
        bn=bn,
        optimizer=_ADAMW,
        scheduler=_RESTARTS,
        selectable=selectable,
    )


_HEAD = Phase("head", 3, {"head": 0.05}, {"pipnet_class": 2.0}, bn="eval", optimizer=_ADAMW, scheduler=_RESTARTS)
_NET = {"trunk": 5e-4, "trunk_last": 5e-4, "addon": 5e-3}
_SCRATCH = dict.fromkeys(("stem", "trunk_early", "trunk", "trunk_last"), 3e-3) | {"addon": 5e-3}


class PIPNet(InterpretableModule):
    """Patch-based intuitive prototypes network.

    Source: Nauta et al. 2023. Presets: ``original`` (the schedule of the released code), ``quanproto`` (Schlinge et al.
    2025, CUB; set ``score_threshold: 0``) and ``sketch`` (ours, for the from-scratch trunk). A trunk has the groups
    ``stem`` (up to one cell per 4 pixels), ``trunk_early``, ``trunk`` and ``trunk_last``. Phases with the scheduler
    ``CosineAnnealingWarmRestarts`` are one training stage: the restarts (every ``T_0`` epochs) are the head's, the
    other groups follow one cosine over the whole stage down to a hundredth of their rates.

    Args:
        num_features: U, channels of a 1×1 convolution after the trunk; None takes the channels of the trunk, without
            a convolution and without the group ``addon``.
        score_threshold: at inference, scores below it are 0; an image whose logits are all 0 is an abstention.
        kwargs: arguments of :class:`~lightning_modules.interpretable.InterpretableModule`.

    Raises:
        ValueError: if ``num_features`` is below 2, ``score_threshold`` is outside [0, 1), or the trunk has no groups.

    Example:
        >>> model = PIPNet(num_classes=4, image_size=(32, 32)).eval()
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.logits.shape, output.scores.shape, output.maps.shape
        (torch.Size([3, 4]), torch.Size([3, 128]), torch.Size([3, 128, 4, 4]))
        >>> output.extras["abstain"]  # nothing is learnt yet: no unit reaches the threshold
        tensor([True, True, True])
    """

    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": PhasePlan(
            (
                _pretrain(10, _NET, ["trunk", "trunk_last"]),
                _HEAD,
                _train("partial", 7, _NET, ["trunk", "trunk_last"]),
                _train(
                    "full", 50, _NET | {"trunk_early": 5e-4}, ["trunk_early", "trunk", "trunk_last"], selectable=True
                ),
            )
        ),
        "quanproto": PhasePlan(
            (
                Phase(
                    "warm",
                    5,
                    dict.fromkeys(("stem", "trunk_early", "trunk", "trunk_last", "addon"), 1e-5),
                    PRETRAIN_LOSSES,
                ),
                Phase(
                    "joint",
                    100,
                    dict.fromkeys(("stem", "trunk_early", "trunk", "addon"), 3e-5) | {"trunk_last": 2e-4, "head": 0.05},
                    TRAIN_LOSSES,
                    scheduler=SchedulerSpec("StepLR", {"step_size": 35, "gamma": 0.5}),
                    selectable=True,
                ),
            )
        ),
        "sketch": PhasePlan(
            (
                _pretrain(2, _SCRATCH, "train"),
                _train("train", 10, _SCRATCH, "train", selectable=True),
            )
        ),
    }

    def __init__(self, num_features: int | None = None, score_threshold: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if num_features is not None and num_features < 2:
            raise ValueError(f"Expected argument `num_features` to be null or at least 2, but got {num_features}.")
        if not 0 <= score_threshold < 1:
            raise ValueError(f"Expected argument `score_threshold` to be in [0, 1), but got {score_threshold}.")
        self._trunk_name = (kwargs.get("trunk") or {"name": "sketch"})["name"]
        if self._trunk_name not in _TRUNK_CUTS:
            raise ValueError(
                f"Expected argument `trunk.name` of PIPNet to be one of {list(_TRUNK_CUTS)}, but got "
                f"{self._trunk_name!r}."
            )
        units = num_features or self.trunk.out_channels
        self.addon: nn.Module = nn.Identity()
        if num_features is None:
            named = [phase.name for phase in self.plan.phases if "addon" in phase.trainable]
            self.plan = self.plan.override({name: {"trainable": {"addon": None}} for name in named})
        else:
            self.addon = nn.Conv2d(self.trunk.out_channels, units, 1)
            nn.init.xavier_uniform_(self.addon.weight)
        self.linear = nn.Linear(units, self.num_classes, bias=False)
        nn.init.normal_(self.linear.weight, 1.0, 0.1)
        self.score_threshold: Tensor
        self.register_buffer("score_threshold", torch.tensor(score_threshold))

    def forward(self, images: Tensor) -> ModelOutput:
        """Trunk, softmax over channels at every cell, best cell, threshold (in evaluation mode), non-negative head."""
        maps = self.addon(self.trunk(images)).float().softmax(dim=1)
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
        """softmax(log1p(o²)) ``(B, K)`` of logits o ``(B, K)``."""
        return _class_logits(logits).softmax(dim=1)

    def units(self) -> UnitTable:
        """Channels; a class owns those it weighs more than 0.001, the threshold of compactness."""
        weight = self.linear.weight.relu()
        owner = weight.T > OWNER_THRESHOLD
        return UnitTable(kind="prototype", active=self._active(), owner=owner, pool="max", weight=weight)

    def _active(self) -> Tensor:
        return (self.linear.weight > 0).any(dim=0)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Groups ``stem``, ``trunk_early``, ``trunk``, ``trunk_last``, ``addon`` (if there is one) and ``head``."""
        stages: list[nn.Module] = []
        for name, module in self.trunk.net.named_children():
            stages.extend(module.children() if name in ("features", "layer4") else (module,))
        early, middle, last = _TRUNK_CUTS[self._trunk_name]
        members: dict[str, list[nn.Module]] = {
            "stem": stages[:early],
            "trunk_early": stages[early:middle],
            "trunk": stages[middle:last],
            "trunk_last": stages[last:],
            "addon": [self.addon],
            "head": [self.linear],
        }
        groups = {name: [p for module in modules for p in module.parameters()] for name, modules in members.items()}
        return {name: parameters for name, parameters in groups.items() if parameters}

    # -- training ----------------------------------------------------------------------------------------------------
    def loss_terms(self) -> dict[str, LossTerm]:
        """Terms over a :func:`paired` batch: the first half of the rows is one view, the second half the other.

        ``alignment_ramp`` is ``alignment`` times the share of the phase done, epoch / epochs with the first epoch as 1.
        """
        return {
            "alignment": lambda output, batch: alignment(*output.maps.chunk(2)),
            "alignment_ramp": lambda output, batch: self._ramp() * alignment(*output.maps.chunk(2)),
            "tanh_uniformity": lambda output, batch: tanh_uniformity(*output.extras["pooled"].chunk(2)),
            "pipnet_class": lambda output, batch: cross_entropy(
                _class_logits(output.logits), batch["label"], batch.get("class_targets")
            ),
        }

    def _ramp(self) -> float:
        return (self.plan.locate(self.current_epoch)[1] + 1) / self.phase.epochs

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """One step over both views of every image, in one forward pass.

        Raises:
            ValueError: if the batch has no second view or a single image.
        """
        views = paired(batch)
        if self.global_step == batch_idx == 0 and (images := len(batch["image"]) * _processes()) < SMALL_BATCH:
            rank_zero_warn(
                f"PIPNet trains with batches of {images} images. Below {SMALL_BATCH} its tanh loss is known to end at "
                "chance, and accumulating gradients does not help: raise `data.batch_size`."
            )
        return super().training_step(views, batch_idx)

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """The optimiser's step, then, if the phase trains the head, the proximal step W ← max(W - 0.001, 0)."""
        super().optimizer_step(*args, **kwargs)
        if "head" in self.phase.trainable:
            with torch.no_grad():
                self.linear.weight.sub_(SHRINKAGE).clamp_(min=0.0)

    def on_train_epoch_end(self) -> None:
        """Log the number of classes without any weight, to which no gradient leads back."""
        dead = (self.linear.weight <= 0).all(dim=1).sum()
        self.log("train/dead_classes", dead.float(), rank_zero_only=True)

    def configure_optimizers(self) -> Any:
        """As the phase says; in a stage of warm restarts, these for the head and one cosine for the other groups."""
        restarts = self.phase.scheduler
        if restarts is None or restarts.name != "CosineAnnealingWarmRestarts":
            return super().configure_optimizers()
        optimizer, _ = PhasePlan((replace(self.phase, scheduler=None),)).build(0, self.parameter_groups(), 1)
        stage = [phase.epochs if phase.scheduler == restarts else 0 for phase in self.plan.phases]
        done, length, steps = sum(stage[: self.phase_index]), sum(stage), self._steps_per_epoch()
        period, least = restarts.kwargs["T_0"], restarts.kwargs.get("eta_min", 0.0)

        def head_rate(step: int) -> float:
            return _cosine((done + step / steps) % period / period, least / self.phase.trainable["head"])

        def net_rate(step: int) -> float:
            return _cosine((done + step / steps) / length, 0.01)

        rates: list[Callable[[int], float]]
        rates = [head_rate if name == "head" else net_rate for name in self.phase.trainable]
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": LambdaLR(optimizer, rates), "interval": "step"}}


def _class_logits(logits: Tensor) -> Tensor:
    return torch.log1p(logits.float().square())


def _cosine(share: float, least: float) -> float:
    """From 1 at share 0 down to ``least`` at share 1."""
    return least + (1 - least) * (1 + math.cos(math.pi * share)) / 2


def _processes() -> int:
    return distributed.get_world_size() if distributed.is_initialized() else 1
