"""Units of a model without concepts are named on the training images, exactly over processes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from protometry.callbacks.evaluation.named_units import needs_names, units_with_concepts
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.metrics.functional import concept_auc
from protometry.metrics.suite import FAMILIES, build
from tests.metrics.test_suite import facts

IMAGES, UNITS, CONCEPTS = 21, 6, 3
GENERATOR = torch.Generator().manual_seed(6)
LABELS = torch.rand(IMAGES, CONCEPTS, generator=GENERATOR) > 0.5
SCORES = torch.randint(0, 4, (IMAGES, UNITS), generator=GENERATOR).float()
SCORES[:, 0] = LABELS[:, 2].float()  # tells the last concept
SCORES[:, 1] = 1  # tells nothing
SCORES[:, 5] = LABELS[:, 1].float()  # but is not active


class Model(nn.Module):
    """An image's first pixel names its row of the scores."""

    device = torch.device("cpu")

    def forward(self, images):
        scores = SCORES[(images[:, 0, 0, 0] * 255).round().long()]
        return ModelOutput(scores, scores, scores[:, :, None, None])

    def units(self):
        return UnitTable("prototype", torch.arange(UNITS) < 5, torch.ones(UNITS, UNITS, dtype=torch.bool), "max")


def data(rows, batch=4):
    """A data module whose training images are some rows, in batches."""
    batches = [
        {
            "image": (part / 255)[:, None, None, None].expand(-1, 3, 8, 8),
            "sample_key": part,
            "sample_id": [str(row) for row in part.tolist()],
            "concepts": LABELS[part],
        }
        for part in rows.split(batch)
        if len(part)
    ]
    return SimpleNamespace(
        projection_dataloader=lambda: batches,
        image_size=(8, 8),
        num_concepts=CONCEPTS,
        capabilities=lambda split: SimpleNamespace(concepts_image=True),
    )


def named(rows, concepts=None):
    known = facts(kind="prototype", concepts=concepts, unit_concepts=None, concept_order=None)
    result = units_with_concepts(known, Model().eval(), data(rows), memory_budget=1.0)
    return result.unit_concepts.tolist(), result.concept_order.tolist()


def test_names_are_the_best_areas():
    area = concept_auc(SCORES, LABELS)
    best = [int(row.argmax()) if row.max() >= 0.6 else -1 for row in area]
    names, order = named(torch.arange(IMAGES))
    assert names == [*best[:5], -1]
    assert names[:2] == [2, -1]
    assert order == sorted(range(CONCEPTS), key=lambda concept: -int(LABELS[:, concept].sum()))


def test_a_concept_that_the_data_do_not_have():
    with pytest.raises(ValueError, match=r"concepts of the model, which are 7 or more, but SimpleNamespace has 3"):
        named(torch.arange(IMAGES), torch.tensor([0, 1, 2, 3, 4, 6]))


def test_names_are_looked_for_only_where_they_help():
    unnamed = {"kind": "prototype", "concepts": None, "unit_concepts": None}
    known = facts(**unnamed)
    assert needs_names(["general/f1", "concepts/cem@5"], known)
    assert not needs_names(["general/f1"], known)
    for absent in ({"weight": None}, {"multi_label": True}, {"kind": "class"}, {"training": "other data"}):
        assert not needs_names(["concepts/cem@5"], facts(**(unnamed | absent))), absent
    reasons = build(["concepts"], facts(**(unnamed | {"kind": "class"})))[1]
    assert set(reasons) | {"concepts/residual_share", "concepts/tcav_auc"} == set(FAMILIES["concepts"].keys)
    told = (
        "the units of the model stand for no concepts",
        "the model is not trained to predict concepts",
        "the units of the model are classes",
    )
    assert all(any(why in reason for why in told) for reason in reasons.values())
    few = replace(known, unit_concepts=torch.tensor([0, -1, -1, -1, 0, 0]), concept_order=torch.arange(6))
    built, reasons = build(["concepts/cem@1", "concepts/cem@3"], few)  # the last unit is not active
    assert list(built) == ["concepts/cem@1"]
    assert reasons == {"concepts/cem@3": "concepts@3: 2 of the model's units stand for a concept, fewer than 3"}
