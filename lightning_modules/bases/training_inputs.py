"""What a training begins with: its data, what models need of them, and perhaps the weights of a finished run."""

from __future__ import annotations

from typing import Any

from lightning import LightningDataModule, Trainer
from torch import nn

from protometry.run_folder.checkpoint_file import read_checkpoint
from protometry.run_folder.command_line.user_path import user_path

OF_THE_DATA = ("class_weights", "decision_threshold")  # buffers that the new training sets itself


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
            f"images without augmentation, but got {got}. Wrap the data sets: `WrappedDatasets.from_datasets(train, "
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


def load_initial_weights(model: nn.Module, path: str) -> None:
    """Fill a model from a checkpoint of the same class; phases, optimisers and epochs start from the beginning.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged or foreign, or of another class or shape.
    """
    checkpoint = read_checkpoint(path, mmap=True)
    file, kind = user_path(path), type(model).__name__
    theirs = str(checkpoint["hyper_parameters"].get("_class_path")).rpartition(".")[2]
    if theirs != kind:
        raise ValueError(
            f"Expected argument `init_from` to be a checkpoint of a {kind}, but {file} is of a {theirs}. To start from "
            f"its backbone alone, pass `--model.backbone.weights {file}`."
        )
    own = {name: value for name, value in model.state_dict().items() if name in OF_THE_DATA}
    state = {name: value for name, value in checkpoint["state_dict"].items() if name not in OF_THE_DATA}
    try:
        model.load_state_dict(state | own)
    except ValueError as error:
        raise ValueError(
            f"{error} This is {file}, given as `init_from`. Use the arguments of the model in its run, or start from "
            f"its backbone alone with `--model.backbone.weights {file}`."
        ) from error
