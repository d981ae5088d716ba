"""Fitting a bank of concept vectors and its head to the embeddings of all training images, exact over processes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from protometry.callbacks.forward.observer import Outputs
from protometry.callbacks.forward.walk import gather_outputs, walk
from protometry.callbacks.phases.ranks import solved_on_first
from protometry.callbacks.phases.words import similarities_to_words
from protometry.callbacks.trainer_parts import datamodule_of, wrong_model
from protometry.datamodules.sample import sample_key
from protometry.lightning_modules.contract import FitsConcepts
from protometry.metrics.primitives.truth import truth_of
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.csv_text import csv_text


def fit_concepts(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``fit_concepts``: embed all training images and let the model fit its concepts to them.

    What became of every concept is in ``concepts.csv`` of the run folder. One process fits, and the others take over
    its result. Memory: 4 bytes per image and channel on every process.

    Raises:
        TypeError: if the model has no concepts to fit.
        ValueError: on all processes, if the model refuses the images.
    """
    if not isinstance(module, FitsConcepts):
        raise wrong_model(module, "fit_concepts", "with a bank of concepts")
    datamodule = datamodule_of(trainer)
    folder = Path(trainer.default_root_dir)
    similarities = similarities_to_words(trainer, module)
    embeddings, concepts, targets = embed_training_images(module, datamodule)
    concepts = concepts if similarities is None else similarities
    outcome = solved_on_first(
        trainer, module, lambda: module.fit_concepts(embeddings, concepts, targets, datamodule.seed)
    )
    names = module.units().names or datamodule.tables.concept_names
    if trainer.is_global_zero:
        _write(module, names, folder / "concepts.csv")
    absent = (~module.units().active).nonzero().flatten().tolist()
    if absent:
        why = "no training image is known to have them, or all that are known do, or their embeddings are the same"
        why = why if similarities is None else "they are unfit, or images do not show them; `concepts.csv` says which"
        rank_zero_info(
            f"{len(absent)} of {len(names)} concepts are left out, since {why}: "
            f"{', '.join(names[index] for index in absent)}"
        )
    return outcome


def embed_training_images(module: LightningModule, datamodule: Any, memory_budget: float | None = None) -> list[Tensor]:
    """The training images as a model without its head sees them, the same whatever the number of processes.

    The embedding of an image is the mean over cells of the latent, in evaluation mode and through the evaluation
    transform.

    Returns:
        In the order of the data set: embeddings ``(n, D)`` float32, concepts ``(n, L)`` as from
        :func:`.truth_of` (``(n, 0)`` where images have none), and classes ``(n,)`` int64, or probabilities ``(n, K)``
        float32 for data with soft targets.
    """

    def fields(batch: dict[str, Any], outputs: Outputs) -> tuple[Tensor, Tensor, Tensor]:
        assert outputs.latent is not None
        concepts = truth_of(batch, "concepts") if "concepts" in batch else batch["label"][:, None][:, :0]
        return outputs.latent.mean(dim=(2, 3)), concepts, batch.get("class_targets", batch["label"])

    loader = datamodule.projection_dataloader()
    keys, *training = gather_outputs(walk(module, loader, datamodule.image_size, memory_budget), fields)
    row_of = {key: row for row, key in enumerate(keys.tolist())}
    rows = torch.tensor([row_of[sample_key(name)] for name in loader.dataset.sample_ids])
    return [values[rows] for values in training]


def _write(module: FitsConcepts, names: Sequence[str], path: Path) -> None:
    """One row per concept."""
    bank = module.concept_bank().items()
    columns = {name: values.tolist() if isinstance(values, Tensor) else values for name, values in bank}
    write_atomic(path, csv_text([["concept", *columns], *zip(names, *columns.values(), strict=True)]))
