"""The outputs of a model for all images of a split, or for some of them drawn by class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, cast

import torch
from lightning import LightningModule
from torch import Tensor

from protometry.callbacks.forward.walk import walk
from protometry.datamodules.sample import nfc
from protometry.lightning_modules.contract import InterpretableModel, ModelOutput, predicted_classes
from protometry.metrics.primitives.truth import truth_of


@dataclass(frozen=True)
class Scan:
    """Outputs of n images.

    Args:
        labels: the classes of each image, one unless the data are multilabel.
        logits: ``(n, K)`` float64.
        scores: ``(n, U)`` float64.
        residual: ``(n, K)`` float64, parts of the logits that bypass the units, or None.
        context: what the head reads of the images besides their scores, or None.
        embeddings: ``(n, D)`` float32, means over cells of the latents, or None.
        unknown: labels that each image may or may not have; empty if all are known.
    """

    sample_ids: list[str]
    labels: list[tuple[int, ...]]
    logits: Tensor
    scores: Tensor
    residual: Tensor | None = None
    context: Tensor | None = None
    embeddings: Tensor | None = None
    threshold: Tensor | None = None
    unknown: list[tuple[int, ...]] = field(default_factory=list)

    @cached_property
    def predicted(self) -> list[int]:
        """The class with the largest logit of each image, which alone is not the prediction if multilabel."""
        return [int(label) for label in self.logits.argmax(dim=1)]

    @cached_property
    def predictions(self) -> list[tuple[int, ...]]:
        """The predicted classes of each image: one, none without any decision, any number if multilabel."""
        return classes_of(predicted_classes(self.logits, abstains=True, threshold=self.threshold))

    @cached_property
    def judged(self) -> list[tuple[int, ...]]:
        """The predicted classes of each image without labels that are unknown of it."""
        pairs = zip_longest(self.predictions, self.unknown, fillvalue=())
        return [tuple(label for label in said if label not in unknown) for said, unknown in pairs]

    @cached_property
    def correct(self) -> list[bool | None]:
        """Whether exactly the classes of the image are predicted, None if nothing is known of it.

        An image without any decision is wrong.
        """
        nothing = [len(unknown) == self.logits.shape[1] for unknown in self.unknown] or [False] * len(self.labels)
        pairs = zip(self.judged, self.labels, nothing, strict=True)
        return [None if unknown else said == truth for said, truth, unknown in pairs]

    def strongest(self, unit: int, most: int) -> list[int]:
        """Positions of the images with the largest score of a unit, ties in their order."""
        order = self.scores[:, unit].argsort(descending=True, stable=True)[:most]
        return [int(index) for index in order]

    def of(self, sample_ids: Sequence[str]) -> Scan:
        """The outputs of some of the images, in their order."""
        index_of = {name: index for index, name in enumerate(self.sample_ids)}
        rows = [index_of[name] for name in sample_ids]
        return replace(
            self,
            sample_ids=list(sample_ids),
            labels=[self.labels[row] for row in rows],
            unknown=[self.unknown[row] for row in rows] if self.unknown else [],
            logits=self.logits[rows],
            scores=self.scores[rows],
            residual=None if self.residual is None else self.residual[rows],
            context=None if self.context is None else self.context[rows],
            embeddings=None if self.embeddings is None else self.embeddings[rows],
        )

    def output(self, rows: Sequence[int]) -> ModelOutput:
        """Logits, scores and context of some images, without maps."""
        chosen = torch.tensor(rows, dtype=torch.int64)
        extras = {} if self.context is None else {"context": self.context[chosen]}
        maps = self.scores.new_zeros(len(rows), 0, 1, 1)
        return ModelOutput(self.logits[chosen], self.scores[chosen], maps, None, extras)


def scan(
    model: InterpretableModel, datamodule: Any, split: str, limit: int | None = None, memory_budget: float | None = None
) -> Scan:
    """Show a model the images of a split, in forwards of the size that evaluations have.

    Args:
        model: an interpretable model.
        datamodule: an ``ImageDataModule``; its loaders are as before afterwards.
        split: "projection" for the training images through the evaluation transform.
        limit: number of images drawn by class; all by default.
        memory_budget: GiB for the activations of one forward; None for the default of the device.
    """
    names: list[str] = []
    labels: list[tuple[int, ...]] = []
    unknown: list[tuple[int, ...]] = []
    logits, scores, residual, context, embeddings = [], [], [], [], []
    with loaders(datamodule, split, limit) as loader:
        text = f"Looking at {'training' if split == 'projection' else split} images"
        module = cast(LightningModule, model)
        for batch, outputs in walk(module, loader, datamodule.image_size, memory_budget, text=text):
            names += batch["sample_id"]
            labels += labels_of(batch)
            unknown += unknown_of(batch)
            logits.append(outputs.logits.double().cpu())
            scores.append(outputs.scores.double().cpu())
            if outputs.residual is not None:
                residual.append(outputs.residual.double().cpu())
            if outputs.context is not None:
                context.append(outputs.context.cpu())
            if outputs.latent is not None:
                embeddings.append(outputs.latent.float().mean(dim=(2, 3)).cpu())
    bypass, read, seen = (torch.cat(parts) if parts else None for parts in (residual, context, embeddings))
    return Scan(names, labels, torch.cat(logits), torch.cat(scores), bypass, read, seen, cpu_threshold(model), unknown)


def scan_evaluated(model: InterpretableModel, datamodule: Any, result: Mapping[str, Any]) -> tuple[Scan, Any]:
    """Show a model the images on which it was evaluated, as many at once as then.

    Returns:
        What it says of them, and their data set.

    Raises:
        ValueError: if it gets another number of images right than the evaluation counted.
    """
    split, limit, protocol = result["split"], result["limit"], result["protocol"]
    here = model.units().active.device.type == protocol.get("device")
    outputs = scan(model, datamodule, split, limit, protocol["memory_budget"] if here else None)
    _refuse_another_model(outputs, result)
    with loaders(datamodule, split, limit) as loader:
        return outputs, loader.dataset


def _refuse_another_model(outputs: Scan, result: Mapping[str, Any]) -> None:
    """Refuse a model that gets another number of images right than the evaluation counted."""
    accuracy = result["metrics"].get("general/accuracy")
    if not accuracy or accuracy["value"] is None:
        return
    judged = [correct for correct in outputs.correct if correct is not None]
    counted, right = round(accuracy["value"] * accuracy["n"]), sum(judged)
    if accuracy["n"] != len(judged) or counted != right:
        raise ValueError(
            f"Expected the model of the evaluation, which gets {counted} of {accuracy['n']} images right, but "
            f"this one gets {right} of {len(judged)}. Evaluate the checkpoint again."
        )


@contextmanager
def loaders(datamodule: Any, split: str, limit: int | None) -> Iterator[Any]:
    """The loader of a split in one process, with images through the evaluation transform and in one view."""
    before, trainer = datamodule.loading, datamodule.trainer
    try:
        datamodule.trainer = None  # which would share the images among processes
        datamodule.loading = replace(before, split=split, limit=limit, continuity=None)
        yield datamodule.test_dataloader()
    finally:
        datamodule.loading, datamodule.trainer = before, trainer


def labels_of(batch: Any) -> list[tuple[int, ...]]:
    """The classes of each image of a batch or of a sample."""
    if "labels" in batch:
        return classes_of((truth_of(batch, "labels") == 1).view(-1, batch["labels"].shape[-1]))
    return classes_of(batch["label"].reshape(-1))


def unknown_of(batch: Any) -> list[tuple[int, ...]]:
    """The labels of which it is unknown whether each image of a batch or of a sample has them; [] if all are known."""
    if "label_certainty" not in batch:
        return []
    return classes_of(truth_of(batch, "labels").isnan().view(-1, batch["labels"].shape[-1]))


def classes_of(chosen: Tensor) -> list[tuple[int, ...]]:
    """The classes of each image, in ascending order, of ``(n, K)`` bool, or of ``(n,)`` int64 with -1 for none."""
    if chosen.ndim == 2:
        return [tuple(row.nonzero().flatten().tolist()) for row in chosen]
    return [(label,) if label >= 0 else () for label in chosen.tolist()]


def cpu_threshold(model: InterpretableModel) -> Tensor | None:
    """The decision threshold of a multilabel model, in the memory in which outputs are compared; else None."""
    threshold: Tensor | None = getattr(model, "decision_threshold", None)
    return None if threshold is None else threshold.detach().cpu()


def samples_of(dataset: Any, sample_ids: Sequence[str]) -> list[Any]:
    """Samples by their ids.

    Raises:
        ValueError: if the data set has no such sample.
    """
    index_of = {name: index for index, name in enumerate(dataset.sample_ids)}
    if unknown := [name for name in sample_ids if nfc(name) not in index_of]:
        known = dataset.sample_ids
        raise ValueError(
            f"Expected ids of the {len(known)} images, such as {known[0]!r}, but got {unknown[0]!r}. Look them up in "
            "images.csv of an evaluation."
        )
    return [dataset[index_of[nfc(name)]] for name in sample_ids]
