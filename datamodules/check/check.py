"""The check of a data set, through the public interface of its data module only."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.check.contact_sheet import Tile
from protometry.datamodules.check.sample import field_sizes, same_sample, sample_problems
from protometry.datamodules.dataset import ImageDataset, Mapped
from protometry.datamodules.photos.problems import DataError, Problems
from protometry.datamodules.sample import Sample
from protometry.datamodules.splits import SPLITS, Split
from protometry.datamodules.views import Stratified
from protometry.datamodules.workers import WorkerLoader
from protometry.run_folder.command_line.progress import track

AUGMENTED_SAMPLES = 6  # of the augmented training images, which the projection split shows completely
SHOWN_SAMPLES = 6
SCHEMA = 1


@dataclass(frozen=True)
class DataCheck:
    """The findings in a data set.

    Args:
        record: the content of ``check.json``. Its ``content_sha256`` is the fingerprint of samples and classes as in
            ``split.json``, None if only some samples were seen, and its ``split_sha256`` that of all of
            ``split.json``, None for data sets that define their own split.
        tiles: samples for the contact sheet, some of every split that is not augmented.
    """

    record: dict[str, Any]
    tiles: list[Tile]


def check_data(data: ImageDataModule, limit: int | None = None) -> DataCheck:
    """Verify a data set: files, tables, splits, and every sample, or ``limit`` per split, against the contract.

    Raises:
        FileNotFoundError: if something is missing.
        ValueError: if something is wrong; one error that counts all problems.

    Example:
        >>> from protometry.datamodules import SketchBirds
        >>> found = check_data(SketchBirds("tiny"), limit=2).record
        >>> found["images"], found["splits"]["test"]["checked"]
        (384, 2)
    """
    try:
        _ = data.num_classes, data.num_concepts  # which `train.py fit` asks for before anything else
    except DataError:
        data.prepare_data()  # says all of it, and what is wrong with photos
        raise
    data.prepare_data()
    data.setup("fit")
    name = type(data).__name__
    problems = Problems(f"the data of {name}", "Replace the files named above, or list their ids in `exclude`.")
    record = data.split_record()
    entries: dict[Split, dict[str, Any]] = {}
    labels: dict[Split, dict[str, int]] = {}
    shown: dict[Split, dict[str, Tensor]] = {}
    tiles: list[Tile] = []
    for split in _parts(data, record):
        entries[split], labels[split], shown[split], examples = _check_split(data, split, limit, problems)
        tiles += [_tile(data, split, sample) for sample in examples if split != "train"]
    problems.raise_any()
    for split, entry in entries.items():  # of training images, through the evaluation transform
        whole: Split = "projection" if split == "train" else split
        counts = shown[whole] if "labels" in shown[whole] else {"labels": _bins(data, labels[whole]), **shown[whole]}
        entry["per_class"] = {"min": int(counts["labels"].min()), "max": int(counts["labels"].max())}
        for kind, named in (("labels", data.class_names), ("concepts", data.tables.concept_names)):
            if kind in counts:
                entry[kind] = dict(zip(named, counts[kind].tolist(), strict=True))
            if f"unknown_{kind}" in counts:
                entry[f"unknown_{kind}"] = dict(zip(named, counts[f"unknown_{kind}"].tolist(), strict=True))
    content = None
    if record is not None:
        content = str(record["content_sha256"])
    elif limit is None:
        seen = {key: label for part in labels.values() for key, label in part.items()}
        content = _sha256("\n".join(sorted(f"{key}\t{label}" for key, label in seen.items())))
    found = {
        "schema": SCHEMA,
        "data": name,
        "name": data.display_name,
        "dataset": data.dataset_name,
        "images": sum(entry["samples"] for split, entry in entries.items() if split != "projection"),
        "official_images": data.official_images,
        "classes": len(data.class_names),
        "content_sha256": content,
        "split_sha256": None if record is None else _sha256(json.dumps(record, sort_keys=True)),
        "splits": entries,
    }
    return DataCheck(found, tiles)


def _parts(data: ImageDataModule, record: dict[str, Any] | None) -> list[Split]:
    """The splits that have samples."""
    if record is not None and record["scheme"] == "test":  # which keeps every sample for test
        return ["test"]
    empty = {"val"} if not data.has_validation else set()
    if record is not None and not record["test"]:  # such as Stanford Cars without the classes of its test photos
        empty.add("test")
    return [split for split in SPLITS if split not in empty]


def _check_split(
    data: ImageDataModule, split: Split, limit: int | None, problems: Problems
) -> tuple[dict[str, Any], dict[str, int], dict[str, Tensor], list[Sample]]:
    """The record of a split, and of the samples looked at the class index by id, how many show what, and some."""
    whole, flags, sizes = data.dataset(split), data.capabilities(split), field_sizes(data)
    count = AUGMENTED_SAMPLES if split == "train" else limit
    chosen = whole if count is None else Stratified(whole, count)
    positions = range(len(chosen))
    caught = Mapped(partial(_sample_or_error, chosen), positions)
    kept = {i * len(chosen) // SHOWN_SAMPLES for i in range(SHOWN_SAMPLES)}
    labels: dict[str, int] = {}
    shown: dict[str, Tensor] = {}  # field, or what is unknown of it -> (K,) or (L,) int64
    examples: list[Sample] = []
    samples = WorkerLoader(caught, batch_size=None, num_workers=data.num_workers)
    for position, sample in enumerate(track(samples, f"checking {split}", total=len(chosen))):
        if isinstance(sample, str):
            problems.wrong(f"{split}: {sample}")
            continue
        where = f"{split}, sample {sample.get('sample_id')!r}"
        for text in sample_problems(sample, flags, sizes):
            problems.wrong(f"{where}: {text}")
        labels[sample["sample_id"]] = int(sample["label"])
        for kind in ("labels", "concepts"):
            if kind in sample:
                values: Any = sample
                unknown = values.get(f"{kind.removesuffix('s')}_certainty", torch.ones(())) == 0
                shown[kind] = shown.get(kind, 0) + (values[kind] & ~unknown).long()
                if unknown.ndim:
                    shown[f"unknown_{kind}"] = shown.get(f"unknown_{kind}", 0) + unknown.long()
        if position in kept:
            examples.append(sample)
            if not same_sample(sample, chosen[position]):
                problems.wrong(f"{where}: differs when read twice")
    if len(set(whole.sample_ids)) < len(whole):
        problems.wrong(f"{split}: {len(whole)} samples have {len(set(whole.sample_ids))} different ids")
    record = {
        "samples": len(whole),
        "checked": len(chosen),
        "per_class": {},
        "ids_sha256": _ids_sha256(whole.sample_ids),
        "flags": {field.name: flags.missing(field.name) or True for field in fields(flags)},
    }
    return record, labels, shown, examples


def _sample_or_error(dataset: ImageDataset, index: int) -> Sample | str:
    """A sample, or what is wrong with its file, so that one bad file does not hide the next."""
    try:
        return dataset[index]
    except (ValueError, OSError) as error:
        return f"sample {dataset.sample_ids[index]!r}: {error}"


def _bins(data: ImageDataModule, labels: dict[str, int]) -> Tensor:
    """``(K,)`` int64, the number of samples of every class."""
    return torch.tensor(list(labels.values()), dtype=torch.int64).bincount(minlength=data.num_classes)


def _tile(data: ImageDataModule, split: str, sample: Sample) -> Tile:
    single = "labels" not in sample
    text = data.class_names[int(sample["label"])] if single else f"{int(sample['labels'].sum())} labels"
    return Tile(sample, split, str(sample["sample_id"]), text)


def _ids_sha256(ids: list[str]) -> str:
    """Of the sorted ids joined by newlines; numbers are sorted as numbers."""
    numbers = all(name.isdecimal() for name in ids)
    return _sha256("\n".join(sorted(ids, key=int) if numbers else sorted(ids)))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
