"""Planted truth of shortcuts: a model that reads the stamp alone, one that ignores it, and those between."""

import pytest
import torch

from protometry.datamodules import SketchBirds
from protometry.explanations import Upsample
from tests.planted.models import Planted, measure
from tests.planted.scenes import CLASSES, NEUTRAL, SIZE, scenes

IMAGES, STAMPED, SIDE = 40, 2, 8
PATTERN = torch.tensor([[(y // 2 + x // 2) % 2 for x in range(SIDE)] for y in range(SIDE)])


class Reader(Planted):
    """A unit for the evidence of each class, a pixel of the uppermost row, and one for the stamp.

    Args:
        weight: of the last unit for the class of the stamp.
        sees: whether that unit sees the stamp at all.
    """

    def __init__(self, weight, sees=True):
        head = torch.eye(CLASSES, CLASSES + 1)
        head[STAMPED, -1] = weight
        super().__init__(head, torch.ones(CLASSES + 1, CLASSES, dtype=torch.bool))
        self.sees = sees

    def maps(self, latent):
        pixels = latent[:, 0] * self.input_std[0] + NEUTRAL
        maps = pixels.new_zeros(len(pixels), CLASSES + 1, SIZE, SIZE)
        maps[:, range(CLASSES), 0, range(CLASSES)] = pixels[:, 0, :CLASSES]
        difference = (pixels[:, -SIDE:, -SIDE:] - PATTERN).abs().mean(dim=(1, 2))  # 1/2 for every plain patch
        maps[:, -1, -1, -1] = self.sees * (1 - 2 * difference)
        return maps


def shortcut(model):
    """Of ten images of each class, with evidence 0.05, 0.15, ... 0.95."""
    data = SketchBirds("tiny", num_birds=CLASSES, image_size=SIZE, stamp={"label": STAMPED, "size": SIDE / SIZE})
    samples, seen = [], dict.fromkeys(range(CLASSES), 0)
    for scene in scenes():
        label = int(scene["label"])
        image = torch.full((3, SIZE, SIZE), NEUTRAL)
        image[:, 0, :CLASSES] = 0
        image[:, 0, label] = (seen[label] + 0.5) / 10
        seen[label] += 1
        samples.append({**scene, "image": image})
    return measure(["sanity/shortcut_success", "sanity/shortcut_units"], model, samples, data, Upsample()).metrics


@pytest.mark.parametrize("weight", [0, 0.1, 0.5, 0.9, 1])
def test_the_more_the_stamp_counts_the_more_images_it_turns(weight):
    success, units = shortcut(Reader(weight)).values()
    assert (success["value"], success["plain"], success["n"]) == (pytest.approx(weight), 0, 3 * IMAGES // CLASSES)
    assert success["lift_over_plain_low"] <= weight <= success["lift_over_plain_high"]
    assert (units["value"], units["most_raised"]) == (1 / (CLASSES + 1), [CLASSES])


def test_a_model_that_does_not_see_the_stamp():
    success, units = shortcut(Reader(1, sees=False)).values()
    assert (success["value"], units["value"], units["most_raised"]) == (0, 0, [])
