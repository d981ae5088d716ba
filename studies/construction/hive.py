"""The 19 published studies of HIVE, to be built from your own checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from protometry.run_folder.command_line.messages import counted
from protometry.studies.construction.build import build
from protometry.studies.construction.method import Method
from protometry.studies.records import read
from protometry.studies.study import Assignment, Form, Pages, Rating, TaskName

PEOPLE_PER_FORM = 5
ROWS = 10  # of a class: all of its prototypes


@dataclass(frozen=True)
class HiveModel:
    """A model of the paper."""

    form: Form
    published: str
    stand_in: str


@dataclass(frozen=True)
class HiveStudy:
    """A study of the paper."""

    task: TaskName
    model: str
    right: int = 5
    wrong: int = 5
    examples: int = 0
    labels: bool = False
    output: bool = False
    rating: Rating = "rows"


@dataclass(frozen=True)
class Hive:
    """All models and studies of the paper, by name."""

    models: dict[str, HiveModel] = field(default_factory=dict)
    studies: dict[str, HiveStudy] = field(default_factory=dict)


@cache
def hive() -> Hive:
    """The studies of Kim et al. 2022, *HIVE: Evaluating the Human Interpretability of Visual Explanations*."""
    return read(
        Hive, yaml.safe_load((files("protometry.studies.construction") / "hive.yaml").read_text("utf-8")), "hive.yaml"
    )


def arguments(
    name: str, ckpt_path: Path, forms: int = 10, data: Path | None = None, data_root: str | None = None
) -> dict[str, Any]:
    """Arguments of ``build`` for a published study, from those of :func:`command`.

    Raises:
        ValueError: if there is no such study, or no form.
    """
    study = _study(name)
    if forms < 1:
        raise ValueError(f"Expected argument `forms` to be at least 1, but got {forms}.")
    form = hive().models[study.model].form
    method = Method(
        study.model.replace("_", "-"), ckpt_path, form, examples=study.examples, labels=study.labels,
        rating=study.rating, rows=ROWS, data=data, data_root=data_root,
    )  # fmt: skip
    return {
        "id": name.replace("_", "-"),
        "title": "What the computer sees",
        "arms": [method],
        "assignment": Assignment(forms * PEOPLE_PER_FORM, study.right, study.wrong, "forms"),
        "task": study.task,
        "items": forms * study.right,
        "pages": Pages(output=study.output),
    }


def command(  # noqa: PLR0913
    name: str, ckpt_path: Path, consent: Path, out: Path, forms: int = 10, data: Path | None = None,
    data_root: str | None = None, allow_classes: str | None = None,
) -> str:  # fmt: skip
    """Build a published study from a checkpoint, and say what it was in the paper and how good it is.

    Args:
        name: of the study, such as cub_gradcam_agreement; any other name lists them all.
        ckpt_path: checkpoint of the model.
        consent: text file that participants read before they agree.
        out: new folder.
        forms: fixed sets of photos, each for five people; 10 in the paper.
        data: test images other than the run's: a yaml file as in configs/data.
        data_root: where the data lies now, if it has moved since training; with ``data``, its root.
        allow_classes: packages, separated by commas, whose classes the checkpoint may name besides this project's.
    """
    bundle = build(
        out=out, consent=consent, allow_classes=allow_classes, **arguments(name, ckpt_path, forms, data, data_root)
    )
    model = hive().models[_study(name).model]
    arm = bundle.study.arms[0]
    return (
        f"{name}: {len(arm.items)} items in {counted(forms, 'form')} for {forms * PEOPLE_PER_FORM} people; written to "
        f"{out}\n"
        f"in the paper: {model.published}; here: {arm.origin['model']}, {arm.accuracy:.1f} % of test images. Unless "
        "they are the same, results cannot be compared."
    )


def _study(name: str) -> HiveStudy:
    known = hive().studies
    if name not in known:
        raise ValueError(f"Expected a study of HIVE, one of {', '.join(known)}, but got {name!r}.")
    return known[name]
