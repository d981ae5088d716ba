"""The files and the table in which a check reports its findings."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.check.check import DataCheck
from protometry.datamodules.check.contact_sheet import contact_sheet
from protometry.datamodules.photos.download import is_free
from protometry.datamodules.photos.problems import first_few
from protometry.run_folder.command_line.messages import counted, program
from protometry.run_folder.command_line.user_path import user_path

CONCEPTS = "ConceptBottleneck, PosthocCBM; metrics concepts, intervention; names of units"
USES = {
    "multi_label": "models with `task: multilabel`",
    "object_mask": "metrics localisation, complexity, alignment/on_object",
    "part_points": "metrics alignment, complexity/consistency, concepts/clm",
    "label_map": "metrics concepts/part_iou, concepts/locality, funnybirds",
    "concepts_class": CONCEPTS,
    "concepts_image": CONCEPTS,
    "bounding_box": "`crop: box`; without masks, metrics localisation, alignment/on_object",
    "interventions": "metrics concepts/locality, funnybirds",
    "class_attributes": "metrics class_representation/structural_grounding, concepts/cgim",
}  # of annotations by their flags


def new_folder(out: str | None, data: ImageDataModule) -> Path:
    """Make the folder of the result, which is empty, before the work, which may take long.

    Args:
        out: the folder the user asked for, or None for the first of ``runs/check/<data set>``, ``<data set>-2`` and so
            on under the current directory that has no content.
        data: the data module; nothing is written below its ``root``.

    Raises:
        ValueError: if the folder has content or lies below the data root.
        OSError: if it cannot be made.
    """
    names = (f"{data.dataset_name}-{number}" if number > 1 else data.dataset_name for number in count(1))
    folder = user_path(out) if out else next(filter(is_free, (Path("runs/check") / name for name in names)))
    root = data.hparams.get("root")
    if root is not None and folder.resolve().is_relative_to(user_path(root).resolve()):
        raise ValueError(f"Expected argument `out` to lie outside the data, but {folder} is below {root}.")
    if not is_free(folder):
        raise ValueError(
            f"Expected argument `out` to be a folder that is missing or empty, but {folder} has content. Choose "
            "another with `--out`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_check(check: DataCheck, folder: Path) -> None:
    """Write ``check.json`` and ``contact_sheet.png``, never over the files of another check.

    Raises:
        FileExistsError: if another check was written there.
    """
    text = json.dumps(check.record, indent=2, allow_nan=False, ensure_ascii=False)
    with (folder / "check.json").open("x", encoding="utf-8") as file:
        file.write(text + "\n")
    contact_sheet(check.tiles).save(folder / "contact_sheet.png")


def show_check(check: DataCheck) -> str:
    """The findings as a table for people."""
    record = check.record
    official = record["official_images"]
    known = {None: "", record["images"]: " (the official total)"}
    total = known.get(official, f" (of {official} in the official data set)")
    lines = [f"{record['name']}: {record['images']} images{total}, {counted(record['classes'], 'class')}"]
    lines += ["", f"{'split':<12}{'samples':>9}{'checked':>9}{'per class':>12}  sha256 of ids"]
    for split, entry in record["splits"].items():
        span = f"{entry['per_class']['min']}-{entry['per_class']['max']}"
        lines.append(f"{split:<12}{entry['samples']:>9}{entry['checked']:>9}{span:>12}  {entry['ids_sha256'][:16]}")
    if "train" not in record["splits"]:
        lines += ["", f"no training images: for `{program('evaluate')} run --data`, not for `{program('train')} fit`"]
    lines += ["", f"content sha256  {record['content_sha256'] or 'unknown: not all samples were looked at'}"]
    lines += [f"split sha256    {record['split_sha256'] or 'none: the data set defines its own split'}", ""]
    for name in next(iter(record["splits"].values()))["flags"]:
        reasons = {split: entry["flags"][name] for split, entry in record["splits"].items()}
        having = [split for split, reason in reasons.items() if reason is True]
        missing = [reason for reason in reversed(reasons.values()) if reason is not True]  # training's reason last
        lines.append(f"{name:<19}{', '.join(having) or '-':<30}{missing[0] if missing else ''}".rstrip())
        if having and name in USES:
            lines.append(f"{'':<19}for {USES[name]}")
    return "\n".join([*lines, *_shown(record["splits"])])


def _shown(splits: dict[str, Any]) -> list[str]:
    """How many images show the rarest and most frequent labels and concepts, what is unknown, and what none shows."""
    lines = []
    for kind in ("labels", "concepts"):
        first: dict[str, int] = next(iter(splits.values())).get(kind, {})
        if kind == "concepts" and first:
            questions = {name.split("::")[0] for name in first}
            lines += ["", f"{counted(len(first), 'concept')} on {counted(len(questions), 'question')}"]
        for split, entry in splits.items():
            if (counts := entry.get(kind)) and split != "train":  # whose images are those of the projection split
                few, many = min(counts, key=counts.get), max(counts, key=counts.get)
                if kind == "concepts":
                    lines.append(f"{split:<12}in {counts[few]} ({few}) to {counts[many]} ({many}) images")
                unknown: dict[str, int] = entry.get(f"unknown_{kind}", {})
                if total := sum(unknown.values()):
                    most = max(unknown, key=unknown.__getitem__)
                    of = f"{total} of {len(unknown) * entry['checked']} {kind}"
                    lines.append(f"{split:<12}{of} unknown and left out, most often {most} ({unknown[most]} images)")
                if nobody := [name for name, count in unknown.items() if count == entry["checked"]]:
                    lines.append(f"{split:<12}no image says whether it shows {first_few(nobody)}")
                if none := [name for name, count in counts.items() if not count and name not in nobody]:
                    lines.append(f"{split:<12}no image shows {first_few(none)}")
    return lines
