"""Build the folder of a study from checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from studies.build.drawing import Drawing
from studies.build.method import Method, Subject
from studies.bundle import Bundle, write_bundle
from studies.study import OPTIONS, Arm, Assignment, Example, ItemKey, Key, Pages, Platform, Quality, Study, Task

PAGES, QUALITY, PLATFORM = Pages(), Quality(), Platform()


def build(  # noqa: PLR0913
    out: Path, id: str, title: str, arms: list[Method], assignment: Assignment, consent: Path, task: Task = "agreement",
    items: int = 50, seed: int = 0, pages: Pages = PAGES, quality: Quality = QUALITY, platform: Platform = PLATFORM,
) -> Bundle:  # fmt: skip
    """Build a study; the same checkpoints, data and arguments give the same bytes.

    Args:
        out: new folder.
        id: of the study.
        title: that participants see.
        arms: methods of explanation; a participant sees one.
        assignment: how many people see how many items.
        consent: text file with what participants are told before they agree.
        task: is a prediction right, or which of four classes is?
        items: test images with a right and as many with a wrong prediction per arm, from which participants get theirs.
        seed: of the choice of images, and of all that is random for participants.
        pages: optional pages.
        quality: checks, exclusions and hypotheses, declared now.
        platform: where participants come from.

    Raises:
        ValueError: if the folder is not empty, the models or data do not give such a study, or it could not be run.
    """
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty: give a new folder.")
    if assignment.by == "forms":
        raise ValueError("Expected `assignment.by` to be balanced: fixed forms cannot be built.")
    words = consent.read_text("utf-8")
    media: dict[str, bytes] = {}
    keys: dict[str, ItemKey] = {}
    built = [_arm(method, task, items, seed, (media, keys)) for method in arms]
    study = Study(id, title, seed, task, built, assignment, pages, quality, platform)
    return write_bundle(out, study, Key(id, keys), words, media)


def command(**arguments: Any) -> str:
    """Build a study, and say what it holds; the arguments are those of :func:`build`."""
    bundle = build(**arguments)
    lines = [f"{arm.id}: {len(arm.items)} items, model {arm.accuracy:.1f} % right" for arm in bundle.study.arms]
    return "\n".join([*lines, f"{len(bundle.media())} pictures; written to {bundle.folder}"])


def _arm(method: Method, task: Task, items: int, seed: int, found: tuple[dict[str, bytes], dict[str, ItemKey]]) -> Arm:
    media, keys = found
    subject = Subject(method, seed)
    if task == "distinction" and len(subject.data.class_names) < OPTIONS:
        raise subject.wrong(f"there are {len(subject.data.class_names)} classes, but {OPTIONS} are to choose from")
    drawing = Drawing(subject, task, media)
    shown, preview = [], []
    for right in (True, False):
        *some, last = subject.choose(right, items + 1)
        for index in some:
            item, key = drawing.item(index)
            shown.append(item)
            keys[item.id] = key
        item, key = drawing.item(last)
        preview.append(Example(item, right, key.answer))
    repeated = len(shown) - len({item.photo for item in shown})
    if repeated:
        raise subject.wrong(f"{repeated} of its test images are the same picture as another one")
    shown.sort(key=lambda item: item.id)
    accuracy = round(subject.accuracy, 1)
    rating: Literal["rows", "none"] = "rows" if method.form == "units" else "none"
    return Arm(method.id, method.form, accuracy, shown, preview, rating, method.control)
