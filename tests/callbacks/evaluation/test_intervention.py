"""Corrections within an evaluation: by the definition, image by image, and whatever the batches and processes."""

import pytest
import torch

from protometry.callbacks import Interpretability
from protometry.lightning_modules.contract import logits_of
from protometry.metrics.functional import keyed_uniform
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import MODELS, tiny_birds

SUITE = ["general/accuracy", "concepts/accuracy", "concepts/auc", "concepts/ece", "intervention"]


def built(name="ConceptBottleneck"):
    torch.manual_seed(0)
    model = MODELS[name](num_classes=8, image_size=(32, 32)).eval()
    model.load_percentiles(torch.full((20,), -3.0), torch.full((20,), 3.0))
    return model


def slow_curve(model, data, single=False, uncertain=False, trials=5):
    """Accuracy by trial and step: a loop over images, trials and steps."""
    prefixes = [name.split("::")[0] for name in data.tables.concept_names]
    questions = data.tables.concept_names if single else list(dict.fromkeys(prefixes))
    asks = data.tables.concept_names if single else prefixes
    samples = [data.dataset("test")[index] for index in range(15)]
    hits = torch.zeros(1 if uncertain else trials, len(questions) + 1)
    for sample in samples:
        output = model(sample["image"][None])
        scores = output.scores[0]
        for trial in range(len(hits)):
            if uncertain:
                probability = model.concept_probabilities(scores)
                doubts = [
                    [-abs(p - 0.5) for p, ask in zip(probability.tolist(), asks, strict=True) if ask == question]
                    for question in questions
                ]
                priority = [sum(own) / len(own) for own in doubts]
            else:
                key, rank = sample["sample_key"][None], torch.tensor([[trial]])
                priority = keyed_uniform(key, rank, (len(questions),), 3 << 40)[0, 0].tolist()
            order = sorted(range(len(questions)), key=lambda question: -priority[question])
            for step in range(len(questions) + 1):
                answered = [questions[question] for question in order[:step]]
                mask = torch.tensor([ask in answered for ask in asks])
                corrected = model.intervene(scores, sample["concepts"], mask)
                logits = logits_of(model, corrected[None], output.extras.get("context"))[0]
                hits[trial, step] += logits.argmax() == sample["label"]
    return hits / 15


@pytest.mark.parametrize("name", ["ConceptBottleneck", "ConceptBottleneck joint", "CEM"])
@torch.no_grad()
def test_curves_by_the_definition(name):
    model, data = built(name), tiny_birds(test_size=15)
    result = run_engine(Interpretability(SUITE), model, data, batch_size=4).metrics
    for ending, single, uncertain in (("", False, False), ("_single_uncertainty", True, True)):
        curve = slow_curve(model, data, single, uncertain)
        entry = result[f"intervention/area{ending}"]
        assert entry["curve"] == pytest.approx(curve.mean(0).tolist())
        assert entry["curve"][0] == entry["baseline"] == result["general/accuracy"]["value"]
        assert entry["value"] == pytest.approx((torch.trapezoid(curve) / (curve.shape[1] - 1)).mean().item())
    assert result["intervention/final"]["value"] == pytest.approx(slow_curve(model, data)[0, -1].item())
    own = "percentiles" if name == "ConceptBottleneck joint" else "binary"
    assert result[f"intervention/area_{own}"]["curve"] == result["intervention/area"]["curve"]
    assert {len(result[f"intervention/area{ending}"]["curve"]) for ending in ("", "_single")} == {11, 21}


def test_percentiles_that_were_not_stored_are_the_reason():
    model = MODELS["ConceptBottleneck joint"](num_classes=8, image_size=(32, 32)).eval()
    evaluation = run_engine(Interpretability(["intervention"]), model, tiny_birds())
    assert {key for key in evaluation.metrics if "area" in key} == {
        "intervention/area_binary", "intervention/area_binary_uncertainty",
    }  # fmt: skip
    assert "a phase that enters concept_percentiles" in evaluation.skipped["intervention/area"]
