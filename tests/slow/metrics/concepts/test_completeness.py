"""How often the interval of completeness holds the truth, and that completeness grows with the concepts that hold."""

import pytest
import torch
from torch.nn import functional as F

from protometry.lightning_modules.heads.sparse_path import heads_with_weights
from protometry.metrics import ConceptCompleteness
from tests.metrics.concepts.test_completeness import CLASSES, entry


@pytest.mark.parametrize("images", [30, 100])
def test_the_interval_holds_the_truth(images):
    """Of nominal 95 %, in 300 samples; two thirds of what the model knows, and nearly everything."""
    generator = torch.Generator().manual_seed(0)
    for kept in (0.7, 0.97):
        model = torch.rand(300, images, generator=generator) < 0.9
        head = model & (torch.rand(300, images, generator=generator) < kept)
        truth = (0.9 * kept - 0.25) / 0.65
        held = [s["low"] <= truth <= s["high"] for s in map(entry, model, head)]
        assert sum(held) >= 0.92 * len(held)


def test_the_more_of_the_class_concepts_hold_the_higher_it_is():
    """Concepts name the class of an image, or of a random one: the accuracy above chance is the share of the former."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (2, 1200), generator=generator)
    values = []
    for share in (0.0, 0.5, 1.0):
        random = torch.rand(labels.shape, generator=generator) >= share
        named = torch.where(random, torch.randint(CLASSES, labels.shape, generator=generator), labels)
        training, judged = F.one_hot(named, CLASSES).double()
        weight, bias = (part[0] for part in heads_with_weights(training, labels[0], CLASSES, [30]))
        metric = ConceptCompleteness(CLASSES)
        metric.update(F.one_hot(labels[1], CLASSES).double(), judged @ weight.T + bias, labels[1])
        summary = metric.summary()
        values.append(summary["value"])
        assert values[-1] == pytest.approx(share, abs=0.08)  # four standard errors
    assert values == sorted(values)
    assert values[-1] == 1
