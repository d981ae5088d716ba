"""The data of ``docs/results/quanproto.md``: ``python -m tests.exports --layout cub --preset tiny --out DIR``."""

from pathlib import Path

from jsonargparse import ArgumentParser

from protometry.datamodules.sketch_birds import SketchBirds
from tests.exports import Layout, export

parser = ArgumentParser(description="Write SketchBirds in the layout of another data set.")
parser.add_argument("--layout", type=Layout, required=True)
parser.add_argument("--out", type=Path, required=True, help="new folder")
parser.add_class_arguments(SketchBirds)
options = parser.parse_args().as_dict()
layout, out = options.pop("layout"), options.pop("out")
export(layout, SketchBirds(**options), out)
