"""Any network as the backbone of a prototype model: a vision transformer of timm, then a module of your own.

python examples/own_backbone.py

Needs timm: pip install "protometry[timm]". Weights are random here; `"weights": "pretrained"` fetches timm's.
"""

import torch
from torch import nn

from protometry.lightning_modules import ProtoPNet


class Squares(nn.Module):
    """Features of squares of 16 pixels; a backbone is a module from images (B, 3, H, W) to features (B, D, h, w)."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 16, stride=16), nn.ReLU(), nn.Conv2d(width, width, 1), nn.ReLU()
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Normalised images to features."""
        return self.layers(images)


def describe(name: str, model: ProtoPNet) -> None:
    """Print the grid, and what one of its cells sees."""
    geometry = model.geometry
    x0, y0, x1, y1 = geometry.cell_box(1, 2, "receptive_field")
    maps = tuple(model(torch.rand(1, 3, *geometry.image)).maps.shape[1:])
    print(f"{name}: maps {maps}, cell (1, 2) sees columns {x0} to {x1} and rows {y0} to {y1}")


if __name__ == "__main__":
    transformer = {"name": "timm/vit_tiny_patch16_224", "init_args": {"depth": 4}}
    describe("transformer", ProtoPNet(num_classes=5, image_size=(96, 128), backbone=transformer))
    describe("squares", ProtoPNet(num_classes=5, image_size=(96, 128), backbone=Squares()))
