"""One pass of an evaluation over a split: its metrics, their inputs and their results."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from protometry.callbacks.evaluation.clean_view import Clean, Setting, ViewProtocol
from protometry.callbacks.evaluation.predictions import Prediction, as_predictions, of_predicted
from protometry.callbacks.evaluation.same_picture import SamePicture, without_values
from protometry.callbacks.evaluation.unit_maps import UnitMaps
from protometry.callbacks.evaluation.views import SPARSE_HEADS, TCAV, VIEWS
from protometry.callbacks.forward.observer import Observer, Outputs
from protometry.lightning_modules.contract import predicted_classes
from protometry.metrics import ItemMean, ModelValue, PartsMetric, Ties
from protometry.metrics.entry import AnyMetric
from protometry.metrics.facts import Facts
from protometry.metrics.primitives.truth import truth_of
from protometry.metrics.suite import ENTRIES
from protometry.run_folder.command_line.processes import add_up, gathered

ITEMS = {"unit": "units", "class": "classes", "concept": "concepts"}  # kinds whose individual values are kept
TRAINING = "training"  # the view of the training images
EXCHANGED = "exchanged"  # the view through foreign patches
ATTACKED = {entry.view for entry in ENTRIES.values() if entry.attacked}  # views of drawn images only


@dataclass
class Evaluation:
    """The results of one pass over a split.

    Args:
        metrics: key -> value, ci95, n, skipped, unit, higher_is_better, averaged_over, and what else a metric says of
            itself; ``unknown``, how many of the concepts or labels that it reads are, if any; a ``reason`` where the
            value is NaN.
        skipped: key -> why it was not computed.
        explainer: key of the explainer, or None if nothing was explained.
        protocol: how the numbers were made.
        images: sample key -> key -> value of that image; 8 bytes per image and metric.
        predictions: sample key -> what the model predicts for that image.
        scores: n sample keys, and ``(n, M)`` float32 scores of the active units of these images, if they are kept; 4
            bytes per image and unit.
        items: units, classes or concepts -> key -> value of each, NaN where undefined.
    """

    metrics: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    explainer: str | None = None
    protocol: dict[str, Any] = field(default_factory=dict)
    images: dict[int, dict[str, float]] = field(default_factory=dict)
    predictions: dict[int, Prediction] = field(default_factory=dict)
    scores: tuple[list[int], Tensor] | None = None
    items: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """For ``pandas.DataFrame``, a row for each metric: key, value, bounds of the 95 % interval, n and unit."""
        return [
            {"metric": key, "value": entry["value"], "low": entry["ci95"][0], "high": entry["ci95"][1]}
            | {"n": entry["n"], "unit": entry["unit"]}
            for key, entry in self.metrics.items()
        ]


class EvaluationPass:
    """Feeds the metrics of one pass, all views of a batch from one clean forward.

    Args:
        noise: standard deviation of the completeness noise.

    Attributes:
        attacked: ids of the images that are attacked; None for all.
    """

    def __init__(
        self,
        metrics: Mapping[str, AnyMetric],
        facts: Facts,
        observer: Observer,
        seed: int,
        noise: float,
        protocol: ViewProtocol | None = None,
    ) -> None:
        self.metrics = dict(metrics)
        self.attacked: Collection[str] | None = None
        self.observer = observer
        reads = frozenset((ENTRIES[key].view, name) for key, metric in metrics.items() for name in metric.reads)
        self.setting = Setting(facts, reads, seed, noise, protocol=protocol)
        self.ties = Ties().to(facts.active.device)  # always, since ties make other metrics meaningless
        self.same_picture = SamePicture()
        self._unknown = torch.zeros(2, dtype=torch.int64, device=facts.active.device)  # values of concepts, labels
        self._views = VIEWS if protocol is None else VIEWS | {protocol.view: protocol.views}
        self._images: list[tuple[Tensor, dict[str, Tensor]]] = []
        self._predictions: list[tuple[Tensor, Tensor, Tensor]] = []  # their labels, predictions, probabilities
        self._scores: list[Tensor] = []
        self._by_view: dict[str, list[AnyMetric]] = {}
        of_model = {"weight": facts.weight, "active": facts.active, "presence": facts.units.presence}
        for key, metric in self._distinct():
            metric.to(facts.active.device)
            if isinstance(metric, ModelValue):
                metric.update(**{name: value for name, value in of_model.items() if name in metric.reads})
            else:
                self._by_view.setdefault(ENTRIES[key].view, []).append(metric)

    def update(
        self,
        batch: dict[str, Any],
        keep_images: bool = False,
        keep_scores: bool = False,
        maps: UnitMaps | None = None,
    ) -> None:
        """Feed one batch; keep the values and the prediction of every image, its scores and maps, if asked to.

        Raises:
            ValueError: if an output of the model is not finite, with the sample ids.
        """
        clean = Clean(batch, self.observer, self.setting)
        self.same_picture.add(batch["image"])
        for row, name in enumerate(("concepts", "labels")):
            if name in batch:
                self._unknown[row] += truth_of(batch, cast(Any, name)).isnan().sum()
        self._feed(self._by_view, clean)
        self.observer.refuse_broken()
        if not self.setting.facts.multi_label:
            self.ties.update(clean.logits, clean.abstained)
        if keep_images:
            self._images.append((clean.sample_ids, self._image_values()))
            self._predictions.append(_predictions(clean))
        if keep_scores:
            self._scores.append(clean.scores[:, self.setting.facts.active].float().cpu())
        if maps is not None:
            maps.add(clean.sample_ids, clean.unit_maps)

    def update_others(self, batch: dict[str, Any]) -> None:
        """Feed one batch of the images that a limit left out to the metrics that need the whole split.

        Raises:
            ValueError: if an output of the model is not finite, with the sample ids.
        """
        self._feed(self._on_whole_split, Clean(batch, self.observer, self._setting_of_others))
        self.observer.refuse_broken()

    def _feed(self, by_view: Mapping[str, list[AnyMetric]], clean: Clean) -> None:
        for name, metrics in by_view.items():
            shown = self._attacked_part(clean) if name in ATTACKED else clean
            for view in self._views[name](shown) if shown is not None and name != TRAINING else ():
                for metric in metrics:
                    metric.update(**{field: getattr(view, field) for field in metric.reads})

    def _attacked_part(self, clean: Clean) -> Clean | None:
        """The images of a batch that are attacked, None without any."""
        if self.attacked is None:
            return clean
        rows = [row for row, name in enumerate(clean.images.names) if name in self.attacked]
        return clean.part(rows) if rows else None

    @cached_property
    def _on_whole_split(self) -> dict[str, list[AnyMetric]]:
        """Of each view the metrics that need the whole split."""
        whole = {id(self.metrics[key]) for key in whole_split(self.metrics)}
        chosen = {
            name: [metric for metric in metrics if id(metric) in whole] for name, metrics in self._by_view.items()
        }
        return {name: metrics for name, metrics in chosen.items() if metrics}

    @cached_property
    def _setting_of_others(self) -> Setting:
        """What is read of images that a limit left out: no explanation, unless a metric of the whole split needs it."""
        read = {
            (name, field) for name, metrics in self._on_whole_split.items() for each in metrics for field in each.reads
        }
        return replace(self.setting, reads=frozenset(read))

    @property
    def reads_training(self) -> bool:
        """Whether some metric is measured on the training images."""
        return TRAINING in self._by_view

    @property
    def exchanges_units(self) -> bool:
        """Whether some metric needs foreign patches in the place of units."""
        return EXCHANGED in self._by_view

    @property
    def reads_sparse_heads(self) -> bool:
        """Whether some metric is about heads with few weights."""
        return SPARSE_HEADS in self._by_view

    @property
    def reads_directions(self) -> bool:
        """Whether some metric is about directions of concepts."""
        return TCAV in self._by_view

    def learn(self, batch: dict[str, Any], outputs: Outputs) -> None:
        """Feed one batch of training images to the metrics that are measured on them."""
        clean = Clean(batch, self.observer, self.setting, outputs)
        for metric in self._by_view[TRAINING]:
            metric.update(**{field: getattr(clean, field) for field in metric.reads})

    def named_units(self) -> tuple[Tensor, Tensor] | None:
        """``(M,)`` int64 units that stand for a concept, and the concept of each, if some metric is about them."""
        if "concepts" not in self._by_view or self.setting.concepts is None:
            return None
        return self.setting.named, self.setting.concepts

    def entries(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Key and result of every metric over all processes, in the form of :attr:`Evaluation.metrics`.

        Where all images are the same picture, only what the labels say and facts of the model are defined.
        """
        same = self.same_picture.reason()
        add_up(unknown := self._unknown.clone())
        summaries = {id(metric): metric.summary() for _, metric in self._distinct()}
        for key, metric in self.metrics.items():
            summary: Any = summaries[id(metric)]
            if isinstance(metric, PartsMetric):
                part = cast(str, ENTRIES[key].part)
                summary, unit = summary[part], metric.units[part]
            else:
                unit = metric.unit
            reason = same if self._compares_images(key, metric) else None
            summary = dict(summary) if reason is None else without_values(summary)
            value, skipped = summary.pop("value"), int(summary.pop("skipped"))
            why = {"reason": reason or metric.nothing_measured(skipped)} if math.isnan(value) else {}
            left_out = self._unknown_in(metric, *unknown.tolist())
            yield (
                key,
                {
                    "value": value,
                    "ci95": [summary.pop("low"), summary.pop("high")],
                    "n": int(summary.pop("n")),
                    "skipped": skipped,
                    "unit": unit,
                    "higher_is_better": metric.higher_is_better,
                    "averaged_over": metric.averaged_over,
                    **summary,
                    **({"unknown": left_out} if left_out else {}),
                    **why,
                },
            )

    def _unknown_in(self, metric: AnyMetric, concepts: int, labels: int) -> int:
        """How many of the values that a metric reads are unknown: of concepts, also to correct them, or of labels."""
        if not {"concept_labels", "intervened_logits"}.isdisjoint(metric.reads):
            return concepts
        return labels if self.setting.facts.multi_label and "labels" in metric.reads else 0

    def _compares_images(self, key: str, metric: AnyMetric) -> bool:
        """Whether the number says how explanations differ between the evaluated images."""
        other = isinstance(metric, ModelValue) or ENTRIES[key].view == TRAINING
        return not (other or key.startswith("general/"))

    def gather_images(self) -> tuple[dict[int, dict[str, float]], dict[int, Prediction], bool]:
        """The images of all processes.

        Returns:
            Sample key -> key -> value under every metric that averages over images; sample key -> prediction; and
            whether some map was below zero: activation changes then compare max(map, 0).
        """
        protocol = self.setting.protocol
        chosen = None if protocol is None else protocol.chosen(self.metrics.values())
        values: dict[int, dict[str, float]] = {}
        predictions: dict[int, Prediction] = {}
        for (keys, columns), batch in zip(self._images, self._predictions, strict=True):
            cells = {key: _chosen(value, chosen).tolist() for key, value in columns.items()}
            for row, sample in enumerate(keys.tolist()):
                values[sample] = {key: column[row] for key, column in cells.items()}
            predictions |= dict(zip(keys.tolist(), as_predictions(*batch), strict=True))
        shares = gathered((values, predictions, bool(self.observer.signed)))
        for other_values, other_predictions, _ in shares:
            values |= other_values
            predictions |= other_predictions
        return values, predictions, any(signed for _, _, signed in shares)

    def gather_scores(self) -> tuple[list[int], Tensor] | None:
        """The scores of all processes, as in :class:`Evaluation`."""
        if not self._scores:
            return None
        own = ([key for keys, _ in self._images for key in keys.tolist()], torch.cat(self._scores))
        shares = gathered(own)
        return [key for keys, _ in shares for key in keys], torch.cat([scores for _, scores in shares])

    def items(self) -> dict[str, dict[str, list[float]]]:
        """Values over all processes: units, classes or concepts -> key -> value of each."""
        tables: dict[str, dict[str, list[float]]] = {}
        for key, metric in self.metrics.items():
            if isinstance(metric, ItemMean) and metric.averaged_over in ITEMS:
                with metric.sync_context(dist_sync_fn=metric.dist_sync_fn, should_sync=metric._to_sync):
                    tables.setdefault(ITEMS[metric.averaged_over], {})[key] = metric.values().tolist()
        return tables

    def _image_values(self) -> dict[str, Tensor]:
        """Key -> the values of the images of the last batch, ``(B,)``, or ``(B, T)`` where one is chosen at the end."""
        by_key: dict[str, Tensor | None] = {}
        for key, metric in self.metrics.items():
            values = getattr(metric, "image_values", None)
            by_key[key] = values.get(ENTRIES[key].part) if isinstance(values, dict) else values
            if ENTRIES[key].attacked and self.attacked is not None:
                by_key[key] = None  # other images have none
        return {key: values for key, values in by_key.items() if values is not None}

    def _distinct(self) -> list[tuple[str, AnyMetric]]:
        """Every metric once, with one of its keys."""
        return list({id(metric): (key, metric) for key, metric in self.metrics.items()}.values())


def whole_split(keys: Iterable[str]) -> list[str]:
    """Those of the metrics that are measured on all images of the split, however many are asked for."""
    return [key for key in keys if key in ENTRIES and ENTRIES[key].whole_split]


def attacks(keys: Iterable[str]) -> bool:
    """Whether one of the metrics attacks images."""
    return any(key in ENTRIES and ENTRIES[key].attacked for key in keys)


def _predictions(clean: Clean) -> tuple[Tensor, Tensor, Tensor]:
    """What :func:`as_predictions` takes of a batch."""
    facts, logits = clean.setting.facts, clean.logits
    predicted = predicted_classes(logits, facts.abstains, facts.threshold if facts.multi_label else None)
    return clean.labels, predicted, of_predicted(clean.probabilities, predicted)


def _chosen(values: Tensor, index: int | None) -> Tensor:
    """``(B,)`` of values that may be ``(B, T)``, those that were chosen; NaN if none could be."""
    if values.ndim == 1:
        return values
    return values[:, index] if index is not None else values.new_full((len(values),), torch.nan)
