"""SketchBirds written as other data sets, whose readers then have photos with known answers."""

from pathlib import Path
from typing import Literal

from protometry.datamodules.sketch_birds import SketchBirds
from tests.exports.awa2 import export_awa2
from tests.exports.cars196 import export_cars196
from tests.exports.cub import export_cub
from tests.exports.funnybirds import export_funnybirds
from tests.exports.nico import export_nico

Layout = Literal["cub", "cars196", "funnybirds", "awa2", "nico"]
WRITERS = {
    "awa2": export_awa2,
    "cars196": export_cars196,
    "cub": export_cub,
    "funnybirds": export_funnybirds,
    "nico": export_nico,
}


def export(layout: Layout, birds: SketchBirds, out: Path) -> None:
    """Write all splits of some birds into a new folder."""
    out.mkdir(parents=True)
    WRITERS[layout](birds, out)
