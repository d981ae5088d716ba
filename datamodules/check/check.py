"""The check of a data set, through the public interface of its data module only."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.check.contact_sheet import Tile
from protometry.datamodules.check.sample import field_sizes, same_sample, sample_problems
from protometry.datamodules.dataset import ImageDataset, Mapped
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.progress import track
from protometry.datamodules.sample import Capabilities, Sample
from protometry.datamodules.splits import SPLITS, Split
from protometry.datamodules.views import Stratified

AUGMENTED_SAMPLES = 6  # of the augmented training images, which the projection split shows completely
SHOWN_SAMPLES = 6
SCHEMA = 1


@dataclass(frozen=True)
class SplitCheck:
    """The findings in one split.

    Args:
        checked: how many of them were looked at.
        labels: class index by id of every sample looked at; for training images, through the evaluation transform.
        ids_sha256: SHA-256 of the sorted sample ids joined by newlines; numbers are sorted as numbers.
    """

    samples: int
    checked: int
    labels: dict[str, int]
    ids_sha256: str
    flags: Capabilities
    examples: list[Sample]


@dataclass(frozen=True)
class DataCheck:
    """The findings in a data set.

    Args:
        content_sha256: fingerprint of samples and classes, as in ``split.json``; None if only some samples were seen.
        split_sha256: SHA-256 of the content of ``split.json``; None for data sets that define their own split.
    """

    data: str
    dataset: str
    class_names: list[str]
    official_images: int | None
    content_sha256: str | None
    split_sha256: str | None
    splits: dict[str, SplitCheck]

    @property
    def images(self) -> int:
        """Number of images in all parts."""
        return sum(check.samples for split, check in self.splits.items() if split != "projection")

    def record(self) -> dict[str, Any]:
        """The content of ``check.json``: plain data."""
        return {
            "schema": SCHEMA,
            "data": self.data,
            "dataset": self.dataset,
            "images": self.images,
            "official_images": self.official_images,
            "classes": len(self.class_names),
            "content_sha256": self.content_sha256,
            "split_sha256": self.split_sha256,
            "splits": {split: _split_record(check, len(self.class_names)) for split, check in self.splits.items()},
        }

    def sheet_tiles(self) -> list[Tile]:
        """Samples for the contact sheet, some of every split that is not augmented."""
        tiles = []
        for split, check in self.splits.items():
            single = bool(check.flags.missing("multi_label"))
            for sample in check.examples if split != "train" else []:
                label = int(sample["label"])
                text = self.class_names[label] if single else f"{int(sample['labels'].sum())} labels"
                tiles.append(Tile(sample, f"{split}: {sample['sample_id']}", text))
        return tiles


def check_data(data: ImageDataModule, limit: int | None = None) -> DataCheck:
    """Verify a data set: files, tables, splits, and every sample, or ``limit`` per split, against the contract.

    Raises:
        FileNotFoundError: if something is missing.
        ValueError: if something is wrong; one error that counts all problems.

    Example:
        >>> from protometry.datamodules import SketchBirds
        >>> found = check_data(SketchBirds("tiny"), limit=2)
        >>> found.images, found.record()["splits"]["test"]["checked"]
        (384, 2)
    """
    _ = data.num_classes, data.num_concepts  # which `train.py fit` asks for before anything else
    data.prepare_data()
    data.setup("fit")
    name = type(data).__name__
    problems = Problems(f"the data of {name}", "Replace the files named above, or list their ids in `exclude`.")
    record = data.split_record()
    splits: dict[str, SplitCheck] = {
        split: _check_split(data, split, limit, problems) for split in _parts(data, record)
    }
    problems.raise_any()
    if "train" in splits:
        splits["train"] = replace(splits["train"], labels=splits["projection"].labels)
    split_sha256 = None if record is None else _sha256(json.dumps(record, sort_keys=True))
    seen = {key: label for split in splits.values() for key, label in split.labels.items()}
    content = None
    if record is not None:
        content = str(record["content_sha256"])
    elif limit is None:
        content = _sha256("\n".join(sorted(f"{key}\t{label}" for key, label in seen.items())))
    return DataCheck(
        data=name,
        dataset=data.dataset_name,
        class_names=data.class_names,
        official_images=data.official_images,
        content_sha256=content,
        split_sha256=split_sha256,
        splits=splits,
    )


def _parts(data: ImageDataModule, record: dict[str, Any] | None) -> list[Split]:
    """The splits that have samples."""
    if record is not None and record["scheme"] == "test":  # which keeps every sample for test
        return ["test"]
    empty = {"val"} if not data.has_validation else set()
    if record is not None and not record["test"]:  # such as Stanford Cars without the classes of its test photos
        empty.add("test")
    return [split for split in SPLITS if split not in empty]


def _check_split(data: ImageDataModule, split: Split, limit: int | None, problems: Problems) -> SplitCheck:
    whole, flags, sizes = data.dataset(split), data.capabilities(split), field_sizes(data)
    count = AUGMENTED_SAMPLES if split == "train" else limit
    chosen = whole if count is None else Stratified(whole, count)
    positions = range(len(chosen))
    caught = Mapped(partial(_sample_or_error, chosen), positions)
    kept = {i * len(chosen) // SHOWN_SAMPLES for i in range(SHOWN_SAMPLES)}
    labels: dict[str, int] = {}
    examples: list[Sample] = []
    samples = DataLoader(caught, batch_size=None, num_workers=data.num_workers)
    for position, sample in enumerate(track(samples, f"checking {split}", total=len(chosen))):
        if isinstance(sample, str):
            problems.wrong(f"{split}: {sample}")
            continue
        where = f"{split}, sample {sample.get('sample_id')!r}"
        for text in sample_problems(sample, flags, sizes):
            problems.wrong(f"{where}: {text}")
        labels[sample["sample_id"]] = int(sample["label"])
        if position in kept:
            examples.append(sample)
            if not same_sample(sample, chosen[position]):
                problems.wrong(f"{where}: differs when read twice")
    if len(set(whole.sample_ids)) < len(whole):
        problems.wrong(f"{split}: {len(whole)} samples have {len(set(whole.sample_ids))} different ids")
    return SplitCheck(len(whole), len(chosen), labels, _ids_sha256(whole.sample_ids), flags, examples)


def _sample_or_error(dataset: ImageDataset, index: int) -> Sample | str:
    """A sample, or what is wrong with its file, so that one bad file does not hide the next."""
    try:
        return dataset[index]
    except (ValueError, OSError) as error:
        return f"sample {dataset.sample_ids[index]!r}: {error}"


def _split_record(check: SplitCheck, classes: int) -> dict[str, Any]:
    counts = Counter(check.labels.values())
    known = range(classes) if check.flags.missing("multi_label") else sorted(counts)
    per_class = [counts[label] for label in known]
    return {
        "samples": check.samples,
        "checked": check.checked,
        "per_class": {"min": min(per_class, default=0), "max": max(per_class, default=0)},
        "ids_sha256": check.ids_sha256,
        "flags": {field.name: check.flags.missing(field.name) or True for field in fields(check.flags)},
    }


def _ids_sha256(ids: list[str]) -> str:
    numbers = all(name.isdecimal() for name in ids)
    return _sha256("\n".join(sorted(ids, key=int) if numbers else sorted(ids)))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
