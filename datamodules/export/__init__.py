"""Export of SketchBirds in the folder layout of another data set.

A layout is a module of this package with one function ``export_<layout>(birds, out)`` that fills a folder
which exists and is empty.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from pathlib import Path
from typing import Literal, get_args

from protometry.command_line.user_path import user_path
from protometry.datamodules.arguments import check_choice
from protometry.datamodules.photos.download import is_free
from protometry.datamodules.sketch_birds import SketchBirds

Layout = Literal["cub", "cars196", "funnybirds", "awa2", "nico"]


def export(layout: Layout, birds: SketchBirds, out: Path) -> None:
    """Write a data set so that ``out`` appears complete or not at all.

    Everything is written into a temporary folder next to ``out``, which becomes ``out`` in one rename.

    Args:
        layout: whose layout: ``cub`` (CUB-200-2011), ``cars196`` (Stanford Cars), ``funnybirds``, ``awa2`` or
            ``nico``.
        birds: what is written; all of its splits.
        out: a folder that is missing or empty.

    Raises:
        ValueError: if ``layout`` is unknown, ``out`` has content, or the birds do not suit the layout.
    """
    check_choice("layout", layout, get_args(Layout))
    if birds.task != "classes":
        raise ValueError(f"Expected argument `task` to be 'classes' for an export, but got {birds.task!r}.")
    out = user_path(out).resolve()
    if not is_free(out):
        raise ValueError(f"Expected argument `out` to be a folder that is missing or empty, but {out} has content.")
    write = getattr(importlib.import_module(f"protometry.datamodules.export.{layout}"), f"export_{layout}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
        unfinished = Path(temporary) / "export"
        unfinished.mkdir()
        write(birds, unfinished)
        os.replace(unfinished, out)
