"""Pictures of a model while it is trained: its prototypes after a projection, and how it explains the same images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from PIL import Image
from torch import Tensor

from protometry.callbacks.evaluation.interpretability import Interpretability
from protometry.callbacks.evaluation.threshold import threshold_of
from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.run.loggers import log_images
from protometry.callbacks.trainer_parts import callback_of, datamodule_of, model_of, phase_of
from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.sample import Sample
from protometry.explanations import Explainer, Targets, Upsample, choose_explainer, unit_tile, unit_view, unit_views
from protometry.explanations.decision import against_others
from protometry.explanations.unit_view import part_in, same_places, unit_name
from protometry.explanations.views import Box, png, sheet
from protometry.lightning_modules.contract import InterpretableModel
from protometry.lightning_modules.phases import FIT_HEAD
from protometry.metrics.primitives.truth import truth_of
from protometry.run_folder.atomic import write_new
from protometry.run_folder.csv_text import csv_text

TILE = 112  # longer side of each of the three pictures of a unit, in pixels
PER_LINE, PER_CLASS = 3, 5  # tiles in a line of a sheet of explanations and of prototypes
CHUNK = 8  # images of a forward
FEWEST = 64  # training images among which units look for what they are like, or one of each class if that is more
TIMES = 3  # units looked at, times as many as shown, since several may look at one place
Groups = list[tuple[str, list[Image.Image]]]  # titles and tiles
COLUMNS = ["unit", "class", "sample_id", "row", "col", "x0", "y0", "x1", "y1", "distance", "weight", "duplicate_of"]


@contextmanager
def drawing(what: str) -> Iterator[None]:
    """Around code, or as a decorator of a hook, that draws and decides nothing: whatever it raises, the run goes on."""
    try:
        yield
    except Exception as error:  # numbers of any size meet libraries that raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        rank_zero_warn(f"No {what}: they could not be drawn or written ({reason}). Everything else continues.")


class PrototypeMedia(Callback):
    """Draws the prototypes after each projection, on rank zero; those that are left where a solved last layer follows.

    Writes ``prototypes/<phase>-epoch<NN>.png``, one group of tiles per class, and a table of all active prototypes
    with the same name and ending ``.csv`` into the run folder; sends the tiles to the loggers as ``media/prototypes``.
    A tile is the source photo with the box around what the prototype saw most of, the map of the explainer and a crop
    (:func:`~protometry.explanations.unit_view.unit_view`). Where the data have masks, ``on_object`` of the table is the
    share of the cell that is object; no model sees a mask. A file that is already there with other content stays, and
    the new one gets a number.

    Args:
        limit: the most prototypes to draw, in the order of classes and units.
        explainer: makes the maps; by default the one that ``choose_explainer`` finds for the model.

    Raises:
        ValueError: if ``limit`` is below 1, or the explainer does not support the model.
    """

    def __init__(self, limit: int = 100, explainer: Explainer | None = None) -> None:
        _check_positive(limit=limit)
        self.limit, self.explainer = limit, explainer

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse an explainer that does not support the model before it is trained."""
        if stage == "fit" and self.explainer is not None:
            with evaluation_mode(pl_module):
                choose_explainer(self.explainer, model_of(pl_module))

    @drawing("pictures of prototypes")
    def on_action_end(self, trainer: Trainer, module: LightningModule, action: str, report: dict[str, float]) -> None:
        """Draw after a projection, or once the last layer is solved that the phase enters with."""
        solved_next = FIT_HEAD in phase_of(trainer, module).on_enter
        drawn = action == FIT_HEAD if solved_next else action.startswith("project")
        if not drawn or not trainer.is_global_zero:
            return
        model, datamodule = model_of(module), datamodule_of(trainer)
        records = prototype_records(model, datamodule.class_names, datamodule.capabilities("train").multi_label is True)
        if not records:
            rank_zero_info("No prototype has a source image; none is drawn.")
            return
        if len(limited := records[: self.limit]) < len(records):
            rank_zero_info(f"Drawing {len(limited)} of {len(records)} prototypes (`limit` of PrototypeMedia).")
        masked = datamodule.capabilities("projection").object_mask is True
        dataset, wanted = datamodule.shown("projection"), {r.sample_id for r in (records if masked else limited)}
        samples = {name: dataset[index] for index, name in enumerate(dataset.sample_ids) if name in wanted}
        images = torch.stack([samples[record.sample_id]["image"] for record in limited])
        ids, tiles = torch.tensor([[record.unit] for record in limited]), []
        with evaluation_mode(module):
            views = unit_views(choose_explainer(self.explainer, model), model, images, ids, TILE)
        for record, (view,) in zip(limited, views, strict=True):
            part = part_in(view.box, samples[record.sample_id], datamodule.tables.part_names)
            name = " · ".join(filter(None, [f"prototype {record.unit}", record.class_name, part]))
            tiles.append(unit_tile(view, name, f"{record.figures}, {view.legend}"))
        _write(trainer, module, "prototypes", png(sheet_of_prototypes(limited, tiles)))
        _write(trainer, module, "prototypes", _table(records, samples if masked else None), ".csv")
        captions = [f"prototype {r.unit} · {r.class_name} · {r.figures}" for r in limited]
        log_images(trainer.loggers, "media/prototypes", tiles, captions, trainer.global_step)


class PrototypeRecord(NamedTuple):
    """The source of one prototype.

    Args:
        label: class of the source image; for multilabel data the first label that owns the prototype.
        box: inclusive pixels (x0, y0, x1, y1) of the cell in the evaluation transform's frame.
        distance: to the patch before it was copied.
        weight: of the head towards ``label``, or None for models without a weight matrix.
        duplicate_of: the first unit with the same source patch, or None.
    """

    label: int
    unit: int
    class_name: str
    sample_id: str
    cell: tuple[int, int]
    box: Box
    distance: float
    weight: float | None
    duplicate_of: int | None

    @property
    def figures(self) -> str:
        """Distance and weight in words."""
        return f"distance {self.distance:.3g}" + ("" if self.weight is None else f", weight {self.weight:.3g}")


def prototype_records(
    model: InterpretableModel, class_names: Sequence[str], multilabel: bool = False
) -> list[PrototypeRecord]:
    """The active units that have a source, ordered by class and unit."""
    units = model.units()
    if (source := units.source) is None:
        return []
    first = {unit: group[0] for group in source.duplicates() for unit in group[1:]}
    labels = units.owner.int().argmax(dim=1) if multilabel else source.label
    columns = [c.tolist() for c in (labels, source.row, source.col, source.box, source.distance)]
    weights = None if units.weight is None else units.weight.cpu()
    records = []
    for unit in (units.active & source.found.to(units.active.device)).nonzero().flatten().tolist():
        label, row, col, box, distance = (column[unit] for column in columns)
        weight = None if weights is None else weights[label, unit].item()
        source_of = (class_names[label], source.sample_id[unit], (row, col), tuple(box))
        records.append(PrototypeRecord(label, unit, *source_of, distance, weight, first.get(unit)))
    return sorted(records)


def sheet_of_prototypes(records: Sequence[PrototypeRecord], tiles: Sequence[Image.Image]) -> Image.Image:
    """The tiles, one group per class."""
    pairs = groupby(zip(records, tiles, strict=True), key=lambda pair: pair[0].label)
    groups = [list(group) for _, group in pairs]
    columns, names = min(max(map(len, groups)), PER_CLASS), [group[0][0].class_name for group in groups]
    return sheet([[tile for _, tile in group] for group in groups], columns, names)


def _table(records: Sequence[PrototypeRecord], masked: dict[str, Any] | None) -> bytes:
    rows: list[Sequence[object]] = [[*COLUMNS, "on_object"]]
    for r in records:
        x0, y0, x1, y1 = r.box
        cell = None if masked is None else masked[r.sample_id]["object_mask"][y0 : y1 + 1, x0 : x1 + 1]
        share = None if cell is None else cell.double().mean().item()
        rows.append((r.unit, r.class_name, r.sample_id, *r.cell, *r.box, r.distance, r.weight, r.duplicate_of, share))
    return csv_text(rows).encode()


class ExplanationMedia(Callback):
    """Shows on rank zero, at the end of every few epochs and of every phase, how a model explains a few fixed images.

    Two sheets per moment in ``explanations/`` of the run folder, which the loggers get as well:

    - ``<phase>-epoch<NN>.png``: fixed images, of the validation split where there is one, with the units that
      contribute most to the predicted class, one for each place of the image (concepts: each by itself);
      ``media/explanations``;
    - ``<phase>-epoch<NN>-units.png``: for a few units, spread over all, the one of some fixed training images in which
      they are largest; ``media/units``.

    Args:
        images: number of fixed images, drawn by class.
        top_k: units explained per image.
        units: the most units whose largest value is shown.
        every_n_epochs: how often; the last epoch of a phase is always shown.

    Raises:
        ValueError: if a number is below 1.
    """

    def __init__(self, images: int = 8, top_k: int = 3, units: int = 20, every_n_epochs: int = 5) -> None:
        _check_positive(images=images, top_k=top_k, units=units, every_n_epochs=every_n_epochs)
        self.images, self.top_k, self.units, self.every_n_epochs = images, top_k, units, every_n_epochs

    @drawing("pictures of explanations")
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the images and the units, if it is time and not a trial run, which leaves nothing behind."""
        plan, epoch = model_of(pl_module).phases(), trainer.current_epoch
        last = epoch + 1 == trainer.max_epochs or plan.locate(epoch)[0] != plan.locate(epoch + 1)[0]
        trial: bool = trainer.fast_dev_run  # type: ignore[attr-defined]
        if (last or (epoch + 1) % self.every_n_epochs == 0) and trainer.is_global_zero and not trial:
            self._show(trainer, pl_module)

    def _show(self, trainer: Trainer, module: LightningModule) -> None:
        if not model_of(module).units().active.any():  # such as a tree that is pruned to a leaf
            return
        engine = callback_of(trainer, Interpretability)
        with evaluation_mode(module):
            chosen = choose_explainer(None if engine is None else engine.explainer, model_of(module))
            explainer = chosen if "unit" in chosen.explains else Upsample()  # that one explains classes only
            for key, ending, draw in (("explanations", "", self._images), ("units", "-units", self._units)):
                if not (groups := draw(trainer, module, explainer)):
                    continue
                titles = [title for title, _ in groups]
                whole = sheet([tiles for _, tiles in groups], PER_LINE, titles)
                _write(trainer, module, "explanations", png(whole), f"{ending}.png")
                pictures = [sheet([tiles], PER_LINE, [title]) for title, tiles in groups]
                log_images(trainer.loggers, f"media/{key}", pictures, titles, trainer.global_step - 1)

    def _images(self, trainer: Trainer, module: LightningModule, explainer: Explainer) -> Groups:
        datamodule, units = datamodule_of(trainer), model_of(module).units()
        names, concepts = datamodule.class_names, datamodule.tables.concept_names
        apart = units.kind in ("concept", "class")
        groups = []
        for sample in _excerpt(datamodule, "val" if datamodule.has_validation else "projection", self.images):
            image, key = sample["image"][None].to(module.device), sample["sample_key"].view(1).to(module.device)
            predicted, ids, added = evidence(module, image, self.top_k * (1 if apart else TIMES))
            targets = Targets("unit", torch.tensor([ids], device=module.device))
            maps = explainer.attribute(model_of(module), image, targets, sample_ids=key)[0].cpu()
            tiles = []
            for first, *same in by_place(added, [-1] * len(ids) if apart else same_places(maps))[: self.top_k]:
                view, total = unit_view(sample["image"], maps[first], TILE), sum(added[each] for each in (first, *same))
                name = unit_name(units, ids[first], names, concepts)
                name += f" + {len(same)} at the same place" if same else ""
                tiles.append(unit_tile(view, f"{name}: contribution {total:+.2g}", view.legend))
            labels = (truth_of(sample, "labels") == 1).nonzero() if "labels" in sample else sample["label"]
            true = ", ".join(names[label] for label in labels.flatten().tolist())
            groups.append((f"{sample['sample_id']}: {true}, taken for {names[predicted]}", tiles))
        return groups

    def _units(self, trainer: Trainer, module: LightningModule, explainer: Explainer) -> Groups:
        table, datamodule = model_of(module).units(), datamodule_of(trainer)
        spread = torch.linspace(0, len(table.active) - 1, min(self.units, len(table.active))).round().long()
        if not len(chosen := spread[table.active.cpu()[spread]]):
            return []
        names, concepts = datamodule.class_names, datamodule.tables.concept_names
        samples = _excerpt(datamodule, "projection", max(FEWEST, len(names)))
        images, keys = (torch.stack([sample[name] for sample in samples]) for name in ("image", "sample_key"))
        units = chosen.to(module.device)
        with torch.no_grad():
            maps = [module(some.to(module.device)).maps[:, units] for some in torch.split(images, CHUNK)]
        largest, row = torch.cat([each.amax(dim=(2, 3)).cpu() for each in maps]).max(dim=0)  # the first image on ties
        views = unit_views(explainer, model_of(module), images[row], chosen[:, None], TILE, keys[row])
        tiles = []
        for unit, value, (view,) in zip(chosen.tolist(), largest.tolist(), views, strict=True):
            name = unit_name(table, unit, names, concepts)
            if table.kind not in ("concept", "class"):
                name += f" · {names[int(table.owner[unit].int().argmax())]}"
            tiles.append(unit_tile(view, name, f"largest value {value:.3g}, {view.legend}"))
        moment = f"end of epoch {trainer.current_epoch + 1}, phase {phase_of(trainer, module).name}"
        return [(f"{moment}: where {len(tiles)} units are largest", tiles)]


@torch.no_grad()
def evidence(module: LightningModule, image: Tensor, top_k: int) -> tuple[int, list[int], list[float]]:
    """The class predicted of an image ``(1, 3, H, W)``, the units that contribute most to it, and how much each does.

    Contributions are to the logit above the mean over classes; to the logit itself for multilabel data, for classes as
    units, and where there is no weight matrix. They are in descending order, ``top_k`` or all that are active.
    """
    model = model_of(module)
    output, table = model(image), model.units()
    label = output.logits.argmax(dim=1)
    contributions = model.contributions(output, label)[0]
    if table.weight is not None and table.kind != "class":
        contributions = against_others(table.weight, threshold_of(model) is not None)[label[0]] * output.scores[0]
    most = contributions.masked_fill(~table.active, -torch.inf).topk(min(top_k, int(table.active.sum())))
    return int(label), most.indices.tolist(), most.values.tolist()


def by_place(contributions: Sequence[float], first: Sequence[int]) -> list[list[int]]:
    """Positions of units by place, those first whose sum of contributions is largest.

    Args:
        contributions: of each unit.
        first: for each unit the first one at its place, as :func:`protometry.explanations.unit_view.same_places` has
            it; -1 for one by itself.

    Example:
        >>> by_place([3.0, 2.0, 2.5], [0, 1, 1])
        [[1, 2], [0]]
    """
    places: dict[int, list[int]] = {}
    for index, place in enumerate(first):
        places.setdefault(index if place < 0 else place, []).append(index)
    return sorted(places.values(), key=lambda members: -sum(contributions[index] for index in members))


def _excerpt(datamodule: ImageDataModule, split: Literal["projection", "val"], limit: int) -> list[Sample]:
    samples = datamodule.excerpt(split, limit)
    return [samples[index] for index in range(len(samples))]


def _check_positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"Expected argument `{name}` to be at least 1, but got {value}.")


def _write(trainer: Trainer, module: LightningModule, folder: str, content: bytes, ending: str = ".png") -> None:
    name = f"{phase_of(trainer, module).name.replace('/', '-')}-epoch{trainer.current_epoch:02d}{ending}"
    write_new(Path(trainer.default_root_dir) / folder / name, content)
