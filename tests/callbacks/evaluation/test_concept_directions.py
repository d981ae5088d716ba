"""Directions of concepts in the latent space, and what logits make of them."""

import pytest
import torch

from protometry.callbacks import Interpretability
from protometry.callbacks.evaluation.concept_directions import concept_directions
from protometry.lightning_modules import Classifier
from protometry.lightning_modules.heads.concept_bank import Examples, fit_concept_bank
from protometry.metrics import TCAVArea
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import tiny_birds

KEY = "concepts/tcav_auc"


def test_the_logits_of_a_black_box_grow_with_the_weights_of_its_head():
    """The derivative of the logit of class k along v, if all cells move, is w_k·v."""
    model, data = Classifier(num_classes=8, image_size=(32, 32)).eval(), tiny_birds()
    entry = run_engine(Interpretability([KEY], memory_budget=2**-9), model, data).metrics[KEY]
    directions = concept_directions(model, data, 2**-9, seed=0)
    labels = torch.tensor([int(sample["label"]) for sample in data.dataset("test")])
    metric = TCAVArea(data.tables.class_concepts_binary)
    metric.update(torch.einsum("bd,rld->brl", model.linear.weight.detach()[labels], directions), labels)
    summary = metric.summary()
    assert {name: entry[name] for name in ("value", "n", "random", "lift_over_random")} == pytest.approx(
        {name: summary[name] for name in ("value", "n", "random", "lift_over_random")}
    )
    assert 0 < entry["n"] + entry["skipped"] == data.num_classes


def test_the_more_logits_read_concepts_the_better_their_scores_tell_them():
    """Latents hold each concept in a channel of its own, and noise in as many; logits read a mixture of both."""
    classes, concepts, images = 40, 8, 600
    generator = torch.Generator().manual_seed(0)
    has, present = (torch.rand(count, concepts, generator=generator) < 0.5 for count in (classes, images))
    latents = torch.cat([present.float(), 0.1 * torch.randn(images, concepts, generator=generator)], dim=1)
    vectors = fit_concept_bank(latents, present, Examples()).vectors
    order = torch.randperm(images, generator=generator)
    random = fit_concept_bank(latents, present[order], Examples()).vectors
    read, other = 2.0 * has - 1, torch.randn(classes, concepts, generator=generator).sign()
    values = []
    for share in (0.0, 0.4, 1.0):
        mixed = share * read + (1 - share) * other[:, torch.randperm(concepts, generator=generator)]
        weight = torch.cat([mixed, 10 * (1 - share) * other], dim=1)
        metric = TCAVArea(has)
        metric.update(torch.einsum("kd,rld->krl", weight, torch.stack([vectors, random])), torch.arange(classes))
        summary = metric.summary()
        values.append(summary["value"])
        assert summary["random"] == pytest.approx(0.5, abs=0.1)
    assert values[0] == pytest.approx(0.5, abs=0.1)
    assert values == sorted(values)
    assert values[-1] == 1
