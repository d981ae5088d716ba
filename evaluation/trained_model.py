"""A checkpoint of a run that is opened once, and the model, data and results that belong to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from protometry.callbacks.run.training_record import recorded_training
from protometry.datamodules.load import datamodule_from
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.pages import EvaluationFiles, read_evaluation
from protometry.evaluation.results.metrics_json import Result
from protometry.evaluation.results.runs import evaluations
from protometry.explanations import Explainer
from protometry.lightning_modules.bases.load import model_from
from protometry.run_folder.checkpoint_file import read_checkpoint
from protometry.run_folder.command_line.messages import program
from protometry.run_folder.command_line.user_path import shown
from protometry.run_folder.hub import model_path
from protometry.run_folder.layout import folder_of_run


@dataclass(frozen=True)
class TrainedModel:
    """A checkpoint, the place of its data, and the classes that it may name.

    Args:
        path: of the file; where :func:`.open_model` is asked, also the folder of an exported model.
        data_changes: arguments of the data module that differ from training, such as ``root``.
        allow_classes: packages whose classes the checkpoint may name besides this project's.
    """

    path: Path
    data_changes: Mapping[str, Any] = field(default_factory=dict)
    allow_classes: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", model_path(self.path))

    @classmethod
    def of_flags(cls, ckpt_path: str | Path, data_root: str | None, allow_classes: str | None) -> TrainedModel:
        """From a command line, with packages separated by commas."""
        allowed = allow_classes.split(",") if allow_classes else ()
        return cls(Path(ckpt_path), {"root": data_root} if data_root else {}, allowed)

    @classmethod
    def of_result(cls, result: Result, data_root: str | None, allow_classes: str | None) -> TrainedModel:
        """The checkpoint of an evaluation, with the flags of a command line."""
        return cls.of_flags(result.run / result.checkpoint, data_root, allow_classes)

    @cached_property
    def checkpoint(self) -> dict[str, Any]:
        """The content of the file, tensors mapped from the disk.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is damaged or not one of ours.
        """
        return read_checkpoint(self.path, mmap=True)

    @cached_property
    def training(self) -> dict[str, Any]:
        """What ``metrics.json`` says of the training of the weights."""
        return recorded_training(self.path, self.checkpoint)

    @property
    def identity(self) -> dict[str, Any]:
        """What distinguishes checkpoints of a run; a resumed run replaces the file and continues counting."""
        name = self.path.absolute().relative_to(self.run_folder.absolute()).as_posix()
        return {"checkpoint": name, "step": self.checkpoint["global_step"]}

    @property
    def run_folder(self) -> Path:
        """The folder of the run it belongs to."""
        return folder_of_run(self.path)

    @property
    def image_size(self) -> Sequence[int]:
        """Height and width of its images in pixels."""
        size: Sequence[int] = self.checkpoint["hyper_parameters"]["image_size"]
        return size

    @property
    def class_names(self) -> list[str]:
        """The names of the classes that the logits are of."""
        recorded = self.checkpoint.get("training") or self.checkpoint["released"]
        names: list[str] = recorded["class_names"]
        if len(names) != self.checkpoint["hyper_parameters"].get("num_classes"):
            raise ValueError(f"Expected {self.path} to name as many classes as it has, but got {len(names)} names.")
        return names

    def model(self, inference: str | None = None) -> Any:
        """The model, in evaluation mode."""
        changes = {} if inference is None else {"inference": inference}
        return model_from(self.checkpoint, self.path, self.allow_classes, **changes)

    def data(self) -> Any:
        """The data of the run.

        Raises:
            FileNotFoundError: if the data are not where they were.
        """
        data = datamodule_from(self.checkpoint, self.path, self.allow_classes, **self.data_changes)
        try:
            _ = data.num_classes  # which reads folders and tables
        except FileNotFoundError as error:
            moved = "" if "root" in self.data_changes else " If the data have moved, pass `--data_root DIR`."
            raise FileNotFoundError(
                f"{error}{moved} Without them, `protometry export {shown(self.path)} --format pt2` writes the network "
                "alone, and a model that was exported before predicts and explains photos."
            ) from error
        return data

    def explained(
        self,
        explainer: Explainer | None = None,
        size: int = 144,
        inference: str | None = None,
    ) -> ExplainedModel:
        """The model with the data of its run, for pages and pictures."""
        return ExplainedModel(self.model(inference), self.data(), explainer, size, self.class_names)

    def result(self, of_equal: bool = False) -> Result | None:
        """The preferred evaluation of this checkpoint on the data of its run, if there is one.

        Args:
            of_equal: also of the other checkpoint, if it was written at the same step.
        """
        own = [result for result in evaluations(self.run_folder) if not result.other_data]
        of_this = [r for r in own if self.identity == {"checkpoint": r.checkpoint, "step": r.step}]
        equal = [r for r in own if of_equal and r.step == self.identity["step"]]
        return next(iter(of_this + equal), None)

    def chosen_evaluation(self) -> Path:
        """The folder of the preferred evaluation of this checkpoint on the data of its run.

        Raises:
            FileNotFoundError: if there is none.
        """
        if result := self.result():
            return result.path.parent
        every, step = evaluations(self.run_folder), self.identity["step"]
        raise FileNotFoundError(
            f"Expected an evaluation of {self.path}, step {step}, on the data of its run, but "
            f"none of the {len(every)} in {self.run_folder / 'evaluation'} is. Run `{program('evaluate')} run "
            f"--ckpt_path {self.path}` first."
        )

    def evaluated(
        self, folder: Path, explainer: Explainer | None = None, size: int = 144
    ) -> tuple[ExplainedModel, EvaluationFiles]:
        """The same as in an evaluation, and the results of that evaluation.

        Raises:
            FileNotFoundError: if there is no evaluation.
            ValueError: if it is of another checkpoint, or on other data than the run's.
        """
        files = read_evaluation(folder)
        stored, asked = files.result, self.identity
        if stored["other_data"] or any(stored[name] != value for name, value in asked.items()):
            raise ValueError(
                f"Expected {folder} to be the evaluation of {self.path}, step {asked['step']}, on the data of its run, "
                f"but it is of {stored['checkpoint']}, step {stored['step']}, on "
                f"{'other' if stored['other_data'] else 'these'} data. Evaluate the checkpoint again, or name another "
                "evaluation."
            )
        return self.explained(explainer, size, stored["protocol"].get("inference")), files
