"""Fitting a bank of concept vectors and its head to the embeddings of all training images, exact over processes."""

from __future__ import annotations

from pathlib import Path

from lightning import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info

from protometry.callbacks.phases.embeddings import embed_training_images
from protometry.callbacks.phases.ranks import solved_on_first
from protometry.callbacks.trainer_parts import datamodule_of
from protometry.lightning_modules.contract import FitsConcepts
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.csv_text import csv_text


def fit_concepts(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``fit_concepts``: embed all training images and let the model fit its concepts to them.

    The embeddings stay in the folder ``embeddings`` of the run, and what became of every concept in ``concepts.csv``.
    One process fits, and the others take over its result.

    Raises:
        TypeError: if the model has no concepts to fit.
        ValueError: on all processes, if the model refuses the images.
    """
    if not isinstance(module, FitsConcepts):
        raise TypeError(
            f"Expected a model with a bank of concepts for the action 'fit_concepts', but got {type(module).__name__}."
        )
    datamodule = datamodule_of(trainer)
    folder = Path(trainer.default_root_dir)
    images = embed_training_images(trainer, module, folder / "embeddings")
    training = images.embeddings, images.concepts, images.targets
    outcome = solved_on_first(trainer, module, lambda: module.fit_concepts(*training, datamodule.seed))
    names = datamodule.tables.concept_names
    if trainer.is_global_zero:
        _write(module, names, folder / "concepts.csv")
    absent = (~module.units().active).nonzero().flatten().tolist()
    if absent:
        rank_zero_info(
            f"{len(absent)} of {len(names)} concepts are left out, since no training image has them, all have them, or "
            f"their embeddings are the same: {', '.join(names[index] for index in absent)}"
        )
    return outcome


def _write(module: FitsConcepts, names: list[str], path: Path) -> None:
    """One row per concept."""
    columns = {name: values.tolist() for name, values in module.concept_bank().items()}
    write_atomic(path, csv_text([["concept", *columns], *zip(names, *columns.values(), strict=True)]))
