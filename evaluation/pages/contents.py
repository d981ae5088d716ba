"""What the report of an evaluation shows: the images, units and classes with a page, and its name."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

from torch import Tensor

from protometry.datamodules.sample import sample_key
from protometry.evaluation.explained.additive import contributions
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.explained.scan import Scan, scan_evaluated
from protometry.evaluation.limits import Limits
from protometry.evaluation.pages.evaluation_files import EvaluationFiles
from protometry.evaluation.pages.site import key_of
from protometry.explanations.decision import Decision, decide
from protometry.lightning_modules.contract import DecidesByTree, ModelOutput
from protometry.metrics.functional import decision_share

MOST = 5  # units that the share of a decision is about


class ReportContents:
    """What all pages of a report draw on.

    Attributes:
        outputs: what the model says of the evaluated images.
        rows: positions of the images with a page.
        decided: ``(U,)`` float64, mean absolute contribution of every unit to the class with the largest logit.
        units: with a page, those that decide most first.

    Raises:
        ValueError: if the model is not the one that was evaluated.
    """

    def __init__(self, explained: ExplainedModel, files: EvaluationFiles, limits: Limits) -> None:
        self.explained, self.files, self.limits = explained, files, limits
        self.outputs, self.dataset = scan_evaluated(explained.model, explained.datamodule, files.result)
        self.rows = choose_images(self.outputs, limits.images)
        self.decided = decided(explained, self.outputs)
        self.units = [] if explained.units.kind == "class" else choose_units(self.decided, limits.units)
        self.image_links = {name: image_link(name) for name in (self.outputs.sample_ids[row] for row in self.rows)}
        self.unit_links = {unit: f"unit-{unit}.html" for unit in self.units}
        classes = range(min(len(explained.class_names), limits.classes))
        self.class_links = {label: f"class-{label}.html" for label in classes}

    @cached_property
    def shown_shares(self) -> tuple[float | None, float | None]:
        """Mean shares of a decision that its strongest units carry, or the path through a tree; None of classes.

        Against the mean over classes, and against the class with the next logit, which may be carried by other units;
        the latter None of trees and of multilabel data, where classes do not compete.
        """
        if self.explained.units.kind == "class":
            return None, None
        output = _output(self.explained, self.outputs, range(len(self.outputs.sample_ids)))
        label, rival = output.logits.topk(2, dim=1).indices.T
        several, model = self.explained.threshold is not None, self.explained.model
        own = _share(decide(model, output, label, MOST, several))
        if several or isinstance(model, DecidesByTree):
            return own, None
        return own, _share(decide(model, output, label, MOST, rivals=rival))


def _share(decision: Decision) -> float | None:
    share = float(decision_share(decision.contributions, decision.shown).nanmean())
    return None if math.isnan(share) else share


def image_link(sample_id: str) -> str:
    """The page of an image."""
    return f"image-{key_of(sample_id)}.html"


def choose_images(outputs: Scan, most: int) -> list[int]:
    """Positions of the images to show: up to half of them wrong, the classes in turn, by the hash of their ids."""
    wrong, right = ([i for i, correct in enumerate(outputs.correct) if correct == wanted] for wanted in (False, True))
    chosen = spread(wrong, outputs, max(most // 2, most - len(right)))
    return chosen + spread(right, outputs, most - len(chosen))


def choose_units(decided: Tensor, most: int) -> list[int]:
    """The units with a page: those that decide most, in descending order, and none that decide nothing."""
    order: list[int] = decided.argsort(descending=True, stable=True)[:most].tolist()
    return [unit for unit in order if decided[unit] > 0]


def decided(explained: ExplainedModel, outputs: Scan) -> Tensor:
    """``(U,)`` float64, mean absolute contribution of every unit to the class with the largest logit."""
    total = outputs.scores.new_zeros(outputs.scores.shape[1])
    for label in sorted(set(outputs.predicted)):
        rows = [row for row, predicted in enumerate(outputs.predicted) if predicted == label]
        total += contributions_of(explained, outputs, rows, label).abs().sum(dim=0)
    return total / max(len(outputs.predicted), 1)


def contributions_of(explained: ExplainedModel, outputs: Scan, rows: Sequence[int], label: int) -> Tensor:
    """``(n, U)`` float64 :func:`.contributions` of all units to a class in some images."""
    return contributions(explained.model, explained.units, _output(explained, outputs, rows), label)


def _output(explained: ExplainedModel, outputs: Scan, rows: Sequence[int]) -> ModelOutput:
    """Logits, scores and context of some images, as the model gives them."""
    output, device = outputs.output(rows), explained.units.active.device
    logits, scores, maps = (each.float().to(device) for each in (output.logits, output.scores, output.maps))
    extras = {name: value.to(device) for name, value in output.extras.items()}
    return ModelOutput(logits, scores, maps, None, extras)


def spread(rows: list[int], outputs: Scan, most: int) -> list[int]:
    """Some of the images, the classes in turn."""
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: sample_key(outputs.sample_ids[row])):
        groups[outputs.labels[row]].append(row)
    turns = [(turn, label, row) for label, members in groups.items() for turn, row in enumerate(members)]
    return [row for _, _, row in sorted(turns)[:most]]
