"""The number of images that one forward of an evaluation takes within a memory budget.

An image of a chunk takes 8 bytes for every activation of its forward and 20 for every element of its maps. Both are
from measurements on a CPU: how the peak memory of the suites ``quanproto`` and ``completeness`` with PRP grows with
every further image of a chunk, from the smallest to the largest chunk of the same batches.

* ResNet at 224 px with 200 and 2,000 units, chunks of 2 to 8: ResNet-18, 7.7 million activations, 41 to 50 MB, or 5.4
  to 6.5 bytes per activation; ResNet-50, 32 million, 205 to 232 MB, or 6.3 to 7.1. MobileNetV2 at 160 and 224 px: 71
  to 141 MB, 7.1 to 8.1.
* The sketch backbone at 56 px, chunks of 4 to 32: with 200 units 1.3 to 1.7 MB, or 2.7 to 3.6 bytes per activation;
  with 10,000 units, as many map elements as activations, 7.3 to 10.7 MB, or 12 to 19 bytes per element.

Activations are the outputs of all modules without children, where those that a module changed in place count again: an
activation and its relevance come to less than two numbers of 4 bytes. What a batch holds besides, such as its views and
its saliency, does not depend on the chunk: roughly 6 to 9 MB for an image of 224 px with 5 units looked at.

The default of 0.68 GiB on a CPU keeps the chunks of all configs, and with them the last bits of numbers, at what they
were when 12 bytes were counted for both and the budget was 1 GiB.
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

    Args:
        device_type: such as ``"cuda"``.

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

    Args:
        model: in evaluation mode.
        image_size: ``(H, W)`` pixels.
        device: of the model.
        budget: GiB for the activations of one chunk and their explanation; None for :func:`default_budget`.

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
