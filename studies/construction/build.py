"""Build the folder of a study from checkpoints."""

from __future__ import annotations

import secrets
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from protometry.run_folder.command_line.messages import counted
from protometry.studies.bundle import Bundle, design_problems, read_consent, write_bundle
from protometry.studies.construction.drawing import Drawing
from protometry.studies.construction.method import Method, StudiedModel
from protometry.studies.records import read
from protometry.studies.study import (
    Arm,
    Assignment,
    Example,
    Item,
    ItemKey,
    Key,
    Pages,
    Platform,
    Quality,
    Study,
    TaskName,
)
from protometry.studies.tasks import task_of

PAGES, QUALITY, PLATFORM = Pages(), Quality(), Platform()


def build(  # noqa: PLR0913
    out: Path, id: str, title: str, arms: list[Method], assignment: Assignment, consent: Path,
    task: TaskName = "agreement", items: int = 50, seed: int = 0, catch_every: int = 5, pages: Pages = PAGES,
    quality: Quality = QUALITY, platform: Platform = PLATFORM, salt: str | None = None,
    allow_classes: str | None = None,
) -> Bundle:  # fmt: skip
    """Build a study; the same checkpoints, data, arguments and salt give the same bytes.

    Args:
        out: new folder.
        id: of the study.
        title: that participants see.
        arms: methods of explanation; a participant sees one.
        assignment: how many people see how many items.
        consent: text file that participants read before they agree.
        task: the question about a photo: a file of ``studies/tasks``.
        items: test images with a right and as many with a wrong prediction per arm, which participants get theirs from;
            none of a kind that participants do not see. With ``assignment.by`` forms, they are divided into forms.
        catch_every: number of items in an arm after which a participant sees one more, which is not scored and checks
            attention: one asks for a given answer and the next one, in arms whose units are rated, has two rows whose
            rating is known, a region next to itself and one next to noise; 0 for none.
        seed: of the choice of images, and of all that is random for participants.
        pages: optional pages.
        quality: checks, exclusions and hypotheses, declared now.
        platform: where participants come from.
        salt: of all ids; a new random one if None. It stands in key.json: give it again to get the same study again.
        allow_classes: packages, separated by commas, whose classes the checkpoints may name besides this project's;
            importing one runs its code.

    Raises:
        ValueError: if the folder is not empty, the models or data do not give such a study, or it could not be run.
    """
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty: give a new folder.")
    for name, value, least in (("catch_every", catch_every, 0), ("items", items, 1)):
        if value < least:
            raise ValueError(f"Expected argument `{name}` to be at least {least}, but got {value}.")
    consent_text = read_consent(consent)
    study = Study(id, title, seed, task, [_planned(method) for method in arms], assignment, pages, quality, platform)
    _check(study, arms, items)
    media: dict[str, bytes] = {}
    keys: dict[str, ItemKey] = {}
    salt = salt or secrets.token_hex(16)
    checks = -(-(assignment.right + assignment.wrong) // catch_every) if catch_every else 0
    built: list[Arm] = []
    for method, planned in zip(arms, study.arms, strict=True):
        taken = {keys[check.id].image for arm in built for check in arm.checks} if assignment.arms > 1 else set()
        explained = StudiedModel(method, task, seed, salt, allow_classes.split(",") if allow_classes else ())
        arm, its_keys = _arm(Drawing(explained, media), planned, assignment, items, checks, taken)
        built.append(arm)
        keys |= its_keys
        for earlier, arm in zip(arms, built[:-1], strict=False):
            if earlier.ckpt_path == method.ckpt_path and arm.origin["checkpoint"] != built[-1].origin["checkpoint"]:
                raise explained.wrong(f"it has changed since the arm {arm.id} was built; let its training end first")
    return write_bundle(out, replace(study, arms=built), Key(id, keys, salt), consent_text, media)


def command(**arguments: Any) -> str:
    """Build a study, and say what it holds; takes the arguments of :func:`build`."""
    bundle = build(**arguments)
    arms = [(arm, counted(len(arm.items), "item")) for arm in bundle.study.arms]
    lines = [f"{arm.id}: {items}, model {arm.accuracy:.1f} % right" for arm, items in arms]
    return "\n".join([*lines, f"{counted(len(bundle.media()), 'picture')}; written to {bundle.folder}"])


def _check(study: Study, arms: list[Method], items: int) -> None:
    """Refuse what needs no model to be seen, since models take time."""
    read(Study, asdict(study), "the arguments")
    platform, assignment = study.platform, study.assignment
    needed = {"completed": platform.completed, "screened": platform.screened or not study.pages.quiz}
    if platform.kind == "prolific" and (missing := [f"`platform.{name}`" for name, code in needed.items() if not code]):
        raise ValueError(
            f"Expected {' and '.join(missing)} with `platform.kind` prolific, which pays by these codes, but got none. "
            "They are those of the study on the platform."
        )
    if problems := list(design_problems(study)):
        raise ValueError("\n".join(problems))
    for method in arms:
        task = task_of(study.task, method.form)
        if assignment.wrong and task.right_only:
            raise method.wrong(f"{task.right_only}: give `assignment.wrong` as 0")
        uneven = [size for size in (assignment.right, assignment.wrong) if size and items % size]
        if assignment.by == "forms" and uneven:
            raise method.wrong(f"`items`, {items}, cannot be divided into forms of {uneven[0]}")
        method.check(task)


def _planned(method: Method) -> Arm:
    """The arm of a method before it has items."""
    return Arm(
        method.id,
        method.form,
        accuracy=100.0,
        items=[],
        preview=[],
        rating=method.rating if method.form in ("units", "tree") else "none",
        control=method.control,
        similarity=method.similarity,
        clarity=method.clarity,
    )


def _arm(
    drawing: Drawing, planned: Arm, assignment: Assignment, items: int, checks: int, taken: set[str]
) -> tuple[Arm, dict[str, ItemKey]]:
    """The arm with its items, of images that are not ``taken``, and their keys."""
    explained, keys = drawing.explained, dict[str, ItemKey]()
    chosen, preview, used = [], [], {*taken}
    for right, wanted in ((True, assignment.right), (False, assignment.wrong)):
        *some, last = explained.choose(right, (items if wanted else 0) + 1)
        drawn = [drawing.item(index) for index in some]
        keys |= {item.id: key for item, key in drawn}
        kind = [item for item, _ in drawn]
        by_form = assignment.by == "forms"
        chosen += [replace(item, form=index // wanted) for index, item in enumerate(kind)] if by_form else kind
        item, key = drawing.item(last)
        preview.append(Example(item, right, key.answer))
        used |= {explained.outputs.sample_ids[index] for index in (*some, last)}
    unscored = _checks(drawing, checks, assignment, used)
    keys |= {item.id: key for item, key in unscored}
    extra = sorted((item for item, _ in unscored), key=lambda item: item.id)
    photos = [item.photo for item in (*chosen, *extra)]
    if repeated := len(photos) - len(set(photos)):
        raise explained.wrong(f"{repeated} of its test images are the same picture as another one")
    chosen.sort(key=lambda item: item.id)
    accuracy = round(explained.accuracy, 1)
    origin = explained.origin()
    return replace(planned, accuracy=accuracy, items=chosen, preview=preview, origin=origin, checks=extra), keys


def _checks(drawing: Drawing, number: int, assignment: Assignment, used: set[str]) -> list[tuple[Item, ItemKey]]:
    """Items of images that are not used, with right and wrong predictions in the proportion of those that are scored.

    Every other one has rows whose rating is known, where rows are rated; the rest ask for a given answer.
    """
    explained = drawing.explained
    right = -(-number * assignment.right // max(assignment.right + assignment.wrong, 1))
    indices = [*explained.choose(True, right, used), *explained.choose(False, number - right, used)]
    checks = []
    for number, index in enumerate(indices):
        item, key = drawing.item(index)
        rows = number % 2 == 1 and drawing.has_rated_rows
        checks.append(drawing.with_catch_rows(item, key) if rows else (drawing.with_attention(item), key))
    return checks
