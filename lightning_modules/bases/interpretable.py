"""The base of all models as a LightningModule: steps, losses by name, optimisers from the phase plan.

A model adds its architecture (``forward``, ``head``), its units (``units``), its parameter groups and its loss terms;
training stages are defined by its :class:`~protometry.lightning_modules.phases.PhasePlan`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, get_args

import torch
from lightning import LightningModule
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from protometry.lightning_modules.backbones import Backbone, BackboneOptions, build_backbone, class_path_of
from protometry.lightning_modules.bases.arguments import NamesArguments
from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.check_contract import check_contract, check_groups
from protometry.lightning_modules.bases.geometry import Geometry
from protometry.lightning_modules.bases.images import check_images
from protometry.lightning_modules.bases.losses import cross_entropy, multilabel_margin
from protometry.lightning_modules.bases.training_inputs import data_of, load_initial_weights
from protometry.lightning_modules.contract import ModelOutput, UnitTable, predicted_classes
from protometry.lightning_modules.phases import Phase, PhaseOverride, PhasePlan, over, plain
from protometry.metrics.primitives.checks import check_at_least
from protometry.metrics.primitives.truth import truth_of
from protometry.run_folder.command_line.messages import did_you_mean

LossTerm = Callable[[ModelOutput, dict[str, Any]], Tensor]
Task = Literal["multiclass", "multilabel"]


class InterpretableModule(LightningModule, metaclass=NamesArguments):
    """Base of all models.

    Args:
        num_classes: K, linked from the data.
        image_size: ``(H, W)`` pixels of the images, linked from the data.
        backbone: the backbone as plain data, or from Python a module from images to features (B, D, h, w).
        preset: name of one of the model's phase plans.
        phases: changes to the preset: phase name -> fields, a new phase, or null to remove one; single fields have
            flags: ``--model.phases.joint.epochs 2``.
        epoch_scale: multiplies all epochs of the preset; epochs in ``phases`` are what they say.
        task: ``"multiclass"``, or ``"multilabel"`` for any number of labels per image, where the plan's
            ``cross_entropy`` becomes ``multilabel_margin``.
        class_weights: weigh the cross-entropy of class c by n / (K n_c) of the training split.
        init_from: a checkpoint of the same model with as many classes, whose weights training starts from.
        num_concepts: L, linked from the data; 0 without concepts.

    Raises:
        ValueError: if there are fewer than 2 classes or 0 concepts, the preset or the task is unknown, or class weights
            are requested for multilabel data.
    """

    card: ClassVar[Card | None] = None
    presets: ClassVar[dict[str, PhasePlan]] = {}
    actions: ClassVar[tuple[str, ...]] = ()
    tasks: ClassVar[tuple[Task, ...]] = get_args(Task)
    groups: ClassVar[dict[str, str]] = {"backbone": "backbone", "head": "linear"}  # parameter group -> submodule
    minus_class_token: ClassVar[bool] = False  # whether features are patches minus the class token of a transformer
    class_weights: Tensor | None
    decision_threshold: Tensor | None

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        num_classes: int,
        image_size: tuple[int, int],
        backbone: BackboneOptions | Any | None = None,  # an nn.Module; the help would list all modules there are
        preset: str = "sketch",
        phases: dict[str, PhaseOverride | None] | None = None,
        epoch_scale: float = 1.0,
        task: Task = "multiclass",
        class_weights: bool = False,
        num_concepts: int = 0,
        init_from: str | None = None,
    ) -> None:
        super().__init__()
        self.save_hyperparameters(logger=False, ignore=["backbone"] if isinstance(backbone, nn.Module) else None)
        self.hparams["phases"] = phases and plain(phases)  # checkpoints hold plain types only
        if isinstance(backbone, nn.Module):
            self.hparams["backbone"] = {"class_path": class_path_of(backbone)}
        if not (isinstance(image_size, list | tuple) and [type(side) for side in image_size] == [int, int]):
            raise ValueError(
                f"Expected argument `image_size` to be the height and the width in pixels, but got {image_size!r}. "
                "Pass two whole numbers, such as (224, 224)."
            )
        check_at_least("num_classes", num_classes, 2)
        check_at_least("num_concepts", num_concepts, 0)
        if preset not in self.presets:
            near = did_you_mean(str(preset), self.presets)  # a config may say null
            raise ValueError(
                f"Expected argument `preset` to be one of {sorted(self.presets)}, but got {preset!r}.{near}"
            )
        if task not in self.tasks:
            raise ValueError(
                f"Expected argument `task` of {type(self).__name__} to be one of {self.tasks}, but got {task!r}."
            )
        if not 0 < epoch_scale < math.inf:
            raise ValueError(f"Expected argument `epoch_scale` to be above 0 and finite, but got {epoch_scale}.")
        multilabel = task == "multilabel"
        if multilabel and class_weights:
            raise ValueError(
                "Expected argument `class_weights` to be false with `task: multilabel`, but got true; they weigh the "
                "cross-entropy of single labels only."
            )
        self.num_classes, self.num_concepts = num_classes, num_concepts
        self.image_size = (image_size[0], image_size[1])
        options = {"name": "sketch"} if backbone is None else backbone
        self.backbone: Backbone = build_backbone(options, self.image_size, self.minus_class_token)
        self.backbone.geometry(self.image_size)  # refuses images that do not suit it
        plan = self.presets[preset]
        plan = plan if epoch_scale == 1.0 else plan.scaled(epoch_scale)
        plan = plan.override(phases or {}, absent=self._of_presets())
        self.plan = _with_margin_loss(plan) if multilabel else plan
        self.phase_index = 0
        self.is_scheduled = False  # whether a phase was entered
        self._has_looked = False  # at the values of images
        self.init_from = init_from
        self.task = task
        # buffers, which a checkpoint needs to train and decide as before; None if unused
        self.register_buffer("class_weights", torch.ones(num_classes) if class_weights else None)
        self.register_buffer("decision_threshold", torch.zeros(()) if multilabel else None)

    @classmethod
    def merged_phases(cls, earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
        """Settings of ``phases`` over earlier ones, as configs and flags give them one after the other."""
        return over(earlier, later, cls._of_presets())

    @classmethod
    def _of_presets(cls) -> set[str]:
        return {name for plan in cls.presets.values() for name in plan.removable}

    # -- the contract ------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Process images as :meth:`forward` does, unless :func:`.check_images` refuses them."""
        self._has_looked = check_images(self, args[0] if args else kwargs.get("images"), self._has_looked)
        return super().__call__(*args, **kwargs)

    @abstractmethod
    def forward(self, images: Tensor) -> ModelOutput:
        """Process images ``(B, 3, H, W)``, RGB in [0, 1]."""

    @abstractmethod
    def head(self, scores: Tensor) -> Tensor:
        """Map scores ``(B, U)`` to logits ``(B, K)``."""

    @abstractmethod
    def units(self) -> UnitTable:
        """What the units are."""

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every parameter, once, by group name; by default those of ``groups``."""
        return {name: list(self.get_submodule(module).parameters()) for name, module in self.groups.items()}

    def contributions(self, output: ModelOutput, classes: Tensor) -> Tensor:
        """``(B, U)`` contributions of the units to the logit of one class per image; rows sum to logit - head(0).

        Where the head reads a ``context``, too, to the logit less that of scores and a context of 0.
        """
        weight = self.units().weight
        if weight is None:
            raise TypeError(f"{type(self).__name__} has no weight matrix and must define `contributions` itself.")
        return weight[classes] * output.scores

    def probabilities(self, logits: Tensor) -> Tensor:
        """Class probabilities ``(B, K)`` of logits ``(B, K)``: softmax, or sigmoid if multilabel."""
        return logits.sigmoid() if self.task == "multilabel" else logits.softmax(dim=1)

    @property
    def geometry(self) -> Geometry:
        """Where a latent cell lies in the image."""
        return self.backbone.geometry(self.image_size)

    @property
    def input_std(self) -> Tensor:
        """``(3, 1, 1)`` standard deviations of the input normalisation."""
        return self.backbone.normalize.std

    def phases(self) -> PhasePlan:
        """What is trained when."""
        return self.plan

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights.

        Raises:
            ValueError: if they belong to another model, with all names that do not fit.
        """
        try:
            return super().load_state_dict(state_dict, strict, assign)
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise ValueError(f"Expected weights of {type(self).__name__}, but got others: {reason}") from error

    # -- labels ------------------------------------------------------------------------------------------------------
    def setup(self, stage: str) -> None:
        """Refuse data of the other task, and compute the class weights of the training split.

        Raises:
            ValueError: if only one of data and model is multilabel, or class weights are requested and the data have
                none.
        """
        if stage == "predict":  # which takes plain loaders, too
            return
        datamodule = data_of(self.trainer)
        split = "train" if stage == "fit" else datamodule.loading.split
        multilabel = datamodule.capabilities(split).multi_label is True
        if multilabel != (self.task == "multilabel"):
            fitting = "multilabel" if multilabel else "multiclass"
            way = f"Pass `--model.task {fitting}`, or choose" if fitting in self.tasks else "Choose"
            raise ValueError(
                f"Expected {self.task} data, because {type(self).__name__} has `task: {self.task}`, but "
                f"{type(datamodule).__name__} is {fitting}. {way} another task of the data with `--data.task`."
            )
        if self.class_weights is not None and stage == "fit":
            weights = getattr(datamodule, "class_weights", None)
            if weights is None or weights.shape != (self.num_classes,) or not weights.isfinite().all():
                raise ValueError(
                    f"Expected {type(datamodule).__name__}.class_weights to hold {self.num_classes} finite numbers, "
                    f"but got {weights}. Set `model.init_args.class_weights` to false."
                )
            self.class_weights.copy_(weights)

    def targets(self, batch: dict[str, Any]) -> Tensor:
        """The targets of a batch: ``(B,)`` int64, or if multilabel as from :func:`.truth_of` of ``labels``."""
        if self.task == "multilabel":
            return truth_of(batch, "labels")
        targets: Tensor = batch["label"]
        return targets

    def is_correct(self, logits: Tensor, targets: Tensor) -> Tensor:
        """``(B,)`` bool: the largest logit is the label's, or exactly the labels' logits exceed the threshold.

        Labels that are unknown (NaN) do not count.
        """
        if self.decision_threshold is None:
            return logits.argmax(dim=1) == targets
        return (((logits > self.decision_threshold) == targets) | targets.isnan()).all(dim=1)

    # -- losses and steps --------------------------------------------------------------------------------------------
    def loss_terms(self) -> dict[str, LossTerm]:
        """Loss terms by the names phase plans use; each takes the output and the batch."""
        return {
            "cross_entropy": lambda output, batch: cross_entropy(
                output.logits, batch["label"], batch.get("class_targets"), self.class_weights
            ),
            "multilabel_margin": lambda output, batch: multilabel_margin(output.logits, self.targets(batch)),
        }

    def decide(self, scores: Tensor) -> ModelOutput:
        """The output for images with known ``(B, U)`` scores only; maps have no cells."""
        return ModelOutput(self.head(scores), scores, scores[:, :, None, None][..., :0])

    def reads_scores_only(self) -> bool:
        """Whether steps of the phase also accept ``scores`` for an ``image``; false for models with their own steps."""
        return self.phase.reads_scores_only and type(self).training_step is InterpretableModule.training_step

    def on_fit_start(self) -> None:
        """Refuse a model that is not complete, and load the weights that training starts from, unless it is resumed."""
        if type(self).__module__.startswith("protometry."):
            check_groups(self)
        else:
            check_contract(self)
        if self.init_from and not self.trainer.ckpt_path:
            load_initial_weights(self, self.init_from)

    def on_train_start(self) -> None:
        """Refuse a training that nothing takes through the phases."""
        if not self.is_scheduled:
            raise ValueError(
                "Expected `PhaseSchedule()` to be the first callback of the trainer, because models are trained in "
                f"phases ({', '.join(phase.name for phase in self.plan.phases)}), but there is none."
            )

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """One step under the loss coefficients of the phase, on images or on their scores."""
        output: ModelOutput = self.decide(batch["scores"]) if "scores" in batch else self(batch["image"])
        terms = self.loss_terms()
        values = {name: terms[name](output, batch) for name in self.phase.losses}
        loss = torch.stack([coefficient * values[name] for name, coefficient in self.phase.losses.items()]).sum()
        targets, size = self.targets(batch), len(output.logits)
        judged = (~targets.isnan()).view(size, -1).any(dim=1)  # not an image without any known label
        hits = self.is_correct(output.logits.detach(), targets) & judged
        logged = {"loss": loss.detach(), "accuracy": hits.sum() / judged.sum().clamp_min(1)}
        for name, value in (logged | {name: value.detach() for name, value in values.items()}).items():
            images: Any = judged.sum() if name == "accuracy" else size
            in_bar = name in logged
            self.log(
                f"train/{name}", value, on_step=False, on_epoch=True, prog_bar=in_bar, batch_size=images, sync_dist=True
            )
        return loss

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Nothing: the evaluation callback runs the model on the batch, in chunks that make results exact."""

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """As in validation."""

    def on_test_end(self) -> None:
        """Warn where nothing was measured."""
        if not self.trainer.callback_metrics:
            rank_zero_warn("Nothing was measured: add `Interpretability()` to the callbacks of the trainer.")

    def predict_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """The predictions for a batch, for ``Trainer.predict`` with a data module or with plain loaders.

        Args:
            batch: with an ``image`` (B, 3, H, W) in [0, 1], a pair of images and labels, or images alone.
            batch_idx: its number.

        Returns:
            ``prediction`` as from :func:`~protometry.lightning_modules.contract.predicted_classes`, ``probabilities``
            and ``logits`` ``(B, K)``, ``scores`` ``(B, U)``, and, if the batch has them, ``sample_id`` (B strings),
            ``label`` (B,) and ``labels`` (B, K).
        """
        batch = [batch] if isinstance(batch, Tensor) else batch
        batch = batch if isinstance(batch, dict) else dict(zip(("image", "label"), batch, strict=False))
        output: ModelOutput = self(batch["image"])
        known = {name: batch[name] for name in ("sample_id", "label", "labels") if name in batch}
        return known | {
            "prediction": predicted_classes(output.logits, "abstain" in output.extras, self.decision_threshold),
            "probabilities": self.probabilities(output.logits),
            "logits": output.logits,
            "scores": output.scores,
        }

    # -- phases ------------------------------------------------------------------------------------------------------
    @property
    def phase(self) -> Phase:
        """The current phase."""
        return self.plan.phases[self.phase_index]

    def enter_phase(self, index: int) -> None:
        """Freeze and unfreeze parameters and set every module's mode for one phase."""
        self.phase_index, self.is_scheduled = index, True
        for name, parameters in self.parameter_groups().items():
            for parameter in parameters:
                parameter.requires_grad_(name in self.phase.trainable)
        self.apply_modes()

    def end_phase(self, index: int, epochs: int) -> None:
        """End a phase earlier than planned."""
        self.plan = self.plan.ended(index, epochs)

    def apply_modes(self) -> None:
        """Train mode, except for BatchNorm layers that keep their running statistics in this phase."""
        self.train()
        if self.phase.bn == "train":
            return
        moving = [] if self.phase.bn == "eval" else self.phase.bn
        groups = self.parameter_groups()
        moving_parameters = {id(parameter) for name in moving for parameter in groups[name]}
        for module in self.modules():
            if isinstance(module, _BatchNorm) and id(module.weight) not in moving_parameters:
                module.eval()

    def configure_optimizers(self) -> Any:
        """Optimiser and scheduler of the stored phase; never a function of ``trainer.current_epoch``."""
        per_step = self.phase.scheduler is not None and self.phase.scheduler.per == "step"
        steps = self.steps_per_epoch() if per_step else 1
        optimizer, scheduler = self.plan.build(self.phase_index, self.parameter_groups(), steps)
        if scheduler is None:
            return optimizer
        interval = "step" if per_step else "epoch"
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": interval}}

    def steps_per_epoch(self) -> int:
        """Optimiser steps; counted here since ``fit_loop.setup_data`` would start workers before a resume is done."""
        batches = len(data_of(self.trainer).train_dataloader())
        limit = self.trainer.limit_train_batches
        batches = int(batches * limit) if isinstance(limit, float) else min(batches, limit)
        return math.ceil(batches / self.trainer.accumulate_grad_batches)


def _with_margin_loss(plan: PhasePlan) -> PhasePlan:
    """The plan for multilabel data."""
    names = {"cross_entropy": "multilabel_margin"}
    return PhasePlan(
        tuple(
            replace(phase, losses={names.get(name, name): value for name, value in phase.losses.items()})
            for phase in plan.phases
        )
    )
