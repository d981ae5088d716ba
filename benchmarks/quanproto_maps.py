"""Maps as in figure 2 of Schlinge et al. 2025: ``python benchmarks/quanproto_maps.py runs/quanproto --output FILE``.

One row per prototype model of ``configs/sweep/quanproto.yaml`` in fold 0, with two test images of each data set. Every
image shows the PRP map of the unit with the highest score, above its 95th percentile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.quanproto_findings import DATA
from protometry.datamodules import load_datamodule
from protometry.explanations import PRP, Targets, unit_view
from protometry.explanations.views import sheet
from protometry.lightning_modules import load_model
from protometry.metrics.primitives.regions import clip_saliency

MODELS = {"protopnet": "ProtoPNet", "protopool": "ProtoPool", "pipnet": "PIPNet"}
PLACES = (0, -1)  # the first and the last image of the test split


def maps(checkpoint: Path) -> Iterator[Image.Image]:
    """The maps of some test images."""
    model, data = load_model(checkpoint), load_datamodule(checkpoint)
    dataset = data.dataset("test")
    images = torch.stack([dataset[range(len(dataset))[place]]["image"] for place in PLACES])
    with torch.no_grad():
        best = model(images).scores.argmax(dim=1, keepdim=True)
    saliency = clip_saliency(PRP().attribute(model, images, Targets("unit", best)))
    for image, own in zip(images, saliency[:, 0], strict=True):
        yield unit_view(image, own, size=128).heat


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="folder of the runs of the sweep")
    parser.add_argument("--output", type=Path, required=True, help="PNG to write")
    arguments = parser.parse_args()
    runs = [[arguments.runs / f"{model}-{data}-fold0/checkpoints/best.ckpt" for data in DATA] for model in MODELS]
    tiles = [[picture for run in row for picture in maps(run)] for row in runs]
    sheet(tiles, len(PLACES) * len(DATA), list(MODELS.values())).quantize(256).save(arguments.output, optimize=True)


if __name__ == "__main__":
    main()
