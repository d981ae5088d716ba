"""The predictions of a checkpoint as a table: for a split of its data, or for photos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning import LightningModule
from lightning.pytorch.utilities import rank_zero_only

from protometry.callbacks.evaluation.predictions import Prediction, as_predictions, of_predicted
from protometry.callbacks.evaluation.threshold import threshold_of
from protometry.callbacks.forward.evaluation_mode import full_precision
from protometry.callbacks.forward.images_per_forward import images_per_forward
from protometry.callbacks.forward.observer import Images, Observer
from protometry.callbacks.trainer_parts import model_of
from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.photos.one_photo import PhotoLike
from protometry.datamodules.photos.photo_files import PhotoFiles
from protometry.evaluation.export.exported_model import ExportedData, ExportedModel
from protometry.evaluation.hardware import Hardware
from protometry.evaluation.request import EvaluatedSplit
from protometry.evaluation.results.values_csv import Cell, prediction_cells
from protometry.evaluation.trained_model import TrainedModel
from protometry.evaluation.trainer import quiet_trainer
from protometry.explanations import Upsample
from protometry.lightning_modules.contract import predicted_classes
from protometry.metrics.primitives.truth import truth_of
from protometry.run_folder.atomic import write_new
from protometry.run_folder.command_line.processes import gathered
from protometry.run_folder.command_line.user_path import user_path
from protometry.run_folder.csv_text import csv_text

MOST = 3  # classes that are named with their probabilities


class Predictor(LightningModule):
    """Predictions of a model in forward passes of the same size as in evaluations, so that both are equal."""

    def __init__(self, model: LightningModule, class_names: Sequence[str], image_size: tuple[int, int]) -> None:
        super().__init__()
        self.model, self.class_names, self.image_size = model, class_names, image_size
        self.phases = model_of(model).phases  # for the progress bar

    def on_predict_start(self) -> None:
        """Choose the size of the forward passes."""
        chunk, output = images_per_forward(self.model, self.image_size, self.device)
        self.observer = Observer(model_of(self.model), Upsample(), chunk, top_k=1)
        self.abstains = "abstain" in output.extras

    def predict_step(self, batch: dict[str, Any], batch_idx: int) -> tuple[dict[str, dict[str, Cell]], list[str]]:
        """The cells of every image by its id, and why others could not be read."""
        unread: list[str] = batch.get("unread", [])
        if "image" not in batch:
            return {}, unread
        logits = self.observer.see(Images(batch["image"], batch["sample_key"], batch["sample_id"])).logits
        self.observer.refuse_broken()
        probabilities = model_of(self.model).probabilities(logits)
        predicted = predicted_classes(logits, self.abstains, threshold_of(self.model))
        labels = truth_of(batch, "labels") if "labels" in batch else batch["label"]
        predictions = as_predictions(labels, predicted, of_predicted(probabilities, predicted))
        top = logits.sort(dim=1, descending=True, stable=True).indices[:, :MOST]
        rows = zip(batch["sample_id"], predictions, top.tolist(), probabilities.gather(1, top).tolist(), strict=True)
        return {name: self._cells(*cells) for name, *cells in rows}, unread

    def _cells(self, prediction: Prediction, top: list[int], probabilities: list[float]) -> dict[str, Cell]:
        """Those of ``images.csv``, and the most probable classes; no class where the model abstains."""
        cells = prediction_cells(prediction, self.class_names)
        abstains = self.abstains and not prediction.classes
        for rank, (index, probability) in enumerate(zip(top, probabilities, strict=True), start=1):
            cells[f"top{rank}"] = None if abstains else self.class_names[index]
            cells[f"top{rank}_probability"] = None if abstains else probability
        return cells


def predict(  # noqa: PLR0913 - what the flags of the command say
    trained: TrainedModel | ExportedModel,
    hardware: Hardware,
    image: Sequence[PhotoLike] = (),
    crop: Sequence[int] | None = None,
    split: EvaluatedSplit | None = None,
    inference: str | None = None,
    output: Path | None = None,
    max_pixels: int | None = None,
) -> None:
    """Write a table of predictions, and print its path.

    Raises:
        ValueError: if both images and a split are named, or the data have no validation split to predict; after the
            table is written, if a photo could not be read.
    """
    if image and split:
        raise ValueError("Expected argument `image` or `split`, but got both. Predict one after the other.")
    module, datamodule = trained.model(inference), trained.data()
    names = trained.class_names
    data = (
        PhotoFiles(image, datamodule, names if threshold_of(module) is None else (), crop, max_pixels)
        if image
        else _split(datamodule, split or "test")
    )
    trainer = quiet_trainer(hardware, trained.run_folder)
    with full_precision(trainer.strategy.root_device):
        shares: Any = trainer.predict(Predictor(module, names, datamodule.image_size), datamodule=data)
    batches = [batch for share in gathered(shares) for batch in share]
    rows = {name: cells for read, _ in batches for name, cells in read.items()}
    unread = [reason for _, reasons in batches for reason in reasons]
    if rows:
        _write("file" if image else "sample_id", rows, user_path(output or trained.run_folder / "predictions.csv"))
    if unread:
        count = len(unread) + len(rows)
        raise ValueError(f"Expected images, but {len(unread)} of {count} files are not: {' '.join(unread)}")


def _split(datamodule: ImageDataModule | ExportedData, split: EvaluatedSplit) -> ImageDataModule:
    if isinstance(datamodule, ExportedData):
        datamodule.dataset(split)  # refuses
    if split == "val" and not datamodule.has_validation:
        raise ValueError("Expected a run with a validation split to predict, but it has none.")
    datamodule.configure_loaders(split=split)
    return datamodule


@rank_zero_only
def _write(kind: str, rows: dict[str, dict[str, Cell]], path: Path) -> None:
    header = [kind, *next(iter(rows.values()))]
    text = csv_text([header, *([name, *row.values()] for name, row in sorted(rows.items()))])
    print(f"predictions: {write_new(path, text.encode())}")
