"""Heads with few weights: solved on the training images, and judged on the evaluated ones."""

import torch

from protometry.callbacks import Interpretability
from protometry.callbacks.evaluation import sparse_heads
from protometry.lightning_modules import ConceptBottleneck, ProtoPNet
from protometry.lightning_modules.heads.sparse_path import heads_with_weights
from protometry.metrics.suite import build
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import tiny_birds
from tests.metrics.test_suite import facts


@torch.no_grad()
def test_the_number_is_that_of_a_loop_over_both_splits():
    model, data = ProtoPNet(num_classes=8, image_size=(32, 32)), tiny_birds()
    model.eval().load_weights(model.units().weight * (torch.arange(80) > 2))  # the first three become inactive
    scores, labels = {}, {}
    for split in ("projection", "test"):
        samples = list(data.dataset(split))
        scores[split] = torch.cat([model(sample["image"][None]).scores for sample in samples])[:, 3:]
        labels[split] = torch.tensor([int(sample["label"]) for sample in samples])
    heads = heads_with_weights(scores["projection"], labels["projection"], 8, (5, 10, 15, 20, 25, 30))
    curve = [
        ((scores["test"].double() @ weight.T + bias).argmax(dim=1) == labels["test"]).double().mean().item()
        for weight, bias in zip(*heads, strict=True)
    ]
    evaluation = run_engine(Interpretability(["concepts/anec@5", "concepts/anec_avg"]), model, data)
    assert evaluation.metrics["concepts/anec@5"]["value"] == curve[0]
    assert evaluation.metrics["concepts/anec_avg"]["curve"] == curve


@torch.no_grad()
def assert_reads_no_other_unit(monkeypatch, others):
    data, solved = tiny_birds(), []

    def solve(*problem):
        solved.append((problem[0], heads_with_weights(*problem)))
        return solved[-1][1]

    monkeypatch.setattr(sparse_heads, "heads_with_weights", solve)
    model = ConceptBottleneck(num_classes=8, num_concepts=data.num_concepts, image_size=(32, 32)).eval()
    model.known[:others] = -1
    evaluation = run_engine(Interpretability(["concepts/anec_avg", "concepts/completeness"]), model, data)
    units = data.num_concepts
    assert [scores.shape[1] for scores, _ in solved] == [units, units - others][: 2 if others else 1]
    weight, bias = (part[-1] for part in solved[-1][1])
    samples = list(data.dataset("test"))
    scores = torch.cat([model(sample["image"][None]).scores for sample in samples])[:, others:]
    labels = torch.tensor([int(sample["label"]) for sample in samples])
    right = ((scores.double() @ weight.T + bias).argmax(dim=1) == labels).double().mean().item()
    assert evaluation.metrics["concepts/completeness"]["concepts_alone"] == right


def test_a_head_on_concepts_reads_no_other_unit(monkeypatch):
    assert_reads_no_other_unit(monkeypatch, others=2)


def test_classes_are_no_units_to_choose_from():
    reason = {"concepts/anec@5": "sparse_heads: the units of the model are classes"}
    assert build(["concepts/anec@5"], facts(kind="class")) == ({}, reason)
