"""The file ``metrics.json`` of one evaluation, written and read, and the conditions under which two are comparable."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protometry.evaluation.results.schema import EvaluationRecord, MetricsFile
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.command_line.messages import counted
from protometry.run_folder.layout import METRICS, run_of_evaluation
from protometry.run_folder.schema import check_content, read_json

# protocol fields that say on what machine, or what was found, not how it was measured
_INCIDENTAL = (
    "memory_budget",
    "images_per_forward",
    "device",
    "units_per_image",
    "signed_maps",
    "codecs",
    "train_seed",
    "asked_explainer",
    "decision_threshold",
    "state_dict",
)
UNRECORDED = "not recorded"
REMEDY = "Evaluate the run again."


class Result(EvaluationRecord):
    """One evaluation of one run; its metrics are followed by their baselines, as :func:`with_baselines` gives them.

    Args:
        protocol: how the numbers were made.
        training: what decided the weights.
        other_data: what it was evaluated on, if not the run's data, else None.
        timing: when it ended, and how long it took.
        others: the other evaluations of the run, where the run was named.
    """

    path: Path
    protocol: dict[str, Any]
    training: dict[str, Any]
    other_data: dict[str, Any] | None
    timing: dict[str, Any]
    others: tuple[Result, ...] = ()

    @property
    def run(self) -> Path:
        """The folder of the run."""
        return run_of_evaluation(self.path.parent)

    @property
    def source(self) -> str:
        """What was read, such as ``"evaluation, best.ckpt at step 4"``."""
        folder = self.path.parent.relative_to(self.run).as_posix()
        return f"{folder}, {Path(self.checkpoint).name} at step {self.step}"

    @property
    def train_seed(self) -> int | None:
        """Seed of the training, not of the perturbations."""
        seed: int | None = self.protocol.get("train_seed")
        return seed

    @property
    def variant(self) -> str:
        """The reading of the formulas; ``"paper"`` is the default of all metrics."""
        return str(self.protocol.get("variant", "paper"))

    @property
    def conditions(self) -> dict[str, Any]:
        """Everything two results must share to be averaged, by name."""
        stated = {name: value for name, value in self.protocol.items() if name not in (*_INCIDENTAL, "variant")}
        return {
            "dataset": self.dataset,
            "model": self.model,
            "split": self.split,
            "limit": self.limit,
            "folds": self.fold is not None,
            "variant": self.variant,
            "explainer": self.explainer,
            **stated,
            "other_data": self.other_data,
            "training": self._training_conditions,
        }

    @property
    def _training_conditions(self) -> dict[str, Any]:
        """The training without what may differ between seeds: how long early stopping let a complete one last."""
        outcome = ("epochs", "phase") if self.training.get("complete") else ()
        return {name: value for name, value in self.training.items() if name not in outcome}

    @property
    def is_recorded(self) -> bool:
        """Whether the run says how it was trained; released weights do not."""
        return "phases" in self.training

    @property
    def incomplete_training(self) -> str | None:
        """Where the schedule was cut short, or None if it was not or nothing says so."""
        return incomplete_training(self.training)

    @property
    def incidentals(self) -> dict[str, Any]:
        """What two results may differ in and still be averaged."""
        lasted = {"epochs": self.training["epochs"]} if self.training.get("complete") else {}
        return {name: value for name, value in self.protocol.items() if name in _INCIDENTAL} | lasted


def incomplete_training(training: Mapping[str, Any]) -> str | None:
    """A mark for results of a schedule that was cut short, None for others.

    Example:
        >>> incomplete_training({"complete": False, "phase": "joint", "projected": False})
        'cut short in joint, not projected'
    """
    if training.get("complete") is not False:
        return None
    return f"cut short in {training['phase']}" + {False: ", not projected", True: ", projected"}.get(
        training["projected"], ""
    )


def write_metrics(result: dict[str, Any], folder: Path) -> None:
    """Write strict JSON, completely or not at all; undefined numbers become null."""
    text = json.dumps(_strict(result), indent=2, allow_nan=False, ensure_ascii=False)
    write_atomic(folder / METRICS, text + "\n")


def read_metrics(file: Path) -> Result:
    """Read one evaluation.

    Raises:
        ValueError: as :func:`read_content`.
    """
    content = read_content(file)
    rows = with_baselines(content["metrics"])
    result: Result = check_content(Result, content | {"path": file, "metrics": rows}, file, REMEDY)
    return result


def read_content(file: Path) -> dict[str, Any]:
    """The content of a ``metrics.json``.

    Raises:
        ValueError: if the file is not strict JSON of this schema, naming every key that is wrong.
    """
    content: dict[str, Any] = read_json(file, REMEDY)
    check_content(MetricsFile, content, file, REMEDY)
    return content


def lacking(entry: Mapping[str, Any]) -> str:
    """What a value could not count, in words: classes or labels without an image, unknown values; empty if nothing.

    Example:
        >>> lacking({"averaged_over": "class", "without_images": 2, "unknown": 1})
        '2 classes have no image; 1 annotation is unknown and left out'
    """
    classes, unknown, said = entry.get("without_images", 0), entry.get("unknown", 0), []
    if classes:
        said.append(f"{counted(classes, entry['averaged_over'])} {'has' if classes == 1 else 'have'} no image")
    if unknown:
        said.append(f"{counted(unknown, 'annotation')} {'is' if unknown == 1 else 'are'} unknown and left out")
    return "; ".join(said)


def with_baselines(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """All entries of a ``metrics.json``, each followed by what it should be compared with.

    Returns:
        The entries, and one for every lift over a baseline, for the majority baseline, for true and for other concepts
        in place of predicted ones, and for a centred cosine.

    Example:
        >>> entry = {"value": 0.8, "ci95": [0.7, 0.9], "lift_over_chance": 0.3}
        >>> entry |= {"lift_over_chance_low": 0.2, "lift_over_chance_high": 0.4}
        >>> {key: (row["value"], row["ci95"]) for key, row in with_baselines({"concepts/cem@5": entry}).items()}
        {'concepts/cem@5': (0.8, [0.7, 0.9]), 'concepts/cem@5, over chance': (0.3, [0.2, 0.4])}
    """
    rows: dict[str, Any] = {}
    for key, entry in metrics.items():
        rows[key] = entry
        for name in entry:
            if name in ("majority", "oracle", "other_concepts", "centered"):
                rows[f"{key}, {name.replace('_', ' ')}"] = entry | {"value": entry[name], "ci95": [None, None]}
            elif f"{name}_low" in entry and f"{name}_high" in entry:
                bounds = [entry[f"{name}_low"], entry[f"{name}_high"]]
                rows[f"{key}, {name.removeprefix('lift_').replace('_', ' ')}"] = entry | {
                    "value": entry[name],
                    "ci95": bounds,
                }
    return rows


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
