"""Actions on the last layer: solving it on the scores of all training images, and calibrating its probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from protometry.callbacks.forward.observer import Outputs
from protometry.callbacks.forward.walk import gather_outputs, walk
from protometry.callbacks.phases.ranks import solved_on_first
from protometry.callbacks.trainer_parts import datamodule_of, phase_of, wrong_model
from protometry.lightning_modules.contract import FitsHead
from protometry.lightning_modules.phases import FIT_HEAD, PhasePlan
from protometry.metrics.primitives.truth import truth_of
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.csv_text import csv_text

HEAD_PATH = "head_path"  # files in the folder of a run
ScoresAndTargets = tuple[Tensor, Tensor]


def refuse_unsolvable(plan: PhasePlan, module: Any) -> None:
    """Refuse a plan whose last layer cannot be solved.

    Raises:
        ValueError: if a phase enters with ``fit_head`` and the model has no such head.
    """
    for phase in plan.phases:
        if FIT_HEAD in phase.on_enter and not isinstance(module, FitsHead):
            raise ValueError(
                f"Expected `phases.{phase.name}.on_enter` to leave out {FIT_HEAD!r}, because {type(module).__name__} "
                "has no last layer that it can solve: one weight per class and unit, and no bias, as ProtoPNet and "
                "ProtoPool have."
            )


def fit_head(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``fit_head``: solve the last layer on the scores of all training images, and keep it fixed in the phase.

    Scores come from the evaluation transform, under which prototypes are projected and the model is evaluated: they do
    not depend on a draw, the batch size or the number of processes. All processes take over the solution of the first.
    The penalties tried are in ``head_path.csv`` of the run folder and, where there are several, their weights in
    ``head_path.safetensors``, for :func:`read_head_path`.
    Memory: at most 24 bytes per image and unit and 2 GiB more on the first process, 4 bytes on the others.

    Returns:
        The penalty chosen, its objective, violation of the optimality conditions, weights per class, units left, and
        the others of :meth:`~protometry.lightning_modules.heads.linear_head.LinearHead.fit_head`.

    Raises:
        ValueError: on all processes, if no last layer can be solved on these scores.
    """
    datamodule = datamodule_of(trainer)
    spec = phase_of(trainer, module).head
    training, validation = head_data(module, datamodule)

    def solve() -> list[dict[str, Any]]:
        path = cast(FitsHead, module).fit_head(training, validation, spec)
        weights = torch.stack([row.pop("weight") for row in path])
        if trainer.loggers:  # a run without a logger writes no files
            _write(Path(trainer.default_root_dir), path, weights)
        return path

    path = solved_on_first(trainer, module, solve)
    return next({name: value for name, value in row.items() if name != "chosen"} for row in path if row["chosen"])


def calibrate(trainer: Trainer, module: LightningModule) -> dict[str, float] | None:
    """Action ``calibrate``: divide the weights of the last layer by the temperature that suits validation images best.

    Source: Guo et al. 2017, *On Calibration of Modern Neural Networks*, section 4.2. Decisions stay as they are.

    Returns:
        The temperature; None where the data has no validation images, which leaves the weights as they are.

    Raises:
        TypeError: if the logits of the model are not weights times scores.
    """
    if not isinstance(module, FitsHead):
        raise wrong_model(module, "calibrate", "whose logits are weights times scores")
    datamodule = datamodule_of(trainer)
    if not datamodule.has_validation:
        rank_zero_info("There are no validation images to calibrate the probabilities on, which stay as trained.")
        return None
    images = _scores(module, datamodule, datamodule.val_dataloader())
    return {"temperature": solved_on_first(trainer, module, lambda: module.calibrate(images))}


def _write(run: Path, path: list[dict[str, Any]], weights: Tensor) -> None:
    write_atomic(run / f"{HEAD_PATH}.csv", csv_text([list(path[0]), *(list(row.values()) for row in path)]))
    if len(path) > 1:
        used = weights.nonzero()
        values = {"used": used.int(), "weights": weights[tuple(used.T)].float(), "shape": torch.tensor(weights.shape)}
        penalties = torch.tensor([row["penalty"] for row in path], dtype=torch.float64)
        tensors = {name: value.cpu().contiguous() for name, value in (values | {"penalties": penalties}).items()}
        write_atomic(run / f"{HEAD_PATH}.safetensors", save(tensors))


@dataclass(frozen=True)
class HeadPath:
    """The T last layers that were solved before one of them was chosen.

    Args:
        penalties: the largest first.
        weights: ``(T, K, U)`` float32.
        chosen: the one that the model has.
    """

    penalties: list[float]
    weights: Tensor
    chosen: int


def read_head_path(run: Path, weight: Tensor | None) -> HeadPath | None:
    """The path that ``fit_head`` left in the folder of a run.

    Args:
        run: the folder.
        weight: ``(K, U)`` of its model.

    Returns:
        None if the run has none, or the weights of the model are not among them.

    Raises:
        ValueError: if the file is damaged.
    """
    file = run / f"{HEAD_PATH}.safetensors"
    if weight is None or not file.is_file():
        return None
    try:
        stored = load(file.read_bytes())
        parts = stored["used"].T.long(), stored["weights"], stored["shape"].tolist()
        weights, penalties = torch.sparse_coo_tensor(*parts, check_invariants=True).to_dense(), stored["penalties"]
    except (SafetensorError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"Expected {file} to hold the solved last layers of its run, but {error}. Remove the file."
        ) from error
    if weights.shape[1:] != weight.shape or len(penalties) != len(weights):
        return None
    same = (weights == weight.detach().cpu()).flatten(1).all(dim=1)
    return HeadPath(penalties.tolist(), weights, int(same.nonzero()[0])) if same.any() else None


def head_data(module: LightningModule, datamodule: Any) -> tuple[ScoresAndTargets, ScoresAndTargets | None]:
    """Scores and targets of all training images, and of all validation images if there are any."""
    training = _scores(module, datamodule, datamodule.projection_dataloader(), soft=True)
    return training, _scores(module, datamodule, datamodule.val_dataloader()) if datamodule.has_validation else None


def _scores(module: LightningModule, datamodule: Any, loader: Any, soft: bool = False) -> tuple[Tensor, Tensor]:
    """Scores and targets of all images on all processes, in the order of their keys."""
    names = ("labels", "class_targets", "label") if soft else ("labels", "label")

    def fields(batch: dict[str, Any], outputs: Outputs) -> tuple[Tensor, Tensor]:
        name = next(name for name in names if name in batch)
        return outputs.scores, truth_of(batch, "labels") if name == "labels" else batch[name]

    _, scores, targets = gather_outputs(walk(module, loader, datamodule.image_size), fields)
    return scores, targets
