"""The folder of a study: ``study.json``, ``key.json``, ``consent.md``, and ``media/`` with files named by content."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from protometry.run_folder.command_line.messages import counted
from protometry.studies.hypotheses import unknown_hypotheses
from protometry.studies.questions import POINTS
from protometry.studies.records import read
from protometry.studies.study import SCHEMA, Arm, Item, ItemKey, Key, Study, UnitShown
from protometry.studies.tasks import Task, task_of

SHOW_CLASS = "give the arm `labels: true`, or `examples` of the class"
FILES = ("study.json", "key.json", "consent.md")
PLACEHOLDERS = re.compile(r"\b(?:NAME|INSTITUTION|COMMITTEE|NUMBER|ADDRESS)\b")  # of configs/study/consent.md
PLACEHOLDER_CODE = "FILL-IN"  # a completion code of configs/study/cub200.yaml


@dataclass(frozen=True)
class Bundle:
    """A study that was read and checked.

    Attributes:
        consent: text of the consent page; paragraphs are divided by empty lines.
        hash: SHA-256 of all that; the names in ``study.json`` are the hashes of the media.
    """

    folder: Path
    study: Study
    key: Key
    consent: str
    hash: str

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """What participants are asked, by arm."""
        return {arm.id: task_of(self.study.task, arm.form) for arm in self.study.arms}

    def media(self) -> set[str]:
        """Names of the media that the study shows."""
        return {name for arm in self.study.arms for item in _all_items(arm) for name in pictures(item)}

    def placeholders(self) -> str:
        """Which files still hold which words of the example in configs/study, as one line; empty if none do."""
        found = []
        if words := dict.fromkeys(PLACEHOLDERS.findall(self.consent)):
            found.append(f"{self.folder}/consent.md still has {', '.join(words)} of the example")
        codes = [name for name in ("completed", "screened") if getattr(self.study.platform, name) == PLACEHOLDER_CODE]
        if codes:
            names = " and ".join(f"platform.{name}" for name in codes)
            found.append(f"{self.folder}/study.json still has {PLACEHOLDER_CODE} as {names}")
        return "; ".join(found)


def media_name(content: bytes, suffix: str) -> str:
    """Name of a file in ``media/``: the SHA-256 of its content, which reveals nothing to a participant."""
    return f"{hashlib.sha256(content).hexdigest()}.{suffix}"


def bundle_hash(folder: Path) -> str:
    """SHA-256 over the names and contents of the three files of a bundle."""
    digest = hashlib.sha256()
    for name in FILES:
        content = (folder / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def write_bundle(folder: Path, study: Study, key: Key, consent: str, media: dict[str, bytes]) -> Bundle:
    """Write a study into a new or empty folder, and check it; the same study gives the same bytes.

    Of ``media``, contents by :func:`media_name`, those that the study shows are written.

    Raises:
        ValueError: if the folder is not empty, or something is wrong with the study; nothing of it remains then.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: give a new folder.")
    try:
        (folder / "media").mkdir(parents=True)
        for name in Bundle(folder, study, key, consent, "").media() & media.keys():
            (folder / "media" / name).write_bytes(media[name])
        (folder / "study.json").write_text(_json(asdict(study)), "utf-8")
        (folder / "consent.md").write_text(consent, "utf-8")
        descriptor = os.open(folder / "key.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_json(asdict(key)))
        (folder / ".gitignore").write_text("*\n", "utf-8")  # neither the key nor answers belong in a repository
        return load_bundle(folder)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)  # was new or empty
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(folder)  # a full disk is reported without one
        raise


def read_consent(file: Path) -> str:
    """The text of a consent page.

    Raises:
        ValueError: if it is missing, not a regular file, such as a pipe that nobody writes to, or not UTF-8 text.
    """
    if not file.is_file():
        problem = "is not a text file" if file.exists() else "does not exist"
        raise ValueError(
            f"Expected `consent` to be a text file that participants read, but {file} {problem}. Name "
            "yours with `--consent FILE`; configs/study/consent.md is one to fill in."
        )
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text: {error}.") from None


def load_bundle(folder: Path) -> Bundle:
    """Read and check a study.

    Raises:
        ValueError: if a file is missing, broken or changed, or the study could not be run; every problem in one line.
    """
    for name in FILES:
        if not (folder / name).is_file():
            raise ValueError(f"Expected {folder} to be a study, but {name} is missing.")
    digest = bundle_hash(folder)
    study = read(Study, _parsed(folder / "study.json"), "study.json")
    key = read(Key, _parsed(folder / "key.json"), "key.json")
    bundle = Bundle(folder, study, key, read_consent(folder / "consent.md"), digest)
    if problems := [*_problems(bundle), *_media_problems(bundle)]:
        more = [f"… and {len(problems) - 20} more"] if len(problems) > 20 else []
        said = f"Expected {folder} to be a study that can be run, but it is not:"
        raise ValueError("\n".join([said, *problems[:20], *more]))
    return bundle


def _parsed(file: Path) -> object:
    try:
        return json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is no JSON: {error}.") from None


def _json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _all_items(arm: Arm) -> list[Item]:
    return [*arm.items, *arm.checks, *(example.item for example in arm.preview)]


def pictures(item: Item) -> Iterator[str]:
    """Names in ``media/`` of all that is shown of an item."""
    yield item.photo
    for option in item.options:
        yield from (*option.pictures, *option.examples)
    for row in (*item.decisions, *(row for option in item.options for row in option.rows)):
        yield from row.pictures


def _problems(bundle: Bundle) -> Iterator[str]:
    study, key = bundle.study, bundle.key
    yield from (f"study.json: {problem}" for problem in design_problems(study))
    if study.schema != SCHEMA:
        yield f"study.json: schema {study.schema} cannot be read by this version, which reads {SCHEMA}."
    if key.study != study.id:
        yield f"key.json: belongs to the study {key.study!r}, not to {study.id!r}."
    if not bundle.consent.strip():
        yield "consent.md: is empty; nobody may take part without being told what happens."
    items = [item for arm in study.arms for item in (*arm.items, *arm.checks)]
    yield from (f"study.json: the item id {name!r} is used {n} times." for name, n in _repeated(i.id for i in items))
    for arm in study.arms:
        for item in arm.items:
            if item.attention is not None or (item.id in key.items and key.items[item.id].catch):
                yield f"arm {arm.id}, item {item.id}: checks attention, and so belongs to `checks`."
    for name in sorted({item.id for item in items} ^ set(key.items)):
        yield f"key.json: the item {name!r} is {'unknown to study.json' if name in key.items else 'missing'}."
    for arm in study.arms:
        for item in _all_items(arm):
            yield from (f"arm {arm.id}, item {item.id}: {problem}" for problem in _item_problems(study, arm, item))
        for item in (*arm.items, *arm.checks):
            if item.id in key.items:
                yield from (
                    f"key.json, {item.id}: {text}" for text in _key_problems(study, arm, item, key.items[item.id])
                )
        yield from (f"arm {arm.id}: {problem}" for problem in _supply_problems(study, arm, key))


def design_problems(study: Study) -> Iterator[str]:
    """One line for each problem of a study that its items, which may be missing, have nothing to do with."""
    yield from (f"the id {name!r} is used {n} times." for name, n in _repeated(arm.id for arm in study.arms))
    if study.assignment.right + study.assignment.wrong < 1:
        yield "`assignment` needs at least one item."
    if study.assignment.arms > len(study.arms):
        yield f"a participant cannot see {study.assignment.arms} of {len(study.arms)} arms."
    if study.assignment.arms > 1 and study.assignment.by == "forms":
        yield (
            "fixed forms may show an image in several arms: for several arms per participant, set `assignment.by` to "
            "balanced."
        )
    if study.pages.output and task_of(study.task, "none").options == 1:
        yield f"`pages.output` asks which class the model chose; the task {study.task} shows only that one."
    for arm in study.arms:
        if arm.rating == "first_disagreement" and (arm.form != "tree" or task_of(study.task, arm.form).decisions):
            yield f"arm {arm.id}: the first disagreement can only be requested in agreement with a tree."
    yield from unknown_hypotheses(study)


def _item_problems(study: Study, arm: Arm, item: Item) -> Iterator[str]:
    task = task_of(study.task, arm.form)
    if len(item.options) != task.options:
        yield f"has {len(item.options)} options, but needs {task.options}."
    if len(item.decisions) != task.decisions:
        yield f"has {len(item.decisions)} decisions, but needs {task.decisions}."
    ids = [item.id, *(option.id for option in item.options), *(row.id for row in _rows(item))]
    yield from (f"the id {name!r} is used {n} times." for name, n in _repeated(ids))
    for option in item.options:
        if (arm.form == "heatmap") != bool(option.pictures):
            yield f"option {option.id} has {len(option.pictures)} maps in an arm of the form {arm.form}."
        if (arm.form in ("units", "tree")) != bool(option.rows):
            yield f"option {option.id} has {len(option.rows)} rows in an arm of the form {arm.form}."
        if arm.form == "tree" and any(row.decision is None for row in option.rows):
            yield f"option {option.id}: a node of the path has no decision."
        if arm.form == "none" and task.options == 1 and not (option.label or option.examples):
            yield f"option {option.id} shows nothing of the decision to be judged: {SHOW_CLASS}."
    if item.attention is not None and not 1 <= item.attention <= POINTS[task.scale]:
        yield f"asks for the answer {item.attention}, which is not on the scale."


def _key_problems(study: Study, arm: Arm, item: Item, key: ItemKey) -> Iterator[str]:
    task = task_of(study.task, arm.form)
    options, rows = {option.id for option in item.options}, {row.id for row in _rows(item)}
    known = task.answers(item)
    if known and not {*(key.answer or "").split("|")} <= {*known}:
        yield f"the answer {key.answer!r} is none of {sorted(known)}."
    if study.pages.output and task.options > 1 and key.output not in options:
        yield f"the output {key.output!r} is none of {sorted(options)}."
    yield from (f"there is no row {name!r}." for name in sorted(set(key.scores) - rows))


def _supply_problems(study: Study, arm: Arm, key: Key) -> Iterator[str]:
    task = task_of(study.task, arm.form)
    if sorted(example.right for example in arm.preview) != [False, True]:
        yield "the preview needs one example with a right and one with a wrong prediction."
    for number, example in enumerate(arm.preview):
        if example.answer not in (None, *(allowed := task.answers(example.item))):
            yield f"preview {number}: the answer {example.answer!r} is none of {list(allowed)}."
    assignment, known = study.assignment, [item for item in arm.items if item.id in key.items]
    checks = [key.items[check.id] for check in arm.checks if check.id in key.items]
    others = sum(len(other.checks) for other in study.arms if other.id != arm.id) if assignment.arms > 1 else 0
    for form in sorted({item.form for item in known}) if assignment.by == "forms" else [None]:
        members = [key.items[item.id] for item in known if form is None or item.form == form]
        where = "" if form is None else f"form {form}: "
        for name, needed, have in (
            ("right", assignment.right, sum(entry.right for entry in members)),
            ("wrong", assignment.wrong, sum(not entry.right for entry in members)),
        ):
            elsewhere = (assignment.arms - 1) * (assignment.right + assignment.wrong) + others if needed else 0
            if have < needed + elsewhere or (form is not None and have != needed):
                more = f" and {counted(elsewhere, 'image')} in other arms" if elsewhere else ""
                items = counted(have, "item")
                yield f"{where}has {items} with a {name} prediction, but a participant sees {needed}{more}."
        images = (entry.image for entry in (*members, *checks))
        yield from (f"{where}the image {image!r} is shown {n} times." for image, n in _repeated(images))


def _media_problems(bundle: Bundle) -> Iterator[str]:
    for name in sorted(bundle.media()):
        file = bundle.folder / "media" / name
        if not file.is_file() or file.is_symlink():
            yield f"media/{name}: is missing."
        elif hashlib.sha256(file.read_bytes()).hexdigest() != file.stem:
            yield f"media/{name}: has been changed since the study was built."


def _rows(item: Item) -> list[UnitShown]:
    return [*(row for option in item.options for row in option.rows), *item.decisions]


def _repeated(names: Iterable[str]) -> list[tuple[str, int]]:
    return [(name, number) for name, number in Counter(names).items() if number > 1]
