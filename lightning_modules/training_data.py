"""The data of a training, and what models need of them."""

from __future__ import annotations

from typing import Any

from lightning import LightningDataModule, Trainer


def data_of(trainer: Trainer) -> Any:
    """The data module of a trainer.

    Raises:
        TypeError: if it was given loaders alone, or a data module of another kind.
    """
    datamodule = getattr(trainer, "datamodule", None)
    foreign = isinstance(datamodule, LightningDataModule) and not hasattr(datamodule, "configure_loaders")
    if datamodule is None or foreign:
        got = "loaders" if datamodule is None else type(datamodule).__name__
        raise TypeError(
            "Expected the trainer to be given an ImageDataModule, because phases and metrics also read the training "
            f"images without augmentation, but got {got}. Wrap the data sets: `ImageDataModule.from_datasets(train, "
            "val, test)`."
        )
    return datamodule


def refuse_unfit_concepts(datamodule: Any, num_classes: int, num_concepts: int) -> None:
    """Refuse data without the concepts of a model.

    Raises:
        ValueError: if training images have no concepts, or their table has other classes or concepts than the model.
    """
    name, flags, tables = type(datamodule).__name__, datamodule.capabilities("train"), datamodule.tables
    reasons = [flags.missing("concepts_class"), flags.missing("concepts_image")]
    if None not in reasons:
        raise ValueError(
            f"Expected data with annotated concepts, but the training images of {name} have none "
            f"({'; '.join(reasons)})."
        )
    table = tables.class_concepts_binary
    shape = None if table is None else tuple(table.shape)
    if len(tables.concept_names) != num_concepts or shape not in (None, (num_classes, num_concepts)):
        raise ValueError(
            f"Expected {name} to describe {num_classes} classes by {num_concepts} concepts, as the model was built "
            f"for, but it names {len(tables.concept_names)} concepts and its table of classes by concepts is {shape}."
        )
