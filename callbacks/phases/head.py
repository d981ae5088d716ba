"""Solving the last layer exactly on the scores of all training images, the same over processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from lightning import LightningModule, Trainer
from matplotlib.figure import Figure
from torch import Tensor

from protometry.callbacks.forward.walk import walk
from protometry.callbacks.phases.ranks import solved_on_first
from protometry.callbacks.run.drawing import drawing
from protometry.command_line.processes import gathered
from protometry.explanations.charts import BLUE, ORANGE, chart, styled, to_picture
from protometry.explanations.views import png
from protometry.lightning_modules.contract import FitsHead, InterpretableModel
from protometry.lightning_modules.phases import FIT_HEAD, PhasePlan
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.csv_text import csv_text

FILE = "head_path"  # .csv and .png in the run folder


def refuse_unsolvable(plan: PhasePlan, module: Any, trainer: Any) -> None:
    """Refuse a plan whose last layer cannot be solved.

    Args:
        plan: of the model.
        module: the model.
        trainer: its data module gives the images.

    Raises:
        ValueError: if a phase enters with ``fit_head`` and the model has no such head, or there are no validation
            images to choose the penalty on.
    """
    for phase in plan.phases:
        if FIT_HEAD not in phase.on_enter:
            continue
        place = f"`phases.{phase.name}.on_enter`"
        if not isinstance(module, FitsHead):
            raise ValueError(
                f"Expected {place} to leave out {FIT_HEAD!r}, because {type(module).__name__} has no last layer that "
                "it can solve: one weight per class and unit, and no bias, as ProtoPNet and ProtoPool have."
            )
        if phase.head.penalty is None and not trainer.datamodule.has_validation:
            raise ValueError(
                f"Expected a validation split to choose the penalty of the last layer on, because {place} has "
                f"{FIT_HEAD!r}, but the data has none. Set `phases.{phase.name}.head.penalty`."
            )


def fit_head(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``fit_head``: solve the last layer on the scores of all training images, and keep it fixed in the phase.

    Scores come from the evaluation transform, under which prototypes are projected and the model is evaluated: they do
    not depend on a draw, the batch size or the number of processes. All processes take over the solution of the first.
    The penalties tried are in ``head_path.csv`` of the run folder and, where there are several, in ``head_path.png``.
    Memory: 12 bytes per image and unit on the first process, 4 on the others.

    Args:
        trainer: its data module gives the images.
        module: a :class:`~protometry.lightning_modules.contract.FitsHead`.

    Returns:
        The penalty chosen, its objective, violation of the optimality conditions, weights per class, units left, and
        the others of :meth:`~protometry.lightning_modules.heads.linear_head.LinearHead.fit_head`.

    Raises:
        ValueError: on all processes, if no last layer can be solved on these scores.
    """
    datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
    plan = cast(InterpretableModel, module).phases()
    spec = plan.phases[plan.locate(trainer.current_epoch)[0]].head
    training = _scores(module, datamodule, datamodule.projection_dataloader(), soft=True)
    validation = _scores(module, datamodule, datamodule.val_dataloader()) if datamodule.has_validation else None
    path = solved_on_first(trainer, module, lambda: cast(FitsHead, module).fit_head(training, validation, spec))
    if trainer.is_global_zero and trainer.loggers:  # a run without a logger writes no files
        _write(path, Path(trainer.default_root_dir))
    return next({name: value for name, value in row.items() if name != "chosen"} for row in path if row["chosen"])


def _scores(module: LightningModule, datamodule: Any, loader: Any, soft: bool = False) -> tuple[Tensor, Tensor]:
    """Scores and targets of all images on all processes, in the order of their keys."""
    own = []
    for batch, seen in walk(module, loader, datamodule.image_size):
        name = "labels" if "labels" in batch else "class_targets" if soft and "class_targets" in batch else "label"
        own.append([tensor.cpu() for tensor in (batch["sample_key"], seen.scores, batch[name])])
    parts = [batch for share in gathered(own) for batch in share]
    keys, scores, targets = (torch.cat(column) for column in zip(*parts, strict=True))
    order = keys.argsort()
    return scores[order], targets[order]


def _write(path: list[dict[str, Any]], folder: Path) -> None:
    write_atomic(folder / f"{FILE}.csv", csv_text([list(path[0]), *(list(row.values()) for row in path)]))
    if len(path) > 1:
        with drawing("path of the last layer"):
            write_atomic(folder / f"{FILE}.png", png(to_picture(path_figure(path))))


@styled
def path_figure(path: list[dict[str, Any]]) -> Figure:
    """What validation says of every penalty, with its standard error, beside the weights it leaves a class.

    Penalties for which the layer was not solved as precisely as promised have a cross.

    Args:
        path: rows of :meth:`~protometry.lightning_modules.heads.linear_head.LinearHead.fit_head`, at least two.

    Returns:
        A panel of 760 × 420 pixels for each.
    """
    figure, (upper, lower) = chart(760, 420, columns=2)
    penalties, chosen = [row["penalty"] for row in path], next(row["penalty"] for row in path if row["chosen"])
    upper.errorbar(
        penalties, [r["validation"] for r in path], [r["standard_error"] for r in path], color=ORANGE, marker="o"
    )
    lower.plot(penalties, [row["weights_per_class"] for row in path], "o-", color=BLUE)
    unsolved = [row for row in path if not row["solved"]]
    label = "penalty; dotted: chosen" + ("; ×: not solved" if unsolved else "")
    for axes, name in ((upper, "validation"), (lower, "weights_per_class")):
        axes.plot([row["penalty"] for row in unsolved], [row[name] for row in unsolved], "kx", zorder=3)
        axes.set(xscale="log", xlabel=label, ylabel=name.replace("_", " "))
        axes.axvline(chosen, color="black", linestyle=":")
    lower.set(yscale="log")
    return figure
