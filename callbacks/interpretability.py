"""The evaluation engine: one shared forward per batch feeds every requested metric.

Metrics declare the fields they read (``reads``); the engine makes one record per batch and computes each field once.
What cannot be computed on this model or data is listed with the reason, never replaced by a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from datamodules.sample import Capabilities
from lightning_modules.contract import InterpretableModel, ModelOutput
from metrics import ModelValue
from metrics.suite import Facts, build, resolve
from metrics.summary import SummaryMetric


@dataclass
class Evaluation:
    """The results of one pass over a split.

    Args:
        metrics: key -> value, ci95, n, skipped, unit, higher_is_better.
        skipped: key -> why it was not computed.
    """

    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)


class Interpretability(Callback):
    """Computes metric suites in validation and test.

    Args:
        suite: families or single keys for ``test``; "all" for every metric.
        validation_suite: families or single keys for validation within ``fit``, a cheap choice.

    Raises:
        ValueError: for an unknown family or key; during a pass, for non-finite model outputs, with the sample ids.
    """

    def __init__(self, suite: list[str] | None = None, validation_suite: list[str] | None = None) -> None:
        self.requested = suite if suite is not None else ["all"]
        self.suite = resolve(self.requested)
        self.validation_suite = resolve(validation_suite if validation_suite is not None else ["general"])
        self.evaluation = Evaluation()
        self._metrics: dict[str, SummaryMetric] = {}
        self._announced: set[str] = set()

    # -- one pass ----------------------------------------------------------------------------------------------------
    def _start(self, trainer: Trainer, module: LightningModule, split: str, keys: list[str]) -> None:
        datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
        capabilities: Capabilities = datamodule.capabilities(split)
        units = cast(InterpretableModel, module).units()
        facts = Facts(
            num_classes=datamodule.num_classes,
            multi_label=capabilities.multi_label is True,
            has_weight=units.weight is not None,
            active=units.active,
            missing=capabilities.missing,
        )
        built, skipped = build(keys, facts)
        model_fields = {"weight": units.weight, "active": units.active}
        for metric in built.values():
            metric.to(module.device)
            if isinstance(metric, ModelValue):
                metric.update(**{name: value for name, value in model_fields.items() if name in metric.reads})
        self._metrics = built
        self.evaluation = Evaluation(skipped=skipped)

    def _update(self, outputs: Any, batch: dict[str, Any]) -> None:
        output: ModelOutput = outputs["output"]
        _assert_finite(output, batch["sample_id"])
        record: dict[str, Tensor] = {
            "sample_ids": batch["sample_key"],
            "labels": batch.get("labels", batch["label"]),
            "logits": output.logits,
            "scores": output.scores,
        }
        for metric in self._metrics.values():
            if not isinstance(metric, ModelValue):
                metric.update(**{name: record[name] for name in metric.reads})

    def _end(self, trainer: Trainer, module: LightningModule, prefix: str) -> None:
        directions = {prefix + key: metric.higher_is_better for key, metric in self._metrics.items()}
        announce_directions(trainer.loggers, {k: v for k, v in directions.items() if k not in self._announced})
        self._announced |= set(directions)
        for key, metric in self._metrics.items():
            summary = metric.summary()
            self.evaluation.metrics[key] = {
                "value": summary["value"],
                "ci95": [summary["low"], summary["high"]],
                "n": int(summary["n"]),
                "skipped": int(summary["skipped"]),
                "unit": metric.unit,
                "higher_is_better": metric.higher_is_better,
            }
            module.log(prefix + key, summary["value"], sync_dist=True, prog_bar=key == "general/accuracy")
        self._metrics = {}

    # -- hooks -------------------------------------------------------------------------------------------------------
    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the validation metrics."""
        self._start(trainer, pl_module, "val", self.validation_suite)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Make the metrics of the suite."""
        self._start(trainer, pl_module, cast(Any, trainer).datamodule.evaluated_split, self.suite)

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Feed one batch."""
        self._update(args[0], args[1])

    def on_test_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        """Feed one batch."""
        self._update(args[0], args[1])

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log under ``val/``."""
        self._end(trainer, pl_module, "val/")

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log under the result keys themselves."""
        self._end(trainer, pl_module, "")


def announce_directions(loggers: Iterable[Any], directions: Mapping[str, bool | None]) -> None:
    """Tell the loggers that keep a summary whether larger or smaller values are better.

    Args:
        loggers: any loggers.
        directions: key as logged -> ``higher_is_better``.
    """
    for logger in loggers:
        if directions and hasattr(logger, "define_results"):
            logger.define_results(directions)


def _assert_finite(output: ModelOutput, sample_ids: list[str]) -> None:
    bad = torch.zeros(len(sample_ids), dtype=torch.bool, device=output.logits.device)
    for values in (output.logits, output.scores, output.maps):
        bad |= ~torch.isfinite(values).flatten(1).all(dim=1)
    if bad.any():
        named = [name for name, is_bad in zip(sample_ids, bad.tolist(), strict=True) if is_bad]
        raise ValueError(
            f"Expected finite model outputs, but got NaN or infinity for the samples {', '.join(named[:10])}"
            f"{' ...' if len(named) > 10 else ''}. The checkpoint is damaged or training diverged."
        )
