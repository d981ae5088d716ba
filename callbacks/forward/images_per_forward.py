"""The number of images that one forward of an evaluation takes within a memory budget.

An image of a chunk takes 8 bytes for every activation of its forward and 20 for every element of its maps, as the peak
memory of the suites ``quanproto`` and ``completeness`` with PRP grows on a CPU by at most (ResNet-18, ResNet-50,
MobileNetV2 and the sketch backbone; 200 to 10,000 units). Activations are the outputs of all modules without children,
where those that a module changed in place count again. What a batch holds besides, such as its views and its saliency,
does not depend on the chunk: roughly 6 to 9 MB for an image of 224 px with 5 units looked at.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from protometry.lightning_modules.contract import ModelOutput

BYTES_PER_ACTIVATION, BYTES_PER_MAP_ELEMENT = 8, 20
CPU_BUDGET, DEVICE_BUDGET = 0.68, 8.0  # GiB
CPU_CHUNK, DEVICE_CHUNK = 32, 64  # at most; smaller batches are filled up


def default_budget(device_type: str) -> float:
    """The default GiB for one chunk: 0.68 on a CPU, 8 on any other device.

    Example:
        >>> default_budget("cpu"), default_budget("cuda")
        (0.68, 8.0)
    """
    return CPU_BUDGET if device_type == "cpu" else DEVICE_BUDGET


def images_per_forward(
    model: nn.Module, image_size: tuple[int, int], device: torch.device, budget: float | None = None
) -> tuple[int, ModelOutput]:
    """Images per forward that stay within a memory budget: a function of model, image size, device type and budget.

    Neither the data set nor its batches count, so that an image has equal outputs in all of them.

    Returns:
        A power of two up to 32 on a CPU and 64 elsewhere, which usual batch sizes are multiples of, and the output for
        one black image, whose shapes determine the rest.

    Raises:
        ValueError: for more GiB than the GPU has.
    """
    budget = budget or default_budget(device.type)
    if device.type == "cuda" and torch.cuda.is_available():
        present = torch.cuda.get_device_properties(device).total_memory / 2**30
        if budget > present:
            raise ValueError(
                f"Expected argument `memory_budget` to be at most the {present:.1f} GiB of the GPU, but got {budget}. "
                "Set a smaller one; other numbers of images per forward may move the last bits of results."
            )
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
    image = elements * BYTES_PER_ACTIVATION + output.maps.numel() * BYTES_PER_MAP_ELEMENT
    affordable = budget * 2**30 / image
    largest = CPU_CHUNK if device.type == "cpu" else DEVICE_CHUNK
    return 2 ** int(math.log2(min(max(affordable, 1), largest))), output
