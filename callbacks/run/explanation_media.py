"""How a model explains the same images during training, and what its units resemble most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from lightning import Callback, LightningModule, Trainer
from PIL import Image
from torch import Tensor

from protometry.callbacks.evaluation.interpretability import Interpretability
from protometry.callbacks.evaluation.threshold import threshold_of
from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.run.confusion import log_confusion
from protometry.callbacks.run.drawing import drawing
from protometry.callbacks.run.loggers import log_images, log_table
from protometry.explanations import Explainer, Targets, Upsample, choose_explainer, unit_tile, unit_view, unit_views
from protometry.explanations.decision import against_others
from protometry.explanations.unit_view import same_places
from protometry.explanations.views import png, sheet
from protometry.lightning_modules.contract import InterpretableModel
from protometry.run_folder.atomic import write_new
from protometry.run_folder.csv_text import csv_text

CONTRIBUTIONS = (
    *("epoch", "phase", "sample_id", "true class", "predicted class", "rank", "unit", "score", "weight"),
    *("contribution", "to the logit", "units at the same place", "all of them", "picture"),
)
UNITS = ("epoch", "phase", "moment", "unit", "class", "sample_id", "largest value", "weight", "picture")
CHUNK = 8  # images of a forward
FEWEST = 64  # training images among which units look for what they are like, or one of each class if that is more
TIMES = 3  # units looked at, times as many as shown, since several may look at one place
PER_LINE, TILE = 3, 112  # tiles in a line of a sheet, and the side of their pictures in pixels
END = "end of epoch"


class ExplanationMedia(Callback):
    """Shows on rank zero, at the end of every few epochs and of every phase, how a model explains a few fixed images.

    Two sheets per moment in ``explanations/`` of the run folder, with a table each, which the loggers get as well:

    - ``<phase>-epoch<NN>.png``: fixed images, of the validation split where there is one, with the units that
      contribute most to the predicted class, one for each place of the image (concepts: each by itself);
      ``media/explanations``, ``tables/contributions``;
    - ``<phase>-epoch<NN>-units.png``: for a few units, spread over all, the one of some fixed training images in which
      they are largest; ``media/units``, ``tables/units``. These are drawn before and after every projection too, with
      the name of the action instead of ``units``.

    The confusions of an epoch that was validated follow as ``media/confusion/val`` and ``tables/confusion/val``.

    Args:
        images: number of fixed images, drawn by class.
        top_k: units explained per image.
        units: the most units whose largest value is shown.
        every_n_epochs: how often; the last epoch of a phase is always shown.

    Raises:
        ValueError: if a number is below 1.
    """

    def __init__(self, images: int = 8, top_k: int = 3, units: int = 20, every_n_epochs: int = 5) -> None:
        numbers = {"images": images, "top_k": top_k, "units": units, "every_n_epochs": every_n_epochs}
        for name, value in numbers.items():
            if value < 1:
                raise ValueError(f"Expected argument `{name}` of ExplanationMedia to be at least 1, but got {value}.")
        self.images, self.top_k, self.units, self.every_n_epochs = images, top_k, units, every_n_epochs

    @drawing("pictures of explanations")
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the images, the units and the confusions, if it is time."""
        plan, epoch = cast(InterpretableModel, pl_module).phases(), trainer.current_epoch
        last = epoch + 1 == trainer.max_epochs or plan.locate(epoch)[0] != plan.locate(epoch + 1)[0]
        if not (last or (epoch + 1) % self.every_n_epochs == 0) or not _shows(trainer):
            return
        step = trainer.global_step - 1
        self._show_images(trainer, pl_module, step)
        self._show_units(trainer, pl_module, END, step)
        engine = _engine(trainer)
        if engine is not None and _datamodule(trainer).has_validation:
            names = _datamodule(trainer).class_names
            log_confusion(trainer.loggers, engine.evaluation.confusion, names, "val", step)

    @drawing("pictures of explanations")
    def on_action_start(self, trainer: Trainer, module: LightningModule, action: str) -> None:
        """Show the units before a projection."""
        if action.startswith("project") and _shows(trainer):
            self._show_units(trainer, module, f"before {action}", trainer.global_step)

    @drawing("pictures of explanations")
    def on_action_end(self, trainer: Trainer, module: LightningModule, action: str, report: dict[str, float]) -> None:
        """Show the same units after it."""
        if action.startswith("project") and _shows(trainer):
            self._show_units(trainer, module, f"after {action}", trainer.global_step)

    def _show_images(self, trainer: Trainer, module: LightningModule, step: int) -> None:
        datamodule, model = _datamodule(trainer), cast(InterpretableModel, module)
        if not model.units().active.any():  # such as a tree that is pruned to a leaf
            return
        split = "val" if datamodule.has_validation else "projection"
        samples, groups, rows = datamodule.excerpt(split, self.images), [], []
        names, where = datamodule.class_names, _Place.of(trainer, module)
        with evaluation_mode(module):
            explainer = _explainer(trainer, model)
            for sample in (samples[index] for index in range(len(samples))):
                apart = model.units().kind in ("concept", "class")
                strongest = evidence(module, sample["image"], self.top_k * (1 if apart else TIMES))
                key, ids = sample["sample_key"].view(1).to(module.device), torch.tensor([strongest.units])
                asked = Targets("unit", ids.to(module.device))
                image = sample["image"][None].to(module.device)
                maps = explainer.attribute(model, image, asked, sample_ids=key)[0].cpu()
                first = [-1] * len(maps) if apart else same_places(maps)
                labels = sample["labels"].nonzero().flatten() if "labels" in sample else sample["label"].view(1)
                true, predicted = ", ".join(names[label] for label in labels.tolist()), names[strongest.label]
                tiles = []
                for rank, (index, *same) in enumerate(strongest.by_place(first)[: self.top_k], start=1):
                    unit, total = strongest.units[index], sum(strongest.contributions[each] for each in (index, *same))
                    view = unit_view(sample["image"], maps[index], TILE)
                    more = f" + {len(same)} at the same place" if same else ""
                    tiles.append(unit_tile(view, f"unit {unit}{more}: contribution {total:+.2g}", view.legend))
                    own = (strongest.scores, strongest.weights, strongest.contributions, strongest.raw)
                    others = " ".join(str(strongest.units[each]) for each in same)
                    figures = (rank, unit, *(values[index] for values in own), others, total, tiles[-1])
                    rows.append([*where.columns, sample["sample_id"], true, predicted, *figures])
                groups.append((f"{sample['sample_id']}: {true}, taken for {predicted}", tiles))
        _publish(trainer, where.stem, "explanations", groups, step)
        _publish_table(trainer, where.stem, "contributions", CONTRIBUTIONS, rows, step)

    def _show_units(self, trainer: Trainer, module: LightningModule, moment: str, step: int) -> None:
        model, datamodule, where = cast(InterpretableModel, module), _datamodule(trainer), _Place.of(trainer, module)
        table = model.units()
        chosen = torch.linspace(0, len(table.active) - 1, min(self.units, len(table.active))).round().long()
        chosen = chosen[table.active.cpu()[chosen]]
        if not len(chosen):
            return
        excerpt = datamodule.excerpt("projection", max(FEWEST, len(datamodule.class_names)))
        samples = [excerpt[index] for index in range(len(excerpt))]
        score, place = best_images(module, [sample["image"] for sample in samples], chosen)
        tiles, rows = [], []
        with evaluation_mode(module):
            explainer = _explainer(trainer, model)
            for unit, value, index in zip(chosen.tolist(), score.tolist(), place.tolist(), strict=True):
                sample, label = samples[index], int(table.owner[unit].int().argmax())
                key, ids = sample["sample_key"].view(1), torch.tensor([[unit]])
                ((view,),) = unit_views(explainer, model, sample["image"][None], ids, TILE, key)
                weight = None if table.weight is None else table.weight[label, unit].item()
                name = datamodule.class_names[label]
                tiles.append(unit_tile(view, f"unit {unit} · {name}", f"largest value {value:.3g}, {view.legend}"))
                rows.append([*where.columns, moment, unit, name, sample["sample_id"], value, weight, tiles[-1]])
        suffix = "units" if moment == END else moment.replace(" ", "-")
        epoch, phase = where.columns
        title = f"{moment}, epoch {epoch}, phase {phase}: where {len(rows)} units are largest"
        _publish(trainer, f"{where.stem}-{suffix}", "units", [(title, tiles)], step)
        _publish_table(trainer, f"{where.stem}-{suffix}", "units", UNITS, rows, step)


@dataclass(frozen=True)
class Evidence:
    """The evidence for the class a model predicts.

    Args:
        label: the class.
        units: the units with the largest contributions to its logit, in descending order.
        scores: of those units, what the head consumes.
        weights: of the head towards the class, None for models without a weight matrix.
        contributions: to the logit above the mean over classes; to the logit itself for multilabel data, for classes as
            units, and where there is no weight matrix.
        raw: to the logit itself.
    """

    label: int
    units: list[int]
    scores: list[float]
    weights: list[float | None]
    contributions: list[float]
    raw: list[float]

    def by_place(self, first: Sequence[int]) -> list[list[int]]:
        """Positions of the units by place, those first whose sum of contributions is largest.

        Args:
            first: for each unit the first one at its place, as :func:`protometry.explanations.unit_view.same_places`
                has it; -1 for one by itself.
        """
        places: dict[int, list[int]] = {}
        for index, place in enumerate(first):
            places.setdefault(index if place < 0 else place, []).append(index)
        return sorted(places.values(), key=lambda members: -sum(self.contributions[index] for index in members))


@torch.no_grad()
def evidence(module: LightningModule, image: Tensor, top_k: int) -> Evidence:
    """The units that contribute most to the predicted class.

    Args:
        module: an interpretable model in evaluation mode.
        image: ``(3, H, W)`` float in [0, 1].
        top_k: how many units; fewer if fewer are active.
    """
    model = cast(InterpretableModel, module)
    output, table = model(image[None].to(module.device)), model.units()
    label = output.logits.argmax(dim=1)
    raw = shares = model.contributions(output, label)[0]
    if table.weight is not None and table.kind != "class":
        shares = against_others(table.weight, threshold_of(model) is not None)[label[0]] * output.scores[0]
    units = shares.masked_fill(~table.active, -torch.inf).topk(min(top_k, int(table.active.sum()))).indices
    weights = None if table.weight is None else table.weight[label[0], units].tolist()
    scores, contributions = output.scores[0, units].tolist(), shares[units].tolist()
    return Evidence(
        int(label), units.tolist(), scores, weights or [None] * len(units), contributions, raw[units].tolist()
    )


@torch.no_grad()
def best_images(module: LightningModule, images: Sequence[Tensor], units: Tensor) -> tuple[Tensor, Tensor]:
    """The image in which each unit finds most of what it looks for.

    Args:
        module: an interpretable model.
        images: of shape ``(3, H, W)`` each.
        units: ``(M,)`` int64.

    Returns:
        The largest value ``(M,)`` of the maps of each unit, and the image ``(M,)`` it is in, the first on ties.
    """
    largest = []
    with evaluation_mode(module):
        for start in range(0, len(images), CHUNK):
            maps = module(torch.stack(list(images[start : start + CHUNK])).to(module.device)).maps
            largest.append(maps[:, units.to(module.device)].amax(dim=(2, 3)).cpu())
    value, place = torch.cat(largest).max(dim=0)
    return value, place


@dataclass(frozen=True)
class _Place:
    """Where a run is: the values of the first columns of a table, and the beginning of the names of files."""

    columns: tuple[int, str]
    stem: str

    @classmethod
    def of(cls, trainer: Trainer, module: LightningModule) -> _Place:
        plan, epoch = cast(InterpretableModel, module).phases(), trainer.current_epoch
        phase = plan.phases[plan.locate(epoch)[0]].name
        return cls((epoch + 1, phase), f"{phase.replace('/', '-')}-epoch{epoch:02d}")


def _publish(
    trainer: Trainer,
    stem: str,
    key: str,
    groups: Sequence[tuple[str, Sequence[Image.Image]]],
    step: int,
) -> None:
    """One sheet in the run folder, one picture per group in the loggers."""
    whole = sheet([tiles for _, tiles in groups], PER_LINE, [title for title, _ in groups])
    write_new(Path(trainer.default_root_dir) / "explanations" / f"{stem}.png", png(whole))
    pictures = [sheet([tiles], PER_LINE, [title]) for title, tiles in groups]
    log_images(trainer.loggers, f"media/{key}", pictures, [title for title, _ in groups], step)


def _publish_table(
    trainer: Trainer, stem: str, key: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int
) -> None:
    """The same rows as a file, without the pictures, and in the loggers."""
    text = csv_text([columns[:-1], *(row[:-1] for row in rows)])
    write_new(Path(trainer.default_root_dir) / "explanations" / f"{stem}.csv", text.encode())
    log_table(trainer.loggers, f"tables/{key}", columns, rows, step)


def _explainer(trainer: Trainer, model: InterpretableModel) -> Explainer:
    """The evaluation's explainer, or upsampled maps where that one explains classes only."""
    engine = _engine(trainer)
    chosen = choose_explainer(None if engine is None else engine.explainer, model)
    return chosen if "unit" in chosen.explains else Upsample()


def _shows(trainer: Trainer) -> bool:
    """On rank zero; a trial run leaves nothing behind."""
    return trainer.is_global_zero and not trainer.fast_dev_run  # type: ignore[attr-defined]


def _engine(trainer: Trainer) -> Interpretability | None:
    callbacks: Iterator[Callback] = iter(trainer.callbacks)  # type: ignore[attr-defined]
    return next((callback for callback in callbacks if isinstance(callback, Interpretability)), None)


def _datamodule(trainer: Trainer) -> Any:
    return trainer.datamodule  # type: ignore[attr-defined]
