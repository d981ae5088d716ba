"""The evaluation engine: one shared forward per batch feeds every requested metric.

Metrics declare the fields they read (``reads``) and the view they read them from
(:mod:`protometry.callbacks.evaluation.views`); a view computes each field once per batch, and only if some metric asks
for it. What cannot be computed on this model or data is listed with the reason, never replaced by a number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, cast, get_args

from lightning import Callback, LightningModule, Trainer
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import distributed

from protometry.callbacks.evaluation.concept_directions import concept_directions
from protometry.callbacks.evaluation.evaluation_pass import Evaluation, EvaluationPass, attacks, whole_split
from protometry.callbacks.evaluation.exchanged_units import exchange_units
from protometry.callbacks.evaluation.funnybirds.interface import Interface, reads_parts, refuse_interface
from protometry.callbacks.evaluation.funnybirds.protocol import FunnyBirdsProtocol
from protometry.callbacks.evaluation.gather_facts import (
    gather_facts,
    left_out_concepts,
    object_annotation,
    refuse_repeated,
)
from protometry.callbacks.evaluation.named_units import BY_AREA, BY_MODEL, needs_names, units_with_concepts
from protometry.callbacks.evaluation.sparse_heads import solve_sparse_heads
from protometry.callbacks.evaluation.threshold import fit_threshold, threshold_of
from protometry.callbacks.evaluation.unit_maps import UnitMaps
from protometry.callbacks.forward.images_per_forward import default_budget, images_per_forward
from protometry.callbacks.forward.observer import Observer
from protometry.callbacks.forward.walk import walk
from protometry.callbacks.trainer_parts import datamodule_of, model_of, phase_of
from protometry.datamodules.sample import sample_key
from protometry.explanations import Explainer, choose_explainer
from protometry.explanations.choice import description
from protometry.metrics.functional import Variant
from protometry.metrics.suite import ENTRIES, build, resolve
from protometry.run_folder.command_line.messages import program

ContinuityView = Literal["paper", "quanproto", "identity"]
TOP_K = 5  # the default, also for models of fewer units
ATTACKED_IMAGES = 1000  # for an attack on more of them takes longer than all other metrics together
SEEDS = 2**32  # as many as there are seeds for a run


class Interpretability(Callback):
    """Computes metric suites in validation and test.

    For multilabel data, every epoch of ``fit`` also fits the model's decision threshold, so that a checkpoint holds the
    one that belongs to its weights; ``validate`` and ``test`` decide by the stored one.

    Args:
        suite: for ``test``: "quanproto", "all", families or single keys, as a list or separated by commas.
        validation_suite: the same for validation, in addition to the general metrics of every epoch.
        every_n_epochs: how often ``validation_suite`` is computed within ``fit``; a second view of the images, if some
            metric reads it, is made in every validation.
        explainer: makes the saliency; by default the one that ``choose_explainer`` finds for the model.
        top_k: units looked at per image; all, if the model has fewer.
        variant: ``"paper"``, or ``"quanproto"`` for what the published tables of Schlinge et al. (2025) used.
        noise: standard deviation of the completeness noise; 0 to check that nothing changes then.
        view: the continuity view; by default the one ``variant`` uses, ``"identity"`` to check that nothing changes
            then.
        seed: of all perturbations.
        memory_budget: GiB for the activations of one forward and their explanation; sets the images per forward. None
            for the default of the device (:mod:`protometry.callbacks.forward.images_per_forward`).
        attacked: number of images, drawn by class, for the misalignment attack of 40 steps and for deletion,
            insertion, cell_alone and gradient_inside; None for all.
        interface: how metrics that take parts away read explanations: ``"ssm"`` (the default), summed similarity maps;
            ``"bb"``, boxes; ``"bb_reference"``, boxes with the errors of the code as released, ``"bb_corrected"``, with
            those it still has; ``"attribution"``, the maps of ``explainer``.

    Raises:
        ValueError: for an unknown family or key, a suite without any, or a number out of range; before a pass, if no
            metric applies, sample ids repeat, or the explainer does not support the model; during it, for non-finite
            model outputs, with the sample ids.
    """

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        suite: list[str] | str | None = None,
        validation_suite: list[str] | str | None = None,
        every_n_epochs: int = 5,
        explainer: Explainer | None = None,
        top_k: int = TOP_K,
        variant: Variant = "paper",
        noise: float = 0.05,
        view: str | None = None,
        seed: int = 0,
        memory_budget: float | None = None,
        attacked: int | None = ATTACKED_IMAGES,
        interface: Interface | None = None,
    ) -> None:
        for name, value in (("every_n_epochs", every_n_epochs), ("top_k", top_k), ("attacked", attacked)):
            if value is not None and value < 1:
                raise ValueError(f"Expected argument `{name}` to be at least 1, but got {value}.")
        if view not in (None, *get_args(ContinuityView)):
            raise ValueError(
                f"Expected argument `view` to be one of {get_args(ContinuityView)} or null, but got {view!r}."
            )
        if not 0 <= seed < SEEDS:
            raise ValueError(f"Expected argument `seed` to be at least 0 and below 2^32, but got {seed}.")
        if not 0 <= noise <= 1 or (memory_budget is not None and memory_budget <= 0):
            raise ValueError(
                "Expected arguments `noise` to be from 0 to 1 and `memory_budget` to be above 0 GiB, but got "
                f"{noise} and {memory_budget}."
            )
        self.requested = list(dict.fromkeys(_names("quanproto" if suite is None else suite)))
        self.suite = resolve(self.requested)
        if not self.suite:
            raise ValueError("Expected argument `suite` to name at least one metric, but got none.")
        self.every_epoch = resolve(["general"])
        self.now_and_then = resolve([*self.every_epoch, *_names(validation_suite or [])])
        if every_n_epochs == 1:
            self.every_epoch = self.now_and_then
        self.every_n_epochs = every_n_epochs
        self.explainer = explainer
        self.top_k = top_k
        self.variant: Variant = variant
        self.noise = noise
        self.view = view if view is not None else variant
        self.seed = seed
        self.memory_budget = memory_budget
        self.attacked = attacked
        refuse_interface(interface, explainer, reads_parts([*self.suite, *self.now_and_then]))
        self.interface: Interface = interface or "ssm"
        self.keep_scores = False  # whether a test keeps the unit scores of every image
        self.maps: UnitMaps | None = None  # writes the maps of a test
        self.foreign: tuple[str, Any] | None = None  # name and data module of the photos that units are exchanged with
        self.evaluation = Evaluation()
        self.this_pass: EvaluationPass
        self._announced: set[str] = set()
        self._fitted_at = -1  # step of the last fit of the decision threshold

    @property
    def settings(self) -> dict[str, Any]:
        """All settings that decide the numbers, apart from suite, split and seed, as plain data."""
        return {
            "asked_explainer": None if self.explainer is None else description(self.explainer),
            "variant": self.variant,
            "top_k": self.top_k,
            "noise": self.noise,
            "view": self.view,
            "memory_budget": self.memory_budget,
            "interface": self.interface if reads_parts(self.suite) else None,
            "foreign": self.foreign[0] if self.foreign else None,
        }

    # -- one pass ----------------------------------------------------------------------------------------------------
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Ask the data module for the continuity view if some metric reads it, before loaders are made."""
        units = len(model_of(pl_module).units().active)
        if self.top_k > max(units, TOP_K):
            raise ValueError(
                f"Expected argument `top_k` to be at most {units}, the units of the model, but got {self.top_k}."
            )
        keys = self.suite if stage == "test" else self.now_and_then
        datamodule = datamodule_of(trainer)
        wanted = any(ENTRIES[key].view == "continuity" for key in keys)
        datamodule.configure_loaders(continuity=self.view if wanted else None, continuity_seed=self.seed)
        self._fitted_at = -1
        if stage == "fit" and threshold_of(pl_module) is not None and not datamodule.has_validation:
            rank_zero_warn(
                "There is no validation split to fit the decision threshold on: it stays 0, and the labels of an image "
                "are those with a positive logit."
            )

    def _fit_threshold(self, trainer: Trainer, module: LightningModule) -> None:
        """Once per epoch of training, at its last step."""
        datamodule = datamodule_of(trainer)
        if threshold_of(module) is not None and datamodule.has_validation and self._fitted_at != trainer.global_step:
            fit_threshold(module, datamodule, self.memory_budget)
            self._fitted_at = trainer.global_step

    def decide(self, module: LightningModule, datamodule: Any, split: str, keys: list[str]) -> dict[str, str]:
        """Build ``this_pass`` of the metrics that apply.

        Returns:
            Key of each metric that does not apply, and why.
        """
        refuse_repeated(datamodule, split)
        model = model_of(module)
        chunk, output = images_per_forward(module, datamodule.image_size, module.device, self.memory_budget)
        explainer = choose_explainer(self.explainer, model)
        parts = FunnyBirdsProtocol.of(self.interface, explainer, datamodule, split)
        facts = gather_facts(datamodule, split, model, output, explainer, self.variant)
        facts = replace(facts, class_unexplained=parts.explainer.supports(model), **parts.facts(facts.num_classes))
        if needs_names(keys, facts):
            facts = units_with_concepts(facts, module, datamodule, self.memory_budget)
        metrics, skipped = build(keys, facts)
        observer = Observer(model, explainer, chunk, self.top_k, parts.explainer)
        self.this_pass = EvaluationPass(metrics, facts, observer, self.seed, self.noise, parts)
        return skipped

    def _start(self, trainer: Trainer, module: LightningModule, split: str, keys: list[str]) -> None:
        datamodule = datamodule_of(trainer)
        skipped = self.decide(module, datamodule, split, keys)
        if not self.this_pass.metrics:
            reasons = "; ".join(dict.fromkeys("; ".join(skipped.values()).split("; ")))
            raise ValueError(
                "Expected argument `suite` to name a metric that applies to this model and data, but none of "
                f"{', '.join(self.requested)} does: {reasons}. `{program('evaluate')} metrics` lists those that do."
            )
        facts, observer = self.this_pass.setting.facts, self.this_pass.observer
        explainer, parts = observer.explainer, cast(FunnyBirdsProtocol, self.this_pass.setting.protocol)
        if self.this_pass.reads_training:
            training = datamodule.projection_dataloader()
            for batch, outputs in walk(module, training, datamodule.image_size, self.memory_budget):
                self.this_pass.learn(batch, outputs)
        if self.this_pass.exchanges_units:
            foreign = self.foreign[1] if self.foreign else None
            exchange = exchange_units(module, datamodule, self.seed, observer.chunk, foreign)
            self.this_pass.setting = replace(self.this_pass.setting, exchange=exchange)
        if self.this_pass.reads_sparse_heads:
            fields = self.this_pass.setting.fields
            heads = solve_sparse_heads(facts, module, datamodule, self.memory_budget, fields)
            self.this_pass.setting = replace(self.this_pass.setting, sparse_heads=heads)
        if self.this_pass.reads_directions:
            directions = concept_directions(module, datamodule, self.memory_budget, self.seed)
            self.this_pass.setting = replace(self.this_pass.setting, directions=directions)
        if self.maps is not None:
            shown = cast(Any, datamodule).shown(split, datamodule.loading.limit).sample_ids
            self.maps.start([sample_key(name) for name in shown], facts.active, observer.model.geometry)
            self.this_pass.setting = replace(self.this_pass.setting, write_maps=True)
        by_class = self.this_pass.setting.explain_classes
        explained = self.this_pass.setting.explain or (by_class and parts.explainer is explainer)
        self.evaluation = Evaluation(skipped=skipped, explainer=explainer.key if explained else None)
        self.evaluation.protocol = {
            **self.settings,
            "memory_budget": self.memory_budget or default_budget(module.device.type),
            "explained_by": description(explainer) if explained else None,
            "object": object_annotation(self.this_pass.metrics, datamodule, split),
            "units_per_image": min(self.top_k, int(facts.active.sum())),
            "images_per_forward": observer.chunk,
            "device": module.device.type,
        }
        self.this_pass.attacked = self._attacked_ids(datamodule, split)
        if self.this_pass.attacked is not None:
            self.evaluation.protocol["attacked"] = self.attacked
        if whole := self._whole_split(datamodule, split):
            self.evaluation.protocol["whole_split"] = whole
        if by_class:
            self.evaluation.protocol |= parts.protocol_entries(datamodule.image_size[0])
        if facts.unit_concepts is not None:
            self.evaluation.protocol["units_named_by"] = BY_AREA if facts.units.concepts is None else BY_MODEL
        if left_out := left_out_concepts(datamodule, observer.model.units()):
            self.evaluation.protocol["concepts_left_out"] = left_out
        if caveats := observer.model.geometry.caveats():
            self.evaluation.protocol["cells"] = caveats
        if facts.multi_label:
            self.evaluation.protocol["decision_threshold"] = facts.threshold

    def _attacked_ids(self, datamodule: Any, split: str) -> frozenset[str] | None:
        """The images that are attacked, None for all."""
        if self.attacked is None or not attacks(self.this_pass.metrics):
            return None
        if len(datamodule.shown(split, datamodule.loading.limit)) <= self.attacked:
            return None
        return frozenset(datamodule.shown(split, self.attacked).sample_ids)

    def _whole_split(self, datamodule: Any, split: str) -> list[str]:
        """The metrics that are measured on more images than the limit of the test asks for."""
        whole = whole_split(self.this_pass.metrics)
        return whole if whole and split == datamodule.loading.split and datamodule.loading.limit is not None else []

    def _show_others(self, trainer: Trainer, module: LightningModule) -> None:
        """Show the images that the limit leaves out to the metrics that need the whole split."""
        datamodule, keys = datamodule_of(trainer), self.evaluation.protocol["whole_split"]
        if all(ENTRIES[key].view != "continuity" for key in keys):
            datamodule.configure_loaders(continuity=None)
        loader = datamodule.left_out_dataloader()
        if count := len(cast(Any, loader.dataset)):
            split = datamodule.loading.split
            rank_zero_info(f"{', '.join(keys)}: measured on {count} more images, all of the {split} split.")
        for batch in loader:
            self.this_pass.update_others(move_data_to_device(batch, module.device))

    def _end(self, trainer: Trainer, module: LightningModule, prefix: str) -> None:
        entries = dict(self.this_pass.entries())
        directions = {prefix + key: entry["higher_is_better"] for key, entry in entries.items()}
        for logger in trainer.loggers:
            if hasattr(logger, "define_results"):
                logger.define_results({k: v for k, v in directions.items() if k not in self._announced})
        self._announced |= set(directions)
        for key, entry in entries.items():
            self.evaluation.metrics[key] = entry
            module.log(prefix + key, entry["value"], sync_dist=True, prog_bar=key == "general/accuracy")
        for logger in trainer.loggers:
            if hasattr(logger, "sum_up") and trainer.state.fn == "fit" and _selectable(trainer, module):
                logger.sum_up({prefix + key: self.evaluation.metrics[key]["value"] for key in self.this_pass.metrics})

    # -- hooks -------------------------------------------------------------------------------------------------------
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget what earlier epochs measured: nothing is printed, drawn or compared as a value of this epoch."""
        trainer.callback_metrics.clear()
        self.evaluation = Evaluation()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the validation metrics."""
        fitting = trainer.state.fn == "fit"
        if fitting:
            self._fit_threshold(trainer, pl_module)
        whole = not fitting or (trainer.current_epoch + 1) % self.every_n_epochs == 0
        self._start(trainer, pl_module, "val", self.now_and_then if whole else self.every_epoch)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit the decision threshold where no validation has: before checkpoints are written."""
        self._fit_threshold(trainer, pl_module)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the metrics of the suite."""
        split = datamodule_of(trainer).loading.split
        if distributed.is_initialized():
            datamodule_of(trainer).check_processes(split)
        self._start(trainer, pl_module, split, self.suite)

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Feed one batch."""
        self.this_pass.update(args[1])

    def on_test_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Feed one batch."""
        self.this_pass.update(args[1], keep_images=True, keep_scores=self.keep_scores, maps=self.maps)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log under ``val/``."""
        self._end(trainer, pl_module, "val/")

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log under the result keys themselves."""
        if "whole_split" in self.evaluation.protocol:
            self._show_others(trainer, pl_module)
        self._end(trainer, pl_module, "")
        tied = self.this_pass.ties.summary()
        if tied["value"] > 0:
            rank_zero_warn(
                f"On {tied['value']:.1%} of the images the two largest logits are equal: the first of these classes "
                "counts as the prediction (`general/ties`)."
            )
        images, predictions, signed = self.this_pass.gather_images()
        self.evaluation.images, self.evaluation.predictions = images, predictions
        self.evaluation.protocol["signed_maps"] = signed
        self.evaluation.scores = self.this_pass.gather_scores()
        self.evaluation.items = self.this_pass.items()


def _selectable(trainer: Trainer, module: LightningModule) -> bool:
    """Whether the phase under way leaves the model in a form that may be selected."""
    return phase_of(trainer, module).selectable and not trainer.sanity_checking


def _names(suite: list[str] | str) -> list[str]:
    return [name.strip() for name in suite.split(",")] if isinstance(suite, str) else suite
