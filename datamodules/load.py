"""Data modules of runs, rebuilt from their checkpoints with the split of the run, and of configs of other data."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.image_folder import ImageFolder, folder_name
from protometry.datamodules.image_folder.annotations import has_split
from protometry.datamodules.matching import Matched, match_classes, some
from protometry.datamodules.photos.folders import EXTENSIONS, split_folders
from protometry.datamodules.splits import Split, read_splits
from protometry.run_folder.checkpoint_file import read_checkpoint
from protometry.run_folder.command_line.messages import counted
from protometry.run_folder.command_line.user_path import expand_paths, user_path
from protometry.run_folder.command_line.yaml_files import read_yaml
from protometry.run_folder.layout import SPLIT, folder_of_run
from protometry.run_folder.trusted_classes import made_as_stored, stored_class


def load_datamodule(path: str | Path, *, allow_classes: Sequence[str] = (), **changes: Any) -> ImageDataModule:
    """The data module of a run, held to the split that the run was trained with.

    ::

        data = load_datamodule("runs/quickstart/checkpoints/last.ckpt")
        moved = load_datamodule("runs/cub200/checkpoints/best.ckpt", root="/data/CUB_200_2011")

    Args:
        path: a checkpoint that ``train.py`` has written; the ``split.json`` of its run folder decides the split.
        allow_classes: further packages, besides this project, whose classes the checkpoint may name; importing one runs
            its code. Modules in the folder of a run are never imported.
        changes: arguments of the data module that override the run's, such as ``root``.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is not a checkpoint of this project, or names a class that is not allowed or not a data
            module, or if the data module has no argument of a name in ``changes``.
    """
    path = user_path(path)
    return datamodule_from(read_checkpoint(path, mmap=True), path, allow_classes, **changes)


def datamodule_from(
    checkpoint: Mapping[str, Any], path: Path, allow_classes: Sequence[str] = (), **changes: Any
) -> ImageDataModule:
    """The same from the content of a checkpoint that was read from ``path``."""
    stored = checkpoint["datamodule_hyper_parameters"]
    kind = stored_class(stored, ImageDataModule, path, allow_classes)  # type: ignore[type-abstract]
    if unknown := [name for name in changes if name not in stored]:
        raise ValueError(
            f"Expected arguments of {kind.__name__}, the data of {path}, but got `{unknown[0]}`, which it does not "
            "have. Leave it out."
        )
    split_file = folder_of_run(path) / SPLIT
    if "split_file" in stored and split_file.exists():
        changes = {"split_file": str(split_file)} | changes
    data: ImageDataModule = made_as_stored(kind, stored, path, **changes)
    if isinstance(data, ImageFolder):
        data.title = folder_name(stored["root"])  # wherever it has been moved to
    return data


def read_datamodule(config: Path, image_size: Sequence[int], **changes: Any) -> ImageDataModule:
    """A data module to evaluate a model on that was trained on other data.

    An image folder without ``train/``, ``val/`` and ``test/``, without a table that divides its photos, and without a
    ``scheme`` of its own is test data as a whole.

    Args:
        config: a yaml file with the key ``data``: its ``class_path`` and perhaps ``init_args``.
        image_size: of the model; the config must have the same, or none.
        changes: arguments that replace the described ones, such as ``root``.

    Raises:
        ValueError: if the file is no such config, or if there is no such class, it is no data module or does not take
            the arguments.
    """
    config = user_path(config)
    try:
        content = expand_paths(read_yaml(config))
    except OSError as error:
        raise ValueError(f"Expected {config} to be a yaml file as in configs/data, but {error}.") from error
    described = content.get("data") if isinstance(content, dict) else None
    if not (isinstance(described, Mapping) and isinstance(described.get("class_path"), str)):
        raise ValueError(
            f"Expected {config} to hold `data` with a `class_path` as in configs/data, but got {described!r}."
        )
    path, arguments = described["class_path"], {**(described.get("init_args") or {}), **changes}
    module, _, name = path.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module or "protometry.datamodules"), name, None)
    except ImportError as error:
        raise ValueError(f"Expected `class_path` in {config} to be importable, but {error}.") from error
    if not (isinstance(kind, type) and issubclass(kind, ImageDataModule)):
        raise ValueError(f"Expected `class_path` in {config} to name a data module, but got {path!r}.")
    required = {key: p for key, p in inspect.signature(kind).parameters.items() if p.default is p.empty}
    lacking = [key for key, p in required.items() if p.kind is not p.VAR_KEYWORD and key not in arguments]
    if lacking:
        flag = ", or pass `--data_root DIR`" if "root" in lacking else ""
        raise ValueError(
            f"Expected {config} to set {', '.join(f'`data.init_args.{key}`' for key in lacking)}, which {name} needs, "
            f"but it does not. Add it there{flag}."
        )
    given = arguments.setdefault("image_size", list(image_size))
    if (list(given) if isinstance(given, Sequence) else [given, given]) != list(image_size):
        raise ValueError(
            f"Expected `image_size` in {config} to be the model's, {list(image_size)}, but got {given}. Leave it out."
        )
    root = user_path(str(arguments.get("root")))
    if name == "ImageFolder" and not (split_folders(root) or has_split(arguments.get("table"), root)):
        arguments.setdefault("scheme", "test")
    try:
        return kind(**arguments)
    except TypeError as error:
        raise ValueError(f"Expected `init_args` in {config} to be arguments of {name}, but {error}.") from error


def warn_of_training_photos(checkpoint: Mapping[str, Any], path: Path, names: Sequence[str]) -> None:
    """Warn of photos that have folder and file name in common with training photos of a run.

    Args:
        checkpoint: of the run.
        path: of that checkpoint; the ``split.json`` of its run names the photos that it was trained on.
        names: ids of the photos; numbers and other ids that are no files are passed over.
    """
    file, stored = folder_of_run(path) / SPLIT, checkpoint["datamodule_hyper_parameters"]
    if "split_file" not in stored or not file.is_file():
        return
    known = {PurePath(name).parts[-2:] for name in read_splits(file).training_ids(stored["fold"])}
    photos = [name for name in names if name.lower().endswith(EXTENSIONS)]
    if seen := [name for name in photos if PurePath(name).parts[-2:] in known]:
        rank_zero_warn(
            f"{len(seen)} of {counted(len(names), 'image')} have the folder and file name of training photos of the "
            f"run, such as {seen[0]}, so results may not be on new photos."
        )


def match_data(datamodule: ImageDataModule, trained: Sequence[str], split: Split, config: Path) -> dict[str, Any]:
    """Let loaders hand out the images that a model trained on other data knows, and say what is left out.

    Returns:
        For ``metrics.json``: name of the ``config``, number of ``classes`` of the model and of those ``matched``, names
        of classes that are ``without_images`` or ``left_out``, number of ``images`` and of ``images_left_out``, and a
        ``fingerprint`` of the images and of the settings that decide what they look like.

    Raises:
        ValueError: if no class matches, or with several labels per image not every label does.
    """
    names = datamodule.class_names
    classes = match_classes(names, trained)
    multi_label = datamodule.capabilities(split).multi_label is True
    dataset = datamodule.dataset(split)
    matched = Matched(dataset, classes, multi_label)
    present = set(classes) if multi_label else set(matched.labels.tolist())
    lacking = [name for index, name in enumerate(trained) if index not in present]
    if multi_label and lacking:
        raise ValueError(
            f"Expected {config} to know every label of the model, by name, but it lacks {some(lacking)}. Without them "
            "no image can be judged."
        )
    if not len(matched):
        raise ValueError(f"Expected {config} to have {split} images of classes of the model, but there are none.")
    left_out = [name for name, index in zip(names, classes, strict=True) if index < 0]
    dropped = len(dataset) - len(matched)
    rank_zero_info(
        f"{config}: {counted(len(matched), 'image')} of {len(present)} of the {len(trained)} classes of the model"
        + (f"; left out: {counted(dropped, 'image')} of other classes ({some(left_out)})." if left_out else ".")
    )
    datamodule.configure_loaders(classes=tuple(classes))
    looks = {name: datamodule.hparams.get(name) for name in ("crop", "geometry", "variant", "image_size")}
    identity = json.dumps([sorted(matched.contents), classes, looks], default=str)
    return {
        "config": config.name,
        "classes": len(trained),
        "matched": len(present),
        "without_images": lacking,
        "left_out": left_out,
        "images": len(matched),
        "images_left_out": dropped,
        "fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:16],
    }
