"""What is known of words before a model is fitted to them: their embeddings, and which of them are unfit by name.

No tower is needed for it. A file holds the embeddings, so that any pair of towers with a common space will do.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from lightning import LightningModule, Trainer
from torch import Tensor
from torch.nn import functional as F

from protometry.callbacks.trainer_parts import datamodule_of
from protometry.lightning_modules.contract import FitsWords, LeftOut, Words
from protometry.run_folder.command_line.messages import did_you_mean
from protometry.run_folder.command_line.user_path import user_path

_ARTICLES = ("", "a ", "an ", "the ")


class WordEmbeddings:
    """The arrays of a file that ``numpy.savez`` has written.

    - ``concepts`` (L strings) and ``text`` (L, E): the words and their text embeddings.
    - ``sample_ids`` (n strings) and ``images`` (n, E): the training images and their image embeddings.
    - ``classes`` (K strings) and ``class_text`` (K, E), optional: text embeddings of the class names.
    - ``vectors`` (L, D), optional: the words in the space of a backbone's channels, for ``directions: text``.

    Args:
        path: of the file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no such file, or an array is missing, not finite or of another shape.
    """

    def __init__(self, path: str) -> None:
        self.path = user_path(path)
        try:
            with np.load(self.path, allow_pickle=False) as file:
                self.arrays: dict[str, Any] = dict(file)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"Expected argument `embeddings` to be a file of embeddings, but there is no {self.path}. `protometry "
                "words` writes one."
            ) from None
        except (ValueError, zipfile.BadZipFile, AttributeError, TypeError) as error:
            raise ValueError(f"Expected {self.path} to be written by `numpy.savez` without objects: {error}") from error
        for names, rows in (("concepts", "text"), ("concepts", "vectors"), ("sample_ids", "images"),
                            ("classes", "class_text")):  # fmt: skip
            if rows in self.arrays:
                self._check(names, rows)

    def _check(self, names: str, rows: str) -> None:
        count, array = self.arrays.get(names, np.empty(0)).shape, self.arrays[rows]
        if array.ndim != 2 or array.shape[:1] != count or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(
                f"Expected `{rows}` of {self.path} to hold finite floats, one row for each of `{names}` "
                f"{count}, but got {array.dtype} {array.shape}."
            )

    def rows(self, names: str, array: str, wanted: Sequence[str]) -> Tensor:
        """Rows of an array by their names, float32 of norm 1.

        Raises:
            ValueError: if the array or a row is missing.
        """
        if array not in self.arrays:
            raise ValueError(f"Expected {self.path} to hold `{array}`, but it has {', '.join(sorted(self.arrays))}.")
        row_of = {name: row for row, name in enumerate(self.arrays[names].tolist())}
        if missing := [name for name in wanted if name not in row_of]:
            raise ValueError(
                f"Expected `{names}` of {self.path} to hold all {len(wanted)} that are needed, but {len(missing)} are "
                f"missing, such as {missing[0]!r}.{did_you_mean(missing[0], row_of)}"
            )
        chosen = self.arrays[array][[row_of[name] for name in wanted]]
        return F.normalize(torch.from_numpy(chosen).float(), dim=1)


def similarities_to_words(trainer: Trainer, module: LightningModule) -> Tensor | None:
    """Read the embeddings, tell a model of words what is known of them, and compare all training images with them.

    Returns:
        ``(n, L)`` float32 cosines in the order of the data set, ``(n, 0)`` where directions are the texts themselves;
        None for other models.

    Raises:
        FileNotFoundError: if there is no file.
        ValueError: if it lacks a word or a training image, or does not suit the backbone.
    """
    if not isinstance(module, FitsWords):
        return None
    words, datamodule = module.words, datamodule_of(trainer)
    file, ids = WordEmbeddings(words.embeddings), datamodule.dataset("projection").sample_ids
    index = {name: row for row, name in enumerate(datamodule.tables.concept_names)}
    linked = [index.get(name, -1) for name in words.names]
    if words.directions == "text":
        array = "vectors" if "vectors" in file.arrays else "text"
        module.load_words([""] * len(linked), linked, file.rows("concepts", array, words.names))
        return torch.empty(len(ids), 0)
    cosines = file.rows("sample_ids", "images", ids) @ file.rows("concepts", "text", words.names).T
    module.load_words(unfit_words(words, datamodule.class_names, file), linked, None)
    return cosines


def unfit_words(words: Words, classes: Sequence[str], file: WordEmbeddings) -> list[LeftOut]:
    """Which words are unfit by name: long ones, classes, and all but one of those that mean nearly the same.

    Source: Oikarinen et al. 2023, section 3 (step 1). Of two words that are alike, the one that is less like the others
    goes, so that the more general one stays.

    Returns:
        Why each word is unfit, "" for fit ones.
    """
    text = file.rows("concepts", "text", words.names)
    reasons = _by_name(words, classes)
    if "class_text" in file.arrays:
        theirs = file.rows("classes", "class_text", file.arrays["classes"].tolist())
        for row in ((text @ theirs.T).amax(dim=1) >= words.like_class).nonzero().flatten().tolist():
            reasons[row] = reasons[row] or "like a class"
    left = [row for row, reason in enumerate(reasons) if not reason]
    cosines = text[left] @ text[left].T
    totals = cosines.sum(dim=1)
    for one, other in (cosines >= words.like_another).triu(diagonal=1).nonzero().tolist():
        if not (reasons[left[one]] or reasons[left[other]]):
            reasons[left[one if totals[one] < totals[other] else other]] = "like another word"
    return reasons


def _by_name(words: Words, classes: Sequence[str]) -> list[LeftOut]:
    named = {article + name.lower() for name in classes for article in _ARTICLES}
    reasons: list[LeftOut] = []
    for word in words.names:
        if len(word) > words.longest:
            reasons.append("too long")
        else:
            reasons.append("a class" if word.lower() in named else "")
    return reasons
