"""The number of images that one forward of an evaluation takes within a memory budget."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from lightning_modules.contract import ModelOutput

LARGEST_CHUNK = 32
BYTES_PER_ACTIVATION = 12  # an explainer holds about three numbers for every activation of a forward


def images_per_forward(
    model: nn.Module, image_size: tuple[int, int], device: torch.device, budget: float
) -> tuple[int, ModelOutput]:
    """Images per forward that stay within a memory budget: a function of model, image size and budget alone.

    Args:
        model: in evaluation mode.
        image_size: ``(H, W)`` pixels.
        device: of the model.
        budget: GiB for the activations of one chunk and their explanation.

    Returns:
        A power of two up to 32, which usual batch sizes are multiples of, and the output for one black image, whose
        shapes tell the rest.
    """
    elements = 0

    def count(module: nn.Module, inputs: object, output: object) -> None:
        nonlocal elements
        elements += output.numel() if isinstance(output, Tensor) else 0

    leaves = [module for module in model.modules() if not list(module.children())]
    hooks = [module.register_forward_hook(count) for module in leaves]
    try:
        output: ModelOutput = model(torch.zeros(1, 3, *image_size, device=device))
    finally:
        for hook in hooks:
            hook.remove()
    affordable = budget * 2**30 / ((elements + output.maps.numel()) * BYTES_PER_ACTIVATION)
    return 2 ** int(math.log2(min(max(affordable, 1), LARGEST_CHUNK))), output
