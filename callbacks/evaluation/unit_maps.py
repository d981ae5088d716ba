"""The maps of all active units on all images of an evaluation, as arrays on disk that are read piece by piece."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed

from protometry.lightning_modules.bases.geometry import Geometry
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.command_line.processes import gathered

ARRAYS = {"maps": "float32", "boxes": "int32"}
INDEX = "maps.json"


class UnitMaps:
    """Writes ``maps.npy``, ``boxes.npy`` and their index ``maps.json`` into the folder of an evaluation.

    ``maps`` is ``(N, M, h, w)`` float32, what the model gives for each image and active unit. ``boxes`` is
    ``(N, M, 4)`` int32, the inclusive pixels (x0, y0, x1, y1) of the cell in which a map is largest, the first on ties.
    Every process writes the rows of its own images; the index comes last, so that its presence means complete arrays.

    Args:
        folder: of the evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._arrays: dict[str, Any] = {}

    def start(self, keys: list[int], active: Tensor, geometry: Geometry) -> None:
        """Make the arrays, on rank zero.

        Args:
            keys: sample keys of all images, in the order of the rows.
            active: ``(U,)`` bool, the units.
            geometry: of the grid of the maps.

        Raises:
            OSError: if the disk has no room for them.
        """
        self._rows, self._active = {key: row for row, key in enumerate(keys)}, active
        start, jump = zip(*geometry.lines, strict=True)
        self._geometry = {"image": geometry.image, "grid": geometry.grid, "jump": jump, "start": start}
        cells = [(row, col) for row in range(geometry.grid[0]) for col in range(geometry.grid[1])]
        self._boxes = torch.tensor([geometry.cell_box(*cell) for cell in cells])
        count = int(active.sum())
        shapes = {"maps": (len(keys), count, *geometry.grid), "boxes": (len(keys), count, 4)}
        wanted = sum(int(np.prod(shapes[name])) * np.dtype(kind).itemsize for name, kind in ARRAYS.items())
        self.folder.mkdir(parents=True, exist_ok=True)
        if (free := shutil.disk_usage(self.folder).free) < wanted:
            raise OSError(
                f"Expected {wanted / 2**30:.3g} GiB on the disk of {self.folder} for the maps of {count} units on "
                f"{len(keys)} images, but {free / 2**30:.3g} GiB are free. Free some, or evaluate fewer images."
            )
        if _first_process():
            remove_maps(self.folder)
            for name, kind in ARRAYS.items():
                np.lib.format.open_memmap(self._part(name), "w+", dtype=kind, shape=shapes[name]).flush()
                with self._part(name).open("rb+") as file:  # now, since a map without room ends the process
                    os.posix_fallocate(file.fileno(), 0, self._part(name).stat().st_size)
        gathered(None)  # the files are there now
        self._arrays = {name: np.lib.format.open_memmap(self._part(name), "r+") for name in ARRAYS}

    def add(self, keys: Tensor, maps: Tensor) -> None:
        """Write the rows of B images.

        Args:
            keys: ``(B,)`` int64 sample keys.
            maps: ``(B, U, h, w)`` of all units.
        """
        own = maps[:, self._active].float().cpu()
        rows = [self._rows[key] for key in keys.tolist()]
        self._arrays["maps"][rows] = own.numpy()
        self._arrays["boxes"][rows] = self._boxes[own.flatten(2).argmax(dim=2)].numpy()

    def finish(self, index: dict[str, Any]) -> None:
        """Put the files in their places once all processes have written their rows.

        Args:
            index: what the rows and columns are.
        """
        for array in self._arrays.values():
            array.flush()
        gathered(None)
        if not _first_process():
            return
        for name, array in self._arrays.items():
            index[name] = {"file": f"{name}.npy", "shape": list(array.shape), "dtype": str(array.dtype)}
            self._part(name).replace(self.folder / f"{name}.npy")
        write_atomic(self.folder / INDEX, json.dumps({"schema": 1, **index, "geometry": self._geometry}))

    def _part(self, name: str) -> Path:
        return self.folder / f"{name}.npy.part"


def remove_maps(folder: Path) -> None:
    """Remove the maps of an earlier evaluation in the same place."""
    for name in (INDEX, *(f"{name}.npy" for name in ARRAYS)):
        (folder / name).unlink(missing_ok=True)


@contextmanager
def unit_maps(engine: Any, folder: Path | None) -> Iterator[UnitMaps | None]:
    """Have the engine of an evaluation write the maps into a folder, and leave no part of them if it fails."""
    engine.maps = None if folder is None else UnitMaps(folder)
    try:
        yield engine.maps
    finally:
        if folder is not None and _first_process():  # which others do not wait for
            for name in ARRAYS:
                (folder / f"{name}.npy.part").unlink(missing_ok=True)


def _first_process() -> bool:
    return not distributed.is_initialized() or distributed.get_rank() == 0
