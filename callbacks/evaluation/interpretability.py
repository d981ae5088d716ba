"""The evaluation engine: one shared forward per batch feeds every requested metric.

Metrics declare the fields they read (``reads``) and the view they read them from; the engine makes one record per
batch (:mod:`callbacks.evaluation.views`) that computes each field once, and only if some metric asks for it. What
cannot be computed
on this model or data is listed with the reason, never replaced by a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, distributed

from callbacks.evaluation.facts import choose_explainer, description, gather_facts, refuse_repeated
from callbacks.evaluation.observer import Observer, probe
from callbacks.evaluation.threshold import fit_threshold, threshold_of
from callbacks.evaluation.views import VIEWS, Clean, Setting, owned_units
from callbacks.phases.pruning import Prunable
from explanations import Explainer
from lightning_modules.contract import InterpretableModel
from metrics import ImageMean, ModelValue, SpatialMisalignment
from metrics.functional import Variant
from metrics.entries import ENTRIES, AnyMetric
from metrics.suite import build, resolve

View = Literal["paper", "quanproto", "identity"]
SEEDS = 2**32  # as many as there are seeds for a run
_ALL_MAPS = ("owned_peaks", "unit_boxes")  # fields that need the maps of all units


@dataclass
class Evaluation:
    """The results of one pass over a split.

    Args:
        metrics: key -> value, ci95, n, skipped, unit, higher_is_better, and what else a metric says of itself.
        skipped: key -> why it was not computed.
        explainer: key of the explainer, or None if nothing was explained.
        protocol: how the numbers were made.
        images: sample key -> key -> value of that image; 8 bytes per image and metric.
    """

    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    explainer: str | None = None
    protocol: dict[str, Any] = field(default_factory=dict)
    images: dict[int, dict[str, float]] = field(default_factory=dict)


class Interpretability(Callback):
    """Computes metric suites in validation and test.

    Where images have several labels, every epoch of ``fit`` also fits the model's decision threshold, so that a
    checkpoint holds the one that belongs to its weights; ``validate`` and ``test`` decide by the stored one.

    Args:
        suite: for ``test``: "quanproto", "all", families or single keys.
        validation_suite: the same for validation, beside the general metrics of every epoch.
        every_n_epochs: how often ``validation_suite`` is computed within ``fit``; a second view of the images, if some
            metric reads it, is made in every validation.
        explainer: makes the saliency; by default PRP where it supports the model, else upsampled maps.
        top_k: units looked at per image.
        variant: ``"paper"``, or ``"quanproto"`` for what the published tables of Schlinge et al. (2025) used.
        noise: standard deviation of the completeness noise; 0 to check that nothing then changes.
        view: the continuity view; that of ``variant`` by default, ``"identity"`` to check that nothing then changes.
        seed: of all perturbations.
        memory_budget: GiB for the activations of one forward and their explanation; sets the images per forward.

    Raises:
        ValueError: for an unknown family or key, or a number out of range; during a pass, for non-finite model outputs,
            with the sample ids, for repeated sample ids, and for an explainer that does not support the model.
    """

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        suite: list[str] | None = None,
        validation_suite: list[str] | None = None,
        every_n_epochs: int = 5,
        explainer: Explainer | None = None,
        top_k: int = 5,
        variant: Variant = "paper",
        noise: float = 0.05,
        view: str | None = None,
        seed: int = 0,
        memory_budget: float = 1.0,
    ) -> None:
        for name, value in (("every_n_epochs", every_n_epochs), ("top_k", top_k)):
            if value < 1:
                raise ValueError(f"Expected argument `{name}` to be at least 1, but got {value}.")
        if view not in (None, *get_args(View)):
            raise ValueError(f"Expected argument `view` to be one of {get_args(View)} or null, but got {view!r}.")
        if not 0 <= seed < SEEDS:
            raise ValueError(f"Expected argument `seed` to be at least 0 and below 2^32, but got {seed}.")
        if noise < 0 or memory_budget <= 0:
            raise ValueError(
                "Expected arguments `noise` to be at least 0 and `memory_budget` to be above 0 GiB, but got "
                f"{noise} and {memory_budget}."
            )
        self.requested = suite if suite is not None else ["quanproto"]
        self.suite = resolve(self.requested)
        self.every_epoch = resolve(["general"])
        self.now_and_then = resolve([*self.every_epoch, *(validation_suite or [])])
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
        self.evaluation = Evaluation()
        self._metrics: dict[str, AnyMetric] = {}
        self._announced: set[str] = set()
        self._fitted_at = -1  # step of the last fit of the decision threshold

    @property
    def settings(self) -> dict[str, Any]:
        """What else than suite, split and seed decides the numbers, as plain data."""
        return {
            "asked_explainer": None if self.explainer is None else description(self.explainer),
            "variant": self.variant,
            "top_k": self.top_k,
            "noise": self.noise,
            "view": self.view,
            "memory_budget": self.memory_budget,
        }

    # -- one pass ----------------------------------------------------------------------------------------------------
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Ask the data module for the continuity view if some metric reads it, before loaders are made."""
        keys = self.suite if stage == "test" else self.now_and_then
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
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
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        if threshold_of(module) is not None and datamodule.has_validation and self._fitted_at != trainer.global_step:
            fit_threshold(module, datamodule, self.memory_budget)
            self._fitted_at = trainer.global_step

    def _start(self, trainer: Trainer, module: LightningModule, split: str, keys: list[str]) -> None:
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        refuse_repeated(datamodule, split)
        model, device = cast(InterpretableModel, module), module.device
        chunk, output = probe(module, datamodule.image_size, device, self.memory_budget)
        chunk = min(chunk, len(datamodule.dataset(split)))
        explainer = choose_explainer(self.explainer, model)
        facts = gather_facts(datamodule, split, model, output, explainer, self.variant)
        metrics, skipped = build(keys, facts)
        reads = {(ENTRIES[key].view, name) for key, metric in metrics.items() for name in metric.reads}
        names = {name for _, name in reads}
        setting = Setting(
            self.seed,
            self.noise,
            self.variant,
            explain="saliency" in names or any(view == "completeness" for view, _ in reads),
            explain_perturbed="perturbed_saliency" in names,
            keep_maps=not names.isdisjoint(_ALL_MAPS),
            abstains=facts.abstains,
        )
        self._setting = setting
        self._observer = Observer(model, explainer, chunk, self.top_k)
        self._owned = owned_units(facts.owner, facts.active)
        self._metrics = metrics
        self._by_view: dict[str, list[AnyMetric]] = {}
        for key, metric in {id(metric): (key, metric) for key, metric in metrics.items()}.values():
            if not isinstance(metric, ModelValue):
                self._by_view.setdefault(ENTRIES[key].view, []).append(metric)
        self._images: list[tuple[Tensor, Tensor]] = []
        model_fields = {"weight": facts.weight, "active": facts.active, "presence": facts.presence}
        for metric in _distinct(metrics):
            metric.to(device)
            if isinstance(metric, ModelValue):
                metric.update(**{name: value for name, value in model_fields.items() if name in metric.reads})
        self.evaluation = Evaluation(skipped=skipped, explainer=explainer.key if setting.explain else None)
        self.evaluation.protocol = {
            **self.settings,
            "explained_by": description(explainer) if setting.explain else None,
            "object": self._object(datamodule, split),
            "pruned": _prunable(module) and not bool(facts.active.all()),
            "units_per_image": min(self.top_k, int(facts.active.sum())),
            "images_per_forward": chunk,
        }
        if facts.multi_label:
            self.evaluation.protocol["decision_threshold"] = facts.threshold

    def _object(self, datamodule: Any, split: str) -> str | None:
        """What stands for the object in localisation."""
        if not any(ENTRIES[key].view == "localisation" for key in self._metrics):
            return None
        return "bounding box" if datamodule.capabilities(split).missing("object_mask") else "mask"

    def _update(self, batch: dict[str, Any]) -> Clean:
        clean = Clean(batch, self._observer, self._setting, self._owned)
        for view, metrics in self._by_view.items():
            for record in VIEWS[view](clean):
                for metric in metrics:
                    metric.update(**{name: getattr(record, name) for name in metric.reads})
        return clean

    def _remember(self, clean: Clean) -> None:
        """Keep the value of every image, for the files of an evaluation."""
        values = [metric.image_values for metric in self._metrics.values() if isinstance(metric, ImageMean)]
        columns = torch.stack(values, dim=1) if values else torch.empty(len(clean.sample_ids), 0)
        self._images.append((clean.sample_ids.cpu(), columns.cpu()))

    def _end(self, trainer: Trainer, module: LightningModule, prefix: str) -> None:
        directions = {prefix + key: metric.higher_is_better for key, metric in self._metrics.items()}
        announce_directions(trainer.loggers, {k: v for k, v in directions.items() if k not in self._announced})
        self._announced |= set(directions)
        summaries = {id(metric): metric.summary() for metric in _distinct(self._metrics)}
        for key, metric in self._metrics.items():
            summary: Any = summaries[id(metric)]
            part, unit = ENTRIES[key].part, metric.unit
            if part is not None:
                summary, unit = summary[part], cast(SpatialMisalignment, metric).units[part]
            summary = dict(summary)
            self.evaluation.metrics[key] = {
                "value": summary.pop("value"),
                "ci95": [summary.pop("low"), summary.pop("high")],
                "n": int(summary.pop("n")),
                "skipped": int(summary.pop("skipped")),
                "unit": unit,
                "higher_is_better": metric.higher_is_better,
                **summary,
            }
            value = self.evaluation.metrics[key]["value"]
            module.log(prefix + key, value, sync_dist=True, prog_bar=key == "general/accuracy")

    def _gather_images(self) -> None:
        """The value of every image under every metric that averages over images, from all processes."""
        own = self._images, bool(self._observer.signed)
        shares: list[Any] = [own]
        if distributed.is_initialized():
            shares = [None] * distributed.get_world_size()
            distributed.all_gather_object(shares, own)
        names = [key for key, metric in self._metrics.items() if isinstance(metric, ImageMean)]
        self.evaluation.images = {
            key: dict(zip(names, row, strict=True))
            for keys, values in (batch for images, _ in shares for batch in images)
            for key, row in zip(keys.tolist(), values.tolist(), strict=True)
        }
        # activation changes then compare max(map, 0)
        self.evaluation.protocol["signed_maps"] = any(signed for _, signed in shares)

    # -- hooks -------------------------------------------------------------------------------------------------------
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
        self._start(trainer, pl_module, cast(Any, trainer).datamodule.loading.split, self.suite)

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Feed one batch."""
        self._update(args[1])

    def on_test_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Feed one batch."""
        self._remember(self._update(args[1]))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log under ``val/``."""
        self._end(trainer, pl_module, "val/")

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log under the result keys themselves."""
        self._end(trainer, pl_module, "")
        self._gather_images()


def announce_directions(loggers: Iterable[Any], directions: Mapping[str, bool | None]) -> None:
    """Tell the loggers that keep a summary whether larger or smaller values are better.

    Args:
        loggers: any loggers.
        directions: key as logged -> ``higher_is_better``.
    """
    for logger in loggers:
        if directions and hasattr(logger, "define_results"):
            logger.define_results(directions)


def _distinct(metrics: Mapping[str, AnyMetric]) -> list[AnyMetric]:
    """Every metric once; several keys may share one."""
    return list({id(metric): metric for metric in metrics.values()}.values())


def _prunable(module: LightningModule) -> bool:
    """Whether units become inactive by pruning; in a pool of shared prototypes it is by having no class."""
    return isinstance(module, Prunable) or any(name.startswith("prune") for name in getattr(module, "actions", ()))
