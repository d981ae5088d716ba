"""The request for one evaluation, and the folder of its result, which never replaces another request's."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from protometry.callbacks.evaluation.evaluation_pass import attacks, whole_split
from protometry.callbacks.evaluation.interpretability import Interpretability
from protometry.callbacks.forward.images_per_forward import default_budget
from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.load import match_data, read_datamodule, warn_of_training_photos
from protometry.evaluation.results.metrics_json import read_content
from protometry.evaluation.trained_model import TrainedModel
from protometry.run_folder.command_line.messages import program
from protometry.run_folder.layout import EVALUATION, METRICS
from protometry.run_folder.lock import only_process

LONGEST_NAME = 60  # letters of the name of a folder
DRAWN = "stratified by class"  # how the images of a limit are chosen
EvaluatedSplit = Literal["test", "val"]


@dataclass(frozen=True)
class Request:
    """One evaluation.

    Args:
        limit: number of images, drawn by class; None for all. Metrics of the whole split get all in any case.
        inference: how a ProtoTree decides, None for other models.
        other_data: of the data to evaluate on if not the run's, a ``config`` and a ``fingerprint``, among others.
        report: also write pages, if the suite has explanations.
        scores: also write the unit scores of every image.
        maps: also write the maps of all units on all images.
        other: the data of ``other_data``.
    """

    trained: TrainedModel
    engine: Interpretability
    split: EvaluatedSplit = "test"
    limit: int | None = None
    overwrite: bool = False
    inference: str | None = None
    other_data: dict[str, Any] | None = None
    report: bool = False
    scores: bool = False
    maps: bool = False
    other: ImageDataModule | None = None

    def on(self, data: Path) -> Request:
        """The same on the data that a yaml file describes.

        Raises:
            ValueError: if it is no such file, or the data have no images of classes of the model.
        """
        trained = self.trained
        other = read_datamodule(data, trained.image_size, **trained.data_changes)
        other_data = match_data(other, trained.class_names, self.split, data)
        warn_of_training_photos(trained.checkpoint, trained.path, other.dataset(self.split).sample_ids)
        return replace(self, other=other, other_data=other_data)

    @property
    def identity(self) -> dict[str, Any]:
        """Entries that distinguish evaluations of a run."""
        return {
            **self.trained.identity,
            "split": self.split,
            "limit": self.limit,
            "suite": self.engine.requested,
            "seed": self.engine.seed,
            "other_data": self.other_data,
        }

    def is_done(self, earlier: dict[str, Any]) -> bool:
        """Whether an earlier result answers this request."""
        wanted = {"inference": self.inference} | self.identity | self.engine.settings
        wanted |= {"drawn": DRAWN} if self.limit else {}
        stored = earlier | earlier.get("protocol", {})
        if self.engine.memory_budget is None:
            wanted["memory_budget"] = default_budget(stored.get("device", "cpu"))
        wanted["attacked"] = self._attacked(earlier)
        wanted["whole_split"] = (self.limit and whole_split(earlier["metrics"])) or None
        for record in (wanted, stored):
            record["other_data"] = (record.get("other_data") or {}).get("fingerprint")  # wherever the data lies
        return {name: stored.get(name) for name in wanted} == wanted

    def _attacked(self, earlier: dict[str, Any]) -> int | None:
        """The number of attacked images of a result that answers the request; None for all, or if it attacks none."""
        number = self.engine.attacked
        if number is None or number >= earlier["timing"]["images"]:
            return None
        return number if attacks(earlier["metrics"]) else None

    @contextmanager
    def reserved(self) -> Iterator[Path]:
        """The folder of the result, kept from other processes.

        Raises:
            FileExistsError: as :meth:`folder`, or if another process has just finished there.
            FolderInUseError: if another process holds it.
        """
        folder = self.folder()
        with only_process(folder):
            if self.folder() != folder:
                raise FileExistsError(
                    f"Expected {folder} to be free, but another result now lies there. Evaluate again."
                )
            yield folder

    def folder(self) -> Path:
        """The folder of the result: ``evaluation``, or a folder of its own if another result already lies there.

        A result on other data than the run's always has a folder of its own.

        Raises:
            FileExistsError: if this evaluation exists and ``overwrite`` is not set.
        """
        if done := self.done():
            if self.overwrite:
                return done
            raise FileExistsError(
                f"Expected no earlier result, but {done / METRICS} holds this evaluation already. "
                f"`{program('evaluate')} run` with `--overwrite true` replaces it."
            )
        folders = self._folders()
        for folder in folders:
            if not (folder / METRICS).exists():
                return folder
        raise FileExistsError(f"Expected {folders[-1]} to be free, but it holds another result. Move it away.")

    def done(self) -> Path | None:
        """The folder of an earlier evaluation that answers the request, or None."""
        files = (folder / METRICS for folder in self._folders())
        return next((file.parent for file in files if file.exists() and self.is_done(read_content(file))), None)

    def _folders(self) -> list[Path]:
        """Where the result may lie, in the order in which they are taken."""
        first, checkpoint = self.trained.run_folder / EVALUATION, self.trained.checkpoint
        decides = checkpoint["hyper_parameters"].get("inference")
        plain, engine = Interpretability(), self.engine
        usual = {"seed": 0, "limit": None, "inference": decides, "attacked": plain.attacked} | plain.settings
        named = {"seed": engine.seed, "limit": self.limit, "inference": self.inference, "attacked": engine.attacked}
        named |= engine.settings
        changed = [f"{name}={value}" for name, value in named.items() if value != usual[name]]
        if self.limit and whole_split(engine.suite):  # not where older results lie, which did without
            changed.append("whole")
        if self.other_data:
            changed.insert(0, f"data={Path(self.other_data['config']).stem}-{self.other_data['fingerprint'][:8]}")
        step = checkpoint["global_step"]
        own = first / evaluation_folder_name(
            [self.trained.path.stem, f"step{step}", self.split, *self.engine.requested, *changed]
        )
        return [own] if self.other_data else [first, own]


def evaluation_folder_name(settings: Sequence[str]) -> str:
    """The name of a folder for these settings, shortened with a hash of them if it is too long.

    Example:
        >>> evaluation_folder_name(["last", "step20", "test", "quanproto", "limit=5"])
        'last-step20-test-quanproto-limit=5'
        >>> asked = "asked_explainer=grad_cam(relu=True, mode=bilinear)"
        >>> evaluation_folder_name(["last", "step20", "test", "quanproto", asked])
        'last-step20-test-quanproto-explainer=grad_cam-2f2983cd'
    """
    whole = "-".join(settings)
    name = _printable(whole)
    if len(name) <= LONGEST_NAME:
        return name
    key = hashlib.sha256(whole.encode()).hexdigest()[:8]
    short = _printable("-".join(text.partition("(")[0].removeprefix("asked_") for text in settings))
    return f"{short[: LONGEST_NAME - len(key) - 1].rstrip('-.=')}-{key}"


def _printable(text: str) -> str:
    return re.sub(r"[^\w.=-]+", ".", text).strip(".")
