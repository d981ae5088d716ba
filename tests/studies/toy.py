"""Small studies of random pictures, of every task and form."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from PIL import Image

from protometry.studies.bundle import Bundle, media_name, write_bundle
from protometry.studies.study import (
    Arm,
    Assignment,
    Example,
    Form,
    Item,
    ItemKey,
    Key,
    Option,
    Pages,
    Study,
    TaskName,
    UnitShown,
)
from protometry.studies.tasks import task_of

ROWS = 3
TASKS: tuple[TaskName, ...] = get_args(TaskName)


def read_rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


class Pictures:
    """Small pictures, no two alike."""

    def __init__(self, size: int = 8) -> None:
        self.files: dict[str, bytes] = {}
        self.size = size
        self.generator = np.random.default_rng(0)

    def new(self) -> str:
        buffer = io.BytesIO()
        pixels = self.generator.integers(0, 256, (self.size, self.size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(buffer, "png")
        name = media_name(buffer.getvalue(), "png")
        self.files[name] = buffer.getvalue()
        return name


def make_item(name: str, task: TaskName, form: Form, pictures: Pictures, **fields: Any) -> Item:
    def rows(prefix: str, number: int, decided: bool) -> list[UnitShown]:
        decision = "present" if decided else None
        return [UnitShown(f"{prefix}r{i}", [pictures.new() for _ in range(4)], decision) for i in range(number)]

    asked = task_of(task, form)
    options = [
        Option(
            f"o{index}",
            [pictures.new()] if form == "heatmap" else [],
            rows(f"o{index}", ROWS, form == "tree") if form in ("units", "tree") else [],
            label=f"class {index}" if form == "none" else None,
        )
        for index in range(asked.options)
    ]
    return Item(name, pictures.new(), options, rows("d", asked.decisions, False), **fields)


def make_key(item: Item, task: TaskName, form: Form, number: int) -> ItemKey:
    generator = np.random.default_rng(number)
    rows = [row for option in item.options for row in option.rows]
    answers = task_of(task, form).answers(item)
    answer = answers[number % 4] if answers else None
    output = item.options[number // 2 % 4].id if len(item.options) > 1 else None
    scores = dict(zip((row.id for row in rows), generator.random(len(rows)).tolist(), strict=True))
    return ItemKey(f"image{number}", number % 2 == 0, answer, output, scores)


def make_bundle(
    folder: Path,
    task: TaskName = "agreement",
    form: Form = "heatmap",
    *,
    items: int = 8,
    people: int = 50,
    arm: dict[str, Any] | None = None,
    assignment: dict[str, Any] | None = None,
    size: int = 8,
    others: int = 0,
    **fields: Any,
) -> Bundle:
    """Write a study with the arm ``main``, and others of the same images; every other item has a right prediction."""
    pictures = Pictures(size)
    shown = [make_item(f"i{number}", task, form, pictures) for number in range(items)]
    examples = [make_item(f"p{number}", task, form, pictures) for number in range(2)]
    preview = [Example(item, item is examples[0], make_key(item, task, form, 0).answer) for item in examples]
    arms = [Arm("main", form, 80.0, shown, preview, **(arm or {}))]
    for name in range(others):
        again = [replace(item, id=f"{name}{item.id}") for item in shown]
        arms.append(replace(arms[0], id=f"other{name}", items=again))
    places = Assignment(**{"people": people, "right": 2, "wrong": 2, **(assignment or {})})
    fields.setdefault("pages", Pages(output=task_of(task, form).options > 1, demographics=True))
    study = Study("toy", "A toy study", 0, task, arms, places, **fields)
    keys = {item.id: make_key(item, task, form, number) for one in arms for number, item in enumerate(one.items)}
    key = Key("toy", keys, "")
    return write_bundle(folder, study, key, "We ask you about photos.\n\nYou may stop at any time.\n", pictures.files)
