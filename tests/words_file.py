"""A file of embeddings of words and images that mean nothing, for models of words in tests of all models."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

WORDS = [f"word {index}" for index in range(20)]
ANY = {"shown_cutoff": -1.0, "interpretability_cutoff": -1.0, "like_another": 1.1}  # no word is left out
_folder = TemporaryDirectory()  # goes with the process


@cache
def words_file() -> str:
    """Path of a file for the first 400 training images of SketchBirds."""
    generator, path = np.random.default_rng(0), Path(_folder.name) / "words.npz"
    text, images = generator.normal(size=(len(WORDS), 32)), generator.normal(size=(400, 32))
    np.savez(path, concepts=WORDS, text=text, images=images, sample_ids=[f"train/{i:05d}" for i in range(400)])
    return str(path)
