"""Pictures of samples with what is annotated on them."""

from __future__ import annotations

import colorsys

import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torchvision.utils import draw_bounding_boxes, draw_segmentation_masks

from protometry.datamodules.sample import Sample

BOX_COLOR = (255, 210, 0)
MASK_COLOR = (255, 0, 200)
PART_OPACITY = 0.45
POINT_RADIUS = 3


def plot_sample(sample: Sample, size: int = 384) -> Image.Image:
    """Draw a sample with its box (yellow), points and parts (a colour each) and the outline of its mask (pink).

    Example:
        >>> from protometry.datamodules import SketchBirds
        >>> plot_sample(SketchBirds("tiny").dataset("test")[0], size=192).size
        (192, 192)
    """
    height, width = sample["image"].shape[1:]
    scale = size / max(height, width)
    sides = (max(1, round(height * scale)), max(1, round(width * scale)))
    picture = F.interpolate(sample["image"][None], sides, mode="nearest" if scale > 1 else "area")[0]
    picture = (picture * 255).round().to(torch.uint8)
    if "label_map" in sample:
        codes = _enlarged(sample["label_map"], sides)
        present = [code for code in torch.unique(codes).tolist() if code > 0]
        masks = codes == torch.tensor(present).view(-1, 1, 1)
        if present:
            picture = draw_segmentation_masks(picture, masks, PART_OPACITY, [index_color(code) for code in present])
    if "object_mask" in sample:
        mask = F.pad(_enlarged(sample["object_mask"], sides).float()[None], (1, 1, 1, 1))
        inner = -F.max_pool2d(-mask, 3, stride=1)  # pixels whose neighbours are all object
        picture = draw_segmentation_masks(picture, (mask[:, 1:-1, 1:-1] > inner), 1.0, MASK_COLOR)
    if "bounding_box" in sample:
        corners = (sample["bounding_box"] + torch.tensor([0, 0, 1, 1])) * scale - torch.tensor([0, 0, 1, 1])
        corners = corners.round()
        corners[2:] = corners.maximum(corners.roll(2))[2:]  # where a pixel of the image is less than one here
        picture = draw_bounding_boxes(picture, corners[None], colors=BOX_COLOR)
    if "part_points" in sample and sample["part_visible"].any():
        points = (sample["part_points"][sample["part_visible"]] * scale).round().repeat(1, 2)
        squares = points + POINT_RADIUS * torch.tensor([-1, -1, 1, 1])
        colors = [index_color(part) for part in sample["part_visible"].nonzero().flatten().tolist()]
        picture = draw_bounding_boxes(picture, squares, colors=colors, width=POINT_RADIUS + 1)  # filled
        picture = draw_bounding_boxes(picture, squares, colors=(0, 0, 0))
    return Image.fromarray(picture.permute(1, 2, 0).numpy())


def image_pixels(image: Tensor) -> Tensor:
    """An image ``(..., 3, H, W)`` in 0..1 as pixels ``(..., H, W, 3)``, rounded; the inverse of :func:`.image_tensor`.

    Example:
        >>> image_pixels(torch.tensor([0.0, 0.2, 1.0]).view(3, 1, 1)).flatten().tolist()
        [0, 51, 255]
    """
    return (image * 255).round().to(torch.uint8).movedim(-3, -1).contiguous()


def index_color(index: int) -> tuple[int, int, int]:
    """A bright colour; neighbouring indices differ clearly.

    Example:
        >>> index_color(0)
        (255, 51, 51)
    """
    red, green, blue = colorsys.hsv_to_rgb(index * 0.381966 % 1, 0.8, 1)
    return round(255 * red), round(255 * green), round(255 * blue)


def _enlarged(labels: Tensor, sides: tuple[int, int]) -> Tensor:
    return F.interpolate(labels[None, None].float(), sides, mode="nearest-exact")[0, 0].to(torch.uint8)
