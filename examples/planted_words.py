"""A file of embeddings of words and images, as a text and an image tower would give them, for SketchBirds.

    python examples/planted_words.py configs/experiment/concepts/sketch_birds_words.txt words.npz

No weights of such towers are needed: the embedding of an image is the sum of those of the words that are true of it,
plus noise. Replace both by those of your towers: `protometry words` does it with those of open_clip.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from protometry.datamodules import SketchBirds


def plant(path: Path, words: Sequence[str], data: Any, noise: float = 0.15, seed: int = 0) -> None:
    """Write words with orthogonal embeddings, and training images in which those of the data's concepts add up.

    Args:
        path: of the file.
        words: those that are no concept of the data are true of no image.
        data: a data module.
        noise: standard deviation per number, beside words of length 1.
        seed: of the embeddings.
    """
    generator = np.random.default_rng(seed)
    text = np.linalg.qr(generator.normal(size=(max(64, len(words)), len(words))))[0].T
    dataset, names = data.dataset("projection"), data.tables.concept_names
    samples = [dataset[row] for row in range(len(dataset))]
    shown = np.array([[word in names and bool(sample["concepts"][names.index(word)]) for word in words]
                      for sample in samples])  # fmt: skip
    images = shown @ text + noise * generator.normal(size=(len(samples), text.shape[1]))
    np.savez(
        path,
        concepts=np.array(words),
        text=text.astype(np.float32),
        sample_ids=np.array([sample["sample_id"] for sample in samples]),
        images=images.astype(np.float32),
    )


if __name__ == "__main__":
    given, out = Path(sys.argv[1]), Path(sys.argv[2])
    listed = [word for word in given.read_text("utf-8").splitlines() if word]
    plant(out, listed, SketchBirds("small", image_size=64))
    print(f"{len(listed)} words in {out}")
