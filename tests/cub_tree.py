"""Small trees in the official layout of CUB-200-2011; the fixture ``cub_tree`` of ``tests/conftest.py`` writes them."""

from pathlib import Path

import numpy as np
from PIL import Image

PARTS = (
    "back,beak,belly,breast,crown,forehead,left eye,left leg,left wing,nape,right eye,right leg,right wing,tail,throat"
)


def write_rows(path: Path, rows: list[str], end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(row + end for row in rows).encode())


def make_cub(root: Path, classes: int = 3, per_class: int = 8, end: str = "\n", masks: bool = False) -> Path:
    """A tree in the layout of CUB-200-2011 with random 40x30 pictures; image i (from 1) is filled with grey i.

    The box of every image is (4.5, 6, 20, 12.5). Part p (from 0) of every image lies at (5 + p, 7) and is visible
    unless p equals the class. The last quarter of each class is official test. Class c has attribute a with 10 c %
    plus 50 % if a is odd.
    """
    folder = root / "CUB_200_2011"
    names = PARTS.split(",")
    tables: dict[str, list[str]] = {name: [] for name in ("images", "labels", "split", "boxes", "parts")}
    number = 0
    for c in range(classes):
        (folder / "images" / f"{c + 1:03d}.Bird_{c}").mkdir(parents=True)
        for i in range(per_class):
            number += 1
            path = f"{c + 1:03d}.Bird_{c}/photo_{i}.jpg"
            Image.new("RGB", (40, 30), (number, number, number)).save(folder / "images" / path)
            tables["images"].append(f"{number} {path}")
            tables["labels"].append(f"{number} {c + 1}")
            tables["split"].append(f"{number} {int(i < per_class * 3 // 4)}")
            tables["boxes"].append(f"{number} 4.5 6.0 20.0 12.5")
            for p in range(15):
                tables["parts"].append(f"{number} {p + 1} " + (f"{5 + p}.0 7.0 1" if p != c else "0.0 0.0 0"))
            if masks:
                mask = np.zeros((30, 40), np.uint8)
                mask[6:18, 4:24] = 200  # grey steps: 4 of 5 annotators
                mask[6, 4] = 50
                target = root / "segmentations" / path.replace(".jpg", ".png")
                target.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(mask).save(target)
    write_rows(folder / "classes.txt", [f"{c + 1} {c + 1:03d}.Bird_{c}" for c in range(classes)], end)
    write_rows(folder / "images.txt", tables["images"], end)
    write_rows(folder / "image_class_labels.txt", tables["labels"], end)
    write_rows(folder / "train_test_split.txt", tables["split"], end)
    write_rows(folder / "bounding_boxes.txt", tables["boxes"], end)
    write_rows(folder / "parts/part_locs.txt", tables["parts"], end)
    write_rows(folder / "parts/parts.txt", [f"{p + 1} {name}" for p, name in enumerate(names)], end)
    regions = ["bill_shape", "back_color", "left_out", "upper_tail_color"]
    write_rows(root / "attributes.txt", [f"{a + 1} has_{regions[a % 4]}::v{a}" for a in range(312)], end)
    shares = [" ".join(str((10 * c + 50.0 * (a % 2)) % 101) for a in range(312)) for c in range(classes)]
    write_rows(folder / "attributes/class_attribute_labels_continuous.txt", shares, end)
    return root


def add_image_labels(root: Path, images: int = 24) -> Path:
    """Image i (from 1) has attribute a (from 1) if i + a is even, with certainty 1 + a % 4."""
    rows = [f"{i} {a} {(i + a) % 2 ^ 1} {1 + a % 4} 1.0" for i in range(1, images + 1) for a in range(1, 313)]
    write_rows(root / "CUB_200_2011/attributes/image_attribute_labels.txt", rows)
    return root
