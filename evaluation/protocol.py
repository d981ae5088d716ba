"""The conditions of an evaluation: the entries of ``metrics.json`` other than numbers and training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protometry.callbacks.run.training_record import code_version, how_made
from protometry.evaluation.request import DRAWN, Request
from protometry.evaluation.results.metrics_json import UNRECORDED
from protometry.run_folder.settings import Effect, arguments_with

ELSEWHERE = {"_class_path", "crop", "fold", "image_size", "split_file"}  # what other entries say of the data


def refuse_unfit(request: Request, num_classes: int, datamodule: Any) -> None:
    """Refuse data that do not fit the model or the request.

    Raises:
        ValueError: if classes do not match, or if there is no validation split to evaluate.
    """
    if request.other_data is None and datamodule.num_classes != num_classes:
        raise ValueError(
            f"Expected data with the {num_classes} classes of {request.trained.path}, but {type(datamodule).__name__} "
            f"has {datamodule.num_classes}."
        )
    if request.split == "val" and not datamodule.has_validation:
        whose = (
            f"{request.other_data['config']} to have"
            if request.other_data
            else f"{request.trained.path} to be of a run with"
        )
        raise ValueError(f"Expected {whose} a validation split, but it has none.")


def describe(request: Request, backbone: str, datamodule: Any, codecs: dict[str, str]) -> dict[str, Any]:
    """Model, data and protocol of an evaluation, as ``metrics.json`` has them."""
    checkpoint = request.trained.checkpoint
    model, trained = checkpoint["hyper_parameters"], checkpoint["datamodule_hyper_parameters"]
    settings, released = datamodule.hparams, checkpoint.get("released")
    selection = "best validation score" if request.trained.path.stem == "best" else "last epoch"
    unseen = arguments_with(type(datamodule), Effect.NONE, Effect.TRAINING) | ELSEWHERE
    evaluation, weights = request.engine.evaluation, (model.get("backbone") or {}).get("weights")
    # what `auto` was resolved to
    divided = {"scheme": datamodule.split_record()["scheme"]} if "scheme" in settings else {}
    return {
        "model": model["_class_path"].rsplit(".", 1)[-1],
        "dataset": datamodule.dataset_name,
        "fold": trained.get("fold"),
        "explainer": evaluation.explainer,
        "protocol": {
            "backbone": backbone,
            "weights": weights and Path(weights).name,  # wherever the file lay
            "crop": getattr(datamodule, "crop", None),
            "image_size": list(datamodule.image_size),
            "augmentation": UNRECORDED if released else trained.get("augmentation"),
            "selection": UNRECORDED if released else selection,
            **({"trained_with": released["code"], "state_dict": _file(released)} if released else {}),
            **({"drawn": DRAWN} if request.limit else {}),
            **({"inference": request.inference} if request.inference else {}),
            **evaluation.protocol,
            **how_made(request.engine.this_pass.observer.model, checkpoint.get("training")),
            "data": {name: value for name, value in settings.items() if name not in unseen}
            | {**divided, "fingerprint": datamodule.fingerprint},
            **({"stamp": stamp} if (stamp := settings.get("stamp")) else {}),
            **({"concept_source": source} if (source := datamodule.tables.concept_source) else {}),
            "train_seed": None if released else trained.get("seed"),
            "codecs": codecs,
            "evaluation_code": code_version(),
        },
    }


def _file(released: Mapping[str, Any]) -> dict[str, Any]:
    return {name: released[name] for name in ("file", "sha256")}
