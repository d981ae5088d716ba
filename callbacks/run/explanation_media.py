"""How a model explains the same images during training, and what its units resemble most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning import Callback, LightningModule, Trainer
from PIL import Image
from torch import Tensor

from protometry.callbacks.evaluation.interpretability import Interpretability
from protometry.callbacks.evaluation.threshold import threshold_of
from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.run.drawing import drawing
from protometry.callbacks.run.loggers import log_images
from protometry.callbacks.trainer_parts import callback_of, datamodule_of, model_of, phase_of
from protometry.explanations import Explainer, Targets, Upsample, choose_explainer, unit_tile, unit_view, unit_views
from protometry.explanations.decision import against_others
from protometry.explanations.unit_view import same_places, unit_name
from protometry.explanations.views import png, sheet
from protometry.lightning_modules.contract import InterpretableModel
from protometry.metrics.primitives.truth import truth_of
from protometry.run_folder.atomic import write_new

CHUNK = 8  # images of a forward
FEWEST = 64  # training images among which units look for what they are like, or one of each class if that is more
TIMES = 3  # units looked at, times as many as shown, since several may look at one place
PER_LINE, TILE = 3, 112  # tiles in a line of a sheet, and the side of their pictures in pixels


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
        numbers = {"images": images, "top_k": top_k, "units": units, "every_n_epochs": every_n_epochs}
        for name, value in numbers.items():
            if value < 1:
                raise ValueError(f"Expected argument `{name}` of ExplanationMedia to be at least 1, but got {value}.")
        self.images, self.top_k, self.units, self.every_n_epochs = images, top_k, units, every_n_epochs

    @drawing("pictures of explanations")
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the images and the units, if it is time."""
        plan, epoch = model_of(pl_module).phases(), trainer.current_epoch
        last = epoch + 1 == trainer.max_epochs or plan.locate(epoch)[0] != plan.locate(epoch + 1)[0]
        if (last or (epoch + 1) % self.every_n_epochs == 0) and _shows(trainer):
            self._show_images(trainer, pl_module)
            self._show_units(trainer, pl_module)

    def _show_images(self, trainer: Trainer, module: LightningModule) -> None:
        datamodule, model = datamodule_of(trainer), model_of(module)
        units, names, concepts = model.units(), datamodule.class_names, datamodule.tables.concept_names
        if not units.active.any():  # such as a tree that is pruned to a leaf
            return
        samples = datamodule.excerpt("val" if datamodule.has_validation else "projection", self.images)
        apart = units.kind in ("concept", "class")
        groups = []
        with evaluation_mode(module):
            explainer = _explainer(trainer, model)
            for sample in (samples[index] for index in range(len(samples))):
                strongest = evidence(module, sample["image"], self.top_k * (1 if apart else TIMES))
                key = sample["sample_key"].view(1).to(module.device)
                targets = Targets("unit", torch.tensor([strongest.units], device=module.device))
                image = sample["image"][None].to(module.device)
                maps = explainer.attribute(model, image, targets, sample_ids=key)[0].cpu()
                tiles = []
                for index, *same in strongest.by_place([-1] * len(maps) if apart else same_places(maps))[: self.top_k]:
                    total = sum(strongest.contributions[each] for each in (index, *same))
                    view = unit_view(sample["image"], maps[index], TILE)
                    more = f" + {len(same)} at the same place" if same else ""
                    name = unit_name(units, strongest.units[index], names, concepts)
                    tiles.append(unit_tile(view, f"{name}{more}: contribution {total:+.2g}", view.legend))
                several = "labels" in sample
                labels = (truth_of(sample, "labels") == 1).nonzero().flatten() if several else sample["label"].view(1)
                true, predicted = ", ".join(names[label] for label in labels.tolist()), names[strongest.label]
                groups.append((f"{sample['sample_id']}: {true}, taken for {predicted}", tiles))
        _publish(trainer, module, "explanations", groups)

    def _show_units(self, trainer: Trainer, module: LightningModule) -> None:
        model, datamodule = model_of(module), datamodule_of(trainer)
        table, classes = model.units(), datamodule.class_names
        chosen = torch.linspace(0, len(table.active) - 1, min(self.units, len(table.active))).round().long()
        chosen = chosen[table.active.cpu()[chosen]]
        if not len(chosen):
            return
        excerpt = datamodule.excerpt("projection", max(FEWEST, len(classes)))
        samples = [excerpt[index] for index in range(len(excerpt))]
        largest, row = best_images(module, [sample["image"] for sample in samples], chosen)
        images, keys = (torch.stack([samples[index][name] for index in row]) for name in ("image", "sample_key"))
        tiles = []
        with evaluation_mode(module):
            views = unit_views(_explainer(trainer, model), model, images, chosen[:, None], TILE, keys)
            for unit, value, (view,) in zip(chosen.tolist(), largest.tolist(), views, strict=True):
                name = unit_name(table, unit, classes, datamodule.tables.concept_names)
                if table.kind not in ("concept", "class"):
                    name += f" · {classes[int(table.owner[unit].int().argmax())]}"
                tiles.append(unit_tile(view, name, f"largest value {value:.3g}, {view.legend}"))
        phase, epoch = phase_of(trainer, module).name, trainer.current_epoch + 1
        title = f"end of epoch {epoch}, phase {phase}: where {len(tiles)} units are largest"
        _publish(trainer, module, "units", [(title, tiles)], "-units")


@dataclass(frozen=True)
class Evidence:
    """The evidence for the class a model predicts.

    Args:
        label: the class.
        units: the units with the largest contributions to its logit, in descending order.
        contributions: to the logit above the mean over classes; to the logit itself for multilabel data, for classes as
            units, and where there is no weight matrix.
    """

    label: int
    units: list[int]
    contributions: list[float]

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
    """The units that contribute most to the predicted class, ``top_k`` of them or all that are active."""
    model = model_of(module)
    output, table = model(image[None].to(module.device)), model.units()
    label = output.logits.argmax(dim=1)
    contributions = model.contributions(output, label)[0]
    if table.weight is not None and table.kind != "class":
        contributions = against_others(table.weight, threshold_of(model) is not None)[label[0]] * output.scores[0]
    units = contributions.masked_fill(~table.active, -torch.inf).topk(min(top_k, int(table.active.sum()))).indices
    return Evidence(label=int(label), units=units.tolist(), contributions=contributions[units].tolist())


@torch.no_grad()
def best_images(module: LightningModule, images: Sequence[Tensor], units: Tensor) -> tuple[Tensor, Tensor]:
    """The largest value ``(M,)`` of the maps of each unit ``(M,)``, and the image it is in, the first on ties."""
    largest = []
    with evaluation_mode(module):
        for start in range(0, len(images), CHUNK):
            maps = module(torch.stack(list(images[start : start + CHUNK])).to(module.device)).maps
            largest.append(maps[:, units.to(module.device)].amax(dim=(2, 3)).cpu())
    value, row = torch.cat(largest).max(dim=0)
    return value, row


def _publish(
    trainer: Trainer,
    module: LightningModule,
    key: str,
    groups: Sequence[tuple[str, Sequence[Image.Image]]],
    ending: str = "",
) -> None:
    """One sheet in the run folder, one picture per group in the loggers."""
    name = f"{phase_of(trainer, module).name.replace('/', '-')}-epoch{trainer.current_epoch:02d}{ending}.png"
    titles = [title for title, _ in groups]
    whole = sheet([tiles for _, tiles in groups], PER_LINE, titles)
    write_new(Path(trainer.default_root_dir) / "explanations" / name, png(whole))
    pictures = [sheet([tiles], PER_LINE, [title]) for title, tiles in groups]
    log_images(trainer.loggers, f"media/{key}", pictures, titles, trainer.global_step - 1)


def _explainer(trainer: Trainer, model: InterpretableModel) -> Explainer:
    """The evaluation's explainer, or upsampled maps where that one explains classes only."""
    engine = callback_of(trainer, Interpretability)
    chosen = choose_explainer(None if engine is None else engine.explainer, model)
    return chosen if "unit" in chosen.explains else Upsample()


def _shows(trainer: Trainer) -> bool:
    """On rank zero; a trial run leaves nothing behind."""
    return trainer.is_global_zero and not trainer.fast_dev_run  # type: ignore[attr-defined]
