"""What a person changes in a decision of a trained model, and what the model makes of it; without a browser."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from protometry.callbacks.phases.head import ScoresAndTargets, head_data, read_head_path
from protometry.callbacks.phases.pruning import IgnoresUnits, Prunable, remove
from protometry.datamodules.photos.one_photo import PhotoLike, read_photo
from protometry.evaluation.edit import edited_phases
from protometry.evaluation.explained.additive import with_scores
from protometry.evaluation.explained.explained_model import ExplainedImage, ExplainedModel
from protometry.evaluation.explained.scan import loaders, samples_of
from protometry.evaluation.explained.unit_sources import UnitSources
from protometry.evaluation.export.exported_model import ExportedModel, open_model
from protometry.evaluation.pages.answer import Answer
from protometry.evaluation.pages.corrections import annotated_concepts, can_correct
from protometry.evaluation.trained_model import TrainedModel
from protometry.lightning_modules.contract import FitsHead, InterpretableModel, Intervenable, ModelOutput
from protometry.lightning_modules.phases import FIT_HEAD, HeadSpec

MEGAPIXELS, LISTED = 40, 200  # of a photo; test images that are offered


@dataclass(frozen=True)
class Changes:
    """What a person changes in a decision.

    Args:
        off: units whose scores become 0, as those of inactive units are.
        concepts: whether the image shows a concept, by its unit, as a person corrects it.
        step: of the path of last layers; None for the layer of the model.
        fit: whether the last layer is fitted to the units that are left, as by ``protometry edit``.
    """

    off: frozenset[int] = frozenset()
    concepts: Mapping[int, bool] = field(default_factory=dict)
    step: int | None = None
    fit: bool = False


@dataclass(frozen=True)
class Decision:
    """What a model says of an image after changes.

    Args:
        before: ``(K,)`` probabilities without any change.
        now: with them.
    """

    answer: Answer
    image: ExplainedImage
    before: Tensor
    now: Tensor


def changed(model: InterpretableModel, output: ModelOutput, changes: Changes) -> ModelOutput:
    """The output after changes of scores: units off first, then concepts as a person corrects them."""
    scores = output.scores
    if changes.off:
        scores = scores.index_fill(1, torch.tensor(sorted(changes.off), device=scores.device), 0.0)
    if changes.concepts and isinstance(model, Intervenable):
        truth, mask = torch.zeros_like(scores, dtype=torch.bool), torch.zeros_like(scores, dtype=torch.bool)
        for unit, shown in changes.concepts.items():
            truth[:, unit], mask[:, unit] = shown, True
        scores = model.intervene(scores, truth, mask)
    return with_scores(model, output, scores)


def open_explorer(model: str | Path, data_root: str | None = None, allow_classes: str | None = None) -> Explorer:
    """The explorer of a checkpoint, or of the folder of an exported model.

    Raises:
        FileNotFoundError: if there is no such model, or the data of a run are not at hand.
        ValueError: if it is damaged.
    """
    return Explorer(open_model(model, data_root, allow_classes))


class Explorer:
    """Explains photos and test images under changes, one at a time, also for several people.

    Args:
        opened: a checkpoint, or the folder of an exported model.
        size: longer side of the pictures of units in pixels.

    Attributes:
        table: the units of the model, and all others that another last layer of the path reads.
        units: numbers of the units that can be switched off; none for models whose concepts are corrected instead, and
            for those whose units are classes.
        concepts: numbers of the units that a person can correct.
        path: the last layers that the run solved; None without several.
        fits: whether the last layer can be fitted to some of the units.
        removable: whether ``protometry edit`` can remove units.
    """

    def __init__(self, opened: TrainedModel | ExportedModel, size: int = 144) -> None:
        self.explained = base = opened.explained(size=size)
        self.model: Any = base.model
        self.data: Any = None if isinstance(opened, ExportedModel) else base.datamodule
        self.table = base.units
        self.path = None if self.data is None else read_head_path(opened.run_folder, base.units.weight)
        self.sources = base.sources
        if self.path is not None:
            every = self._with_layer(self.path.weights.abs().sum(dim=0))
            self.table, neighbours = every.units(), base.sources.neighbours
            self.sources = UnitSources(every, base.datamodule, base.explainer, base.class_names, size)
            self.sources.neighbours = neighbours
        self.active: list[int] = self.table.active.nonzero().flatten().tolist()
        corrected = can_correct(self.model)
        self.concepts = self.active if corrected else []
        self.units = [] if corrected or base.units.kind == "class" else self.active
        self.removable = self.data is not None and isinstance(self.model, Prunable | IgnoresUnits)
        self.fits = self._spec() is not None
        self.alone = Lock()  # explainers watch the layers of the model, and Pillow has one limit for all
        self._at = lru_cache(16)(self._explained_at)

    # -- images ------------------------------------------------------------------------------------------------------
    @cached_property
    def test_images(self) -> list[str]:
        """Ids of up to 200 test images, drawn by class; none without data."""
        if self.data is None:
            return []
        with loaders(self.data, "test", LISTED) as loader:
            return list(loader.dataset.sample_ids)

    def read(self, photo: PhotoLike | None = None, sample_id: str | None = None) -> dict[str, Any]:
        """A photo, or a test image of the data.

        Raises:
            ValueError: if the photo is none, or the data have no such image.
        """
        if photo is not None:
            with self.alone:
                return read_photo(photo, self.explained.datamodule, max_pixels=MEGAPIXELS * 1_000_000)
        dataset = self.explained.datamodule.dataset("test")
        return dict(samples_of(dataset, [str(sample_id)])[0])

    def annotated(self, sample: Mapping[str, Any]) -> dict[int, bool]:
        """What the data say of the concepts in an image, where they know."""
        truth = annotated_concepts(self.explained, sample)
        known = {} if truth is None else {unit: float(truth[unit]) for unit in self.concepts}
        return {unit: value == 1 for unit, value in known.items() if value == value}

    # -- decisions ---------------------------------------------------------------------------------------------------
    def decide(self, sample: Mapping[str, Any], changes: Changes | None = None) -> Decision:
        """What the model says of an image, and why.

        Raises:
            ValueError: if there is nothing to fit the last layer to.
        """
        changes = changes or Changes()
        with self.alone:
            explained = self._at(changes.step, changes.off if changes.fit else None)
            (image,) = explained.explain(
                [sample], "the answer", 1, change=lambda output: changed(explained.model, output, changes)
            )
            with torch.no_grad():
                before = self.model(sample["image"][None].to(image.output.scores.device)).logits
                before, now = (self.model.probabilities(logits)[0].cpu() for logits in (before, image.output.logits))
            return Decision(Answer(image, explained), image, before, now)

    # -- last layers -------------------------------------------------------------------------------------------------
    def _explained_at(self, step: int | None, off: frozenset[int] | None) -> ExplainedModel:
        """The model with another last layer."""
        base = self.explained
        if off:
            model = self._fitted(off)
        elif self.path is not None and step not in (None, self.path.chosen):
            model = self._with_layer(self.path.weights[step])
        else:
            return base
        names = base.class_names, base.concept_names
        return ExplainedModel(model, base.datamodule, base.explainer, base.size, *names, self.sources)

    def _copy(self) -> Any:
        return deepcopy(self.model, {id(self.model.backbone): self.model.backbone})  # which both share

    def _with_layer(self, weight: Tensor) -> Any:
        model = self._copy()
        if hasattr(model, "prototypes"):
            model.prototypes.active.fill_(True)  # all that the layer reads
        model.load_weights(weight)
        return model

    @cached_property
    def _training(self) -> tuple[ScoresAndTargets, ScoresAndTargets | None]:
        return head_data(self.model, self.explained.datamodule)

    def _spec(self) -> HeadSpec | None:
        """How ``protometry edit`` solves the last layer; None where it trains one, or cannot remove units."""
        if not (self.removable and isinstance(self.model, FitsHead)):
            return None
        try:
            phase = next(phase for phase in edited_phases(self.model, []).values() if phase)
        except ValueError:
            return None
        return HeadSpec(**phase["head"]) if FIT_HEAD in phase["on_enter"] else None

    def _fitted(self, off: frozenset[int]) -> Any:
        model, spec = self._copy(), self._spec()
        if spec is None or off >= set(model.units().active.nonzero().flatten().tolist()):
            raise ValueError(
                "Expected some active units to be left, to which a last layer can be solved, but got none."
            )
        gone = torch.zeros_like(model.units().active)
        gone[list(off)] = True
        remove(model, gone)
        model.fit_head(*self._training, spec)
        return model
