"""Reading evaluations back: ``metrics.json`` of one or many runs, and what makes two of them comparable."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

SCHEMA = 1
# protocol fields that say on what machine, or what was found, not how it was measured
_INCIDENTAL = (
    "memory_budget",
    "images_per_forward",
    "units_per_image",
    "signed_maps",
    "codecs",
    "train_seed",
    "asked_explainer",
)
_FIELDS = ("model", "dataset", "fold", "split", "seed", "explainer", "protocol", "metrics", "skipped")


@dataclass(frozen=True)
class Measured:
    """One metric of one evaluation.

    Args:
        value: None where undefined.
        low: lower bound of the 95 % interval, or None.
        high: upper bound, or None.
        unit: such as ``"fraction"``.
        higher_is_better: direction, or None.
    """

    value: float | None
    low: float | None
    high: float | None
    unit: str
    higher_is_better: bool | None


@dataclass(frozen=True)
class Result:
    """One evaluation of one run.

    Args:
        path: its ``metrics.json``.
        model: class name.
        dataset: name of the data module's file.
        fold: of cross-validation, or None.
        split: of the data.
        seed: of perturbations.
        limit: number of images if not the whole split.
        explainer: key of the explainer, or None.
        protocol: how the numbers were made.
        metrics: by key.
        skipped: key -> why it is not applicable.
    """

    path: Path
    model: str
    dataset: str
    fold: int | None
    split: str
    seed: int
    limit: int | None
    explainer: str | None
    protocol: dict[str, Any]
    metrics: dict[str, Measured]
    skipped: dict[str, str]

    @property
    def run(self) -> Path:
        """The folder of the run."""
        above = next((folder for folder in self.path.parents if folder.name == "evaluation"), self.path.parent)
        return above.parent if above.name == "evaluation" else above

    @property
    def variant(self) -> str:
        """Which reading of the formulas; ``"paper"`` is what metrics do unless told otherwise."""
        return str(self.protocol.get("variant", "paper"))

    @property
    def conditions(self) -> dict[str, Any]:
        """Everything two results must share to be averaged, by name."""
        told = {name: value for name, value in self.protocol.items() if name not in (*_INCIDENTAL, "variant")}
        return {
            "dataset": self.dataset,
            "model": self.model,
            "split": self.split,
            "limit": self.limit,
            "folds": self.fold is not None,
            "variant": self.variant,
            "explainer": self.explainer,
            **told,
        }

    @property
    def incidentals(self) -> dict[str, Any]:
        """Protocol fields that two results may differ in."""
        return {name: value for name, value in self.protocol.items() if name in _INCIDENTAL}


def collect(paths: Sequence[str | Path]) -> list[Result]:
    """Read the evaluations of runs.

    Args:
        paths: run folders, their ``evaluation`` folders, or ``metrics.json`` files. A run folder stands for
            ``evaluation/metrics.json``; further evaluations of a run are named by their own folder.

    Returns:
        One result per path, in their order.

    Raises:
        FileNotFoundError: if a path holds no evaluation.
        ValueError: if there is no path, one is given twice, or a file is not strict JSON of this schema.
    """
    if not paths:
        raise ValueError("Expected argument `runs` to name at least one run, but got none.")
    results = [read(path) for path in paths]
    seen: set[Path] = set()
    for result in results:
        if result.path.resolve() in seen:
            raise ValueError(f"Expected argument `runs` to name every evaluation once, but got {result.path} twice.")
        seen.add(result.path.resolve())
    return results


def read(path: str | Path) -> Result:
    """Read one evaluation.

    Args:
        path: as for :func:`collect`.

    Returns:
        The result.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if the file is not strict JSON of this schema.
    """
    file = _locate(Path(path))
    try:
        content = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except ValueError as error:
        raise ValueError(f"Expected {file} to hold strict JSON, but {error}. Evaluate the run again.") from error
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"Expected {file} to have schema {SCHEMA}, but got {schema!r}. Evaluate the run again.")
    if missing := [name for name in _FIELDS if name not in content]:
        raise ValueError(f"Expected {file} to hold {', '.join(_FIELDS)}, but it lacks {', '.join(missing)}.")
    plain = {name: content[name] for name in _FIELDS if name != "metrics"}
    metrics = {key: _measured(file, key, entry) for key, entry in content["metrics"].items()}
    return Result(path=file, limit=content.get("limit"), metrics=metrics, **plain)


def _locate(path: Path) -> Path:
    if path.is_file():
        return path
    for file in (path / "evaluation" / "metrics.json", path / "metrics.json"):
        if file.is_file():
            _refuse_outdated(file)
            return file
    raise FileNotFoundError(
        f"Expected {path} to be an evaluated run, its `evaluation` folder or a metrics.json, but there is no such "
        "file. Run `evaluate.py run --ckpt_path <run>/checkpoints/last.ckpt` first."
    )


def _refuse_outdated(file: Path) -> None:
    """A folder stands for its first evaluation, unless the run went on and the checkpoint was evaluated again."""

    def told(path: Path) -> tuple[Any, Any]:
        content = json.loads(path.read_text(encoding="utf-8"))
        return (content.get("checkpoint"), content.get("step")) if isinstance(content, dict) else (None, None)

    try:
        checkpoint, step = told(file)
        others = {path: told(path) for path in sorted(file.parent.glob("*/metrics.json"))}
    except ValueError:
        return  # reading says what is wrong
    newer = [path for path, (name, at) in others.items() if name == checkpoint and None not in (at, step) and at > step]
    if newer:
        raise ValueError(
            f"Expected {file} to be of the last evaluated step of {checkpoint}, but it is of step {step}, and "
            f"{newer[-1]} of a later one. Name the metrics.json you mean."
        )


def _measured(file: Path, key: str, entry: Any) -> Measured:
    try:
        low, high = entry["ci95"]
        if not all(value is None or math.isfinite(value) for value in (entry["value"], low, high)):
            raise ValueError("a number is not finite")
        return Measured(entry["value"], low, high, entry["unit"], entry["higher_is_better"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"Expected {file} to give {key!r} a value, ci95, unit and higher_is_better, but got {entry!r}."
        ) from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
