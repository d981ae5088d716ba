"""The FunnyBirds protocol (Hesse et al. 2023) for any model, on data from which parts can be removed."""

from __future__ import annotations

import math
from typing import Any, cast, get_args

import torch
from lightning import LightningModule
from torch import Tensor, distributed

from callbacks.evaluation.evaluation_pass import Evaluation
from callbacks.evaluation.facts import description, refuse_repeated
from callbacks.evaluation.images_per_forward import images_per_forward
from callbacks.evaluation.observer import Observer
from callbacks.evaluation.part_removal import Birds, Interface, PartRemoval, Reading, batches_of
from callbacks.evaluation_mode import evaluation_mode
from explanations import BoxMaps, Explainer, SummedMaps
from lightning_modules.contract import InterpretableModel
from metrics import (
    Accuracy,
    BackgroundIndependence,
    ControlledSyntheticDataCheck,
    DeletionCheck,
    Distractibility,
    ImportantParts,
    PreservationCheck,
    SingleDeletion,
    SummaryMetric,
    TargetSensitivity,
    ThresholdMean,
)
from metrics.functional import (
    funnybirds_aggregate,
    heldout_completeness,
    minimal_sufficient_sets,
    part_dilation,
    part_thresholds,
    select_threshold,
)

FAMILY = "funnybirds/"
_CHECKS = ("csdc", "pc", "dc", "d")  # that are reported at one threshold


@torch.no_grad()
def evaluate_funnybirds(
    module: LightningModule,
    datamodule: Any,
    interface: Interface = "ssm",
    explainer: Explainer | None = None,
    memory_budget: float = 1.0,
) -> Evaluation:
    """Evaluate a model on the split that ``datamodule.test_dataloader`` hands out.

    Source: Hesse et al. (2023); Opłatek et al. (2024) for ``"ssm"``. Every process sees its share of the images and
    returns the numbers of all. All forwards have the same size, so that batch size and number of processes change
    nothing.

    Args:
        module: an interpretable model; afterwards in the mode it was in.
        datamodule: of SketchBirds or FunnyBirds, set up for test.
        interface: ``"ssm"``, summed similarity maps; ``"bb"``, boxes; ``"bb_reference"``, boxes with the slips of the
            released code; ``"attribution"``, the maps of ``explainer``.
        explainer: of classes; for ``"attribution"`` alone.
        memory_budget: GiB for the activations of one forward.

    Returns:
        The metrics under ``funnybirds/…``, with extra fields ``threshold``, ``important_parts`` and its interval beside
        completeness; the values of images, the four checks at the chosen threshold; and the protocol.

    Raises:
        ValueError: for data without interventions or part maps, multilabel data, other classes than the model's, an
            explainer that does not fit the interface or the model, images that several processes see, and for outputs
            that are not finite.
    """
    split = datamodule.loading.split
    refuse_repeated(datamodule, split)
    birds = _birds(datamodule, split)
    model = cast(InterpretableModel, module)
    with evaluation_mode(module):
        explainer = _explainer(model, interface, explainer)
        size: tuple[int, int] = datamodule.image_size
        chunk, output = images_per_forward(module, size, module.device, memory_budget)
        chunk = min(chunk, len(birds.data))
        if output.logits.shape[1] != len(birds.class_parts):
            raise ValueError(
                f"Expected data with the {output.logits.shape[1]} classes of the model, but got "
                f"{len(birds.class_parts)}."
            )
        observer = Observer(model, explainer, chunk, top_k=1)
        reading = Reading(interface, part_thresholds().to(module.device), "abstain" in output.extras)
        metrics = _metrics(birds, module.device)
        counts: dict[str, int] = {}
        kept: list[tuple[Tensor, dict[str, Tensor]]] = []
        for batch, rows in batches_of(birds, datamodule.test_dataloader(), module.device):
            removal = PartRemoval(batch, rows, birds, observer, reading)
            for metric in metrics.values():
                metric.update(**{name: getattr(removal, name) for name in metric.reads})
            counts = {name: counts.get(name, 0) + number for name, number in removal.counts.items()}
            values = {name: metric.image_values for name, metric in metrics.items() if hasattr(metric, "image_values")}
            kept.append((removal.sample_ids, values))
        observer.refuse_broken()
    evaluation = Evaluation(explainer=explainer.key)
    index = _add_entries(evaluation, metrics)
    evaluation.images = _images(kept, index)
    evaluation.protocol = {
        "interface": interface,
        "explained_by": description(explainer),
        "dilation": 1 if isinstance(explainer, BoxMaps) else part_dilation(size[0]),
        "images_per_forward": chunk,
        **_total(counts, module.device),
    }
    return evaluation


def _birds(datamodule: Any, split: str) -> Birds:
    capabilities = datamodule.capabilities(split)
    reasons = {
        "interventions, without which only accuracy could be measured": capabilities.missing("interventions"),
        "part maps, without which only accuracy and background independence could be measured": capabilities.missing(
            "label_map"
        ),
        "one label per image": "the data are multilabel" if capabilities.multi_label is True else None,
        "the classes that the model was trained on": "they are other data" if datamodule.loading.classes else None,
    }
    for what, reason in reasons.items():
        if reason is not None:
            raise ValueError(f"Expected the {split} split of {type(datamodule).__name__} to have {what}, but {reason}.")
    data = datamodule.dataset(split)
    return Birds(data, [tuple(datamodule.tables.label_map_codes[part]) for part in data.parts])


def _explainer(model: InterpretableModel, interface: Interface, asked: Explainer | None) -> Explainer:
    if interface not in get_args(Interface):
        raise ValueError(f"Expected argument `interface` to be one of {get_args(Interface)}, but got {interface!r}.")
    if (interface == "attribution") != (asked is not None):
        raise ValueError("Expected argument `explainer` with the interface 'attribution', and with no other.")
    found = asked or {"ssm": SummedMaps(), "bb": BoxMaps(), "bb_reference": BoxMaps("reference")}[interface]
    if isinstance(asked, BoxMaps):
        raise ValueError("Expected boxes to be asked for by the interface 'bb' or 'bb_reference'.")
    if "class" not in found.explains:
        raise ValueError(f"Expected an explainer of classes, but {found.key!r} explains {sorted(found.explains)}.")
    if reason := found.supports(model):
        raise ValueError(f"Expected argument `explainer` to support the model, but {reason}.")
    return found


def _metrics(birds: Birds, device: torch.device) -> dict[str, Any]:
    metrics = {
        "accuracy": Accuracy(),
        "bi": BackgroundIndependence(),
        "csdc": ControlledSyntheticDataCheck(minimal_sufficient_sets(birds.class_parts)),
        "pc": PreservationCheck(),
        "dc": DeletionCheck(),
        "d": Distractibility(),
        "important_parts": ImportantParts(),
        "sd": SingleDeletion(),
        "ts": TargetSensitivity(),
    }
    return {name: metric.to(device) for name, metric in metrics.items()}


def _add_entries(evaluation: Evaluation, metrics: dict[str, Any]) -> int | None:
    """Add all entries, and return the index of the threshold; None where a check is undefined."""
    curves = [metrics[name].compute() for name in _CHECKS]
    index = select_threshold(*curves) if all(bool(curve.isfinite().all()) for curve in curves) else None
    for name, metric in metrics.items():
        if isinstance(metric, SummaryMetric):
            evaluation.metrics[FAMILY + name] = _entry(metric, metric.summary())
        elif name != "important_parts":
            evaluation.metrics[FAMILY + name] = _entry(metric, _at(metric, index))
    csdc, pc, dc, d = curves
    correctness, contrastivity = metrics["sd"].compute(), metrics["ts"].compute()
    thresholds = part_thresholds().to(csdc.device)
    scores = funnybirds_aggregate(csdc, pc, dc, d, correctness, contrastivity, thresholds)
    scores["completeness_heldout"] = heldout_completeness(*(metrics[name].halves() for name in _CHECKS))
    number = _at(metrics["important_parts"], index)
    beside = {
        "threshold": scores.pop("threshold"),
        "important_parts": number["value"],
        "important_parts_ci95": [number["low"], number["high"]],
    }
    images = evaluation.metrics[FAMILY + "accuracy"]["n"]
    for name, value in scores.items():
        evaluation.metrics[FAMILY + name] = {
            "value": value,
            "ci95": [math.nan, math.nan],
            "n": images,
            "skipped": 0,
            "unit": "fraction",
            "higher_is_better": True,
            "averaged_over": "none",
            **(beside if name == "completeness" else {}),
        }
    for name, metric in (("correctness", "sd"), ("contrastivity", "ts")):
        evaluation.metrics[FAMILY + name] = dict(evaluation.metrics[FAMILY + metric])
    return index


def _at(metric: ThresholdMean, index: int | None) -> dict[str, float]:
    """The summary at the chosen threshold; without one, that of the first, whose value is not to be told."""
    summary = metric.summary(index or 0)
    return summary if index is not None else summary | dict.fromkeys(("value", "low", "high"), math.nan)


def _entry(metric: Any, summary: dict[str, float]) -> dict[str, Any]:
    return {
        "value": summary["value"],
        "ci95": [summary["low"], summary["high"]],
        "n": int(summary["n"]),
        "skipped": int(summary["skipped"]),
        "unit": metric.unit,
        "higher_is_better": metric.higher_is_better,
        "averaged_over": metric.averaged_over,
    }


def _images(kept: list[tuple[Tensor, dict[str, Tensor]]], index: int | None) -> dict[int, dict[str, float]]:
    """The values of the images of all processes, the checks at the chosen threshold."""
    own = [(keys.cpu(), {name: values.cpu() for name, values in found.items()}) for keys, found in kept]
    shares: list[Any] = [own]
    if distributed.is_initialized():
        shares = [None] * distributed.get_world_size()
        distributed.all_gather_object(shares, own)
    images: dict[int, dict[str, float]] = {}
    for keys, found in (batch for share in shares for batch in share):
        columns = {
            name: v if v.ndim == 1 else v[:, index] for name, v in found.items() if v.ndim == 1 or index is not None
        }
        for row, key in enumerate(keys.tolist()):
            if key in images:
                raise ValueError(
                    "Expected every image once over all processes, but got some several times. Attach the data module "
                    "to the trainer."
                )
            images[key] = {FAMILY + name: float(values[row]) for name, values in columns.items()}
    return images


def _total(counts: dict[str, int], device: torch.device) -> dict[str, int]:
    """Sums over all processes, each of which may have seen no image."""
    names = ("forwards", "hidden_parts", "totals_not_positive")
    sums = torch.tensor([counts.get(name, 0) for name in names], device=device)
    if distributed.is_initialized():
        distributed.all_reduce(sums)
    return dict(zip(names, sums.tolist(), strict=True))
