"""Metrics on a network that knows nothing about this project: maps of any attribution method go in, numbers come out.

    python examples/any_network.py

The network is plain PyTorch, the maps are input gradients; Captum or any other library gives maps of the same shape.
The data are SketchBirds, whose masks say where the bird is.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader

from protometry.datamodules import SketchBirdsDataset
from protometry.metrics import EnergyPointingGame, PointingGame
from protometry.metrics.functional import visualization_location_change

torch.manual_seed(0)
birds = SketchBirdsDataset("tiny", "train")
loader = DataLoader(birds, batch_size=32, shuffle=True)
network = nn.Sequential(
    *(nn.Conv2d(3, 16, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
    *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, birds.n_classes)),
)
optimizer = torch.optim.Adam(network.parameters(), 2e-3)
for _ in range(3):
    for batch in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(batch["image"]), batch["label"]).backward()
        optimizer.step()


def attribute(images: torch.Tensor) -> torch.Tensor:
    """Input × gradient of the predicted class, summed over colours, (B, H, W)."""
    images = images.clone().requires_grad_()
    network(images).max(1).values.sum().backward()
    return (images.grad * images).sum(1).detach()


def strong(saliency: torch.Tensor) -> torch.Tensor:
    """The 5 % of the pixels with the most positive relevance, and 0 elsewhere."""
    return saliency.clamp(min=0) * (saliency >= saliency.flatten(2).quantile(0.95, 2)[..., None, None])


pointing, energy, changes = PointingGame(), EnergyPointingGame(), []
for batch in DataLoader(SketchBirdsDataset("tiny", "test"), batch_size=32):
    saliency = attribute(batch["image"])[:, None]  # one explanation per image: (B, 1, H, W)
    pointing.update(saliency, batch["object_mask"])
    energy.update(saliency, batch["object_mask"])
    noisy = attribute((batch["image"] + 0.02 * torch.randn_like(batch["image"])).clamp(0, 1))[:, None]
    strongest = [strong(maps) for maps in (saliency, noisy)]
    changes.append(visualization_location_change(*strongest, region="mask"))

print(f"peak on the bird                         {pointing.compute():.1%}")
print(f"positive relevance on the bird           {energy.compute():.1%}")
print(f"the strongest 5 % that noise moves away  {torch.cat(changes).nanmean():.1%}")
