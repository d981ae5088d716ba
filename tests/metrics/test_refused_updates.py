"""A batch that cannot be right is refused in one sentence and leaves nothing behind, whatever the metric."""

import inspect
from functools import partial

import pytest
import torch
from torch import Tensor
from torchmetrics import Metric

from protometry import metrics
from protometry.metrics import FunnyBirdsScores, ModelValue
from protometry.metrics.suite import build
from tests.metrics.test_suite import facts

IMAGES, CLASSES, UNITS, SHOWN, POINTS, PARTS, THRESHOLDS = 4, 5, 6, 3, 2, 3, 80


def whole_record(multi_label):
    """Every argument of an ``update``, by name."""
    generator = torch.Generator().manual_seed(0)

    def real(*shape):
        return torch.rand(IMAGES, *shape, generator=generator)

    def flag(*shape):
        return real(*shape) < 0.5

    def whole(size, *shape):
        return torch.randint(size, (IMAGES, *shape), generator=generator)

    sides = ("", "perturbed_")
    return {
        **{f"{side}{name}": real(SHOWN, 8, 8) for side in sides for name in ("saliency", "maps")},
        **{f"{how}_saliency": real(SHOWN, 8, 8) for how in ("randomised", "shifted")},
        **{f"{how}removal_scores": real(SHOWN, 9) for how in ("", "shifted_")},
        **{f"{side}{name}": real(8, 8) for side in sides for name in ("target_maps",)},
        **{f"{side}scores": real(UNITS) for side in sides},
        **{f"{side}{kind}_peaks": whole(8, SHOWN, 2) for side in sides for kind in ("owned", "random")},
        **{name: real(CLASSES) for name in ("logits", "perturbed_logits", "residual", "unit_logits")},
        **{f"{how}_logits": real(CLASSES) for how in ("exchanged", "refitted", "concept_head")},
        **{f"{how}_scores": real(UNITS) for how in ("stamped", "plain")},
        **{f"{how}_predictions": whole(CLASSES) for how in ("stamped", "plain")},
        **{f"{how}_scores": real(SHOWN) for how in ("unit", "cell", "other_cell")},
        **{f"{how}_boxes": whole(8, SHOWN, 4) for how in ("cell", "other")}, "pixel_gradients": real(SHOWN, 8, 8),
        **{name: real(UNITS) for name in ("contributions", "concept_probabilities")}, "probabilities": real(CLASSES),
        **{name: real(PARTS) for name in ("label_importance", "part_drops")},
        **{name: real() for name in ("label_logits", "label_totals")},
        **{name: real(UNITS, 4, 4) for name in ("unit_maps", "concept_maps")},
        **{name: flag(UNITS) for name in ("shown", "concept_labels")},
        **{name: flag(PARTS) for name in ("present", "visible")},
        **{name: flag(THRESHOLDS, PARTS) for name in ("label_parts", "predicted_parts")},
        **{name: whole(UNITS, SHOWN) for name in ("unit_ids", "owned_ids")},
        "labels": flag(CLASSES) if multi_label else whole(CLASSES),
        "weight": torch.rand(CLASSES, UNITS, generator=generator), "active": torch.arange(UNITS) < 4, "presence": None,
        "abstained": flag(), "valid": flag(SHOWN), "latent": real(3, 4, 4), "object_masks": flag(8, 8),
        "part_masks": flag(1, 8, 8), "part_locations": 8 * real(POINTS, 2), "part_visible": flag(POINTS),
        **{f"{kind}_boxes": whole(8, UNITS, 4) for kind in ("unit", "random")},
        "sample_ids": torch.arange(IMAGES), "target_ids": whole(UNITS),
        "image_size": (8, 8),
        "lattice": None, "intervened_logits": real(5, 4, CLASSES), "background_drops": real(3),
        "background_valid": flag(3), "predictions": whole(CLASSES), "kept_predictions": whole(CLASSES, 2**PARTS),
        "label_candidates": flag(THRESHOLDS, 5), "irrelevant": flag(5), "pair_importance": real(2, PARTS),
        "shared_parts": flag(2, PARTS), "pair_drops": real(2, 2), "sparse_logits": real(6, CLASSES),
        "score_changes": real(UNITS, PARTS), "concept_derivatives": real(2, UNITS),
    }  # fmt: skip


def classes():
    """A metric of each class, and of each way of building it that reads something else, with its record."""
    built = {}
    for multi_label in (True, False):
        every = facts(multi_label=multi_label, active=torch.ones(UNITS, dtype=torch.bool))
        for metric in build(["all"], every)[0].values():
            for each in (metric, *(metric.checks.values() if isinstance(metric, FunnyBirdsScores) else ())):
                ending = "_multi_label" if multi_label and "labels" in each.reads else ""
                built.setdefault(type(each).__name__ + ending, (each, multi_label))
    return built


CASES = classes()


def never(value):
    """What no argument may be."""
    yield "none at all", "x"
    yield "elsewhere", value.to("meta")
    yield "complex", value.to(torch.complex64)
    yield "of whole numbers or not", value.double() if value.dtype == torch.int64 else value.long()
    yield "a single number", value.flatten()[0]
    yield "in a list", value.tolist()
    yield "one axis more", value[None]
    yield "one axis less", value[0]


def doubtful(value):
    """What some arguments may be."""
    for axis in range(value.ndim):
        yield f"longer along axis {axis}", torch.cat([value, value.narrow(axis, 0, 1)], axis)
        yield f"empty along axis {axis}", value.narrow(axis, 0, 0)
    numbers = {torch.int64: (-1, UNITS, 2**40, -(2**62)), torch.bool: ()}
    for number in numbers.get(value.dtype, (torch.nan, torch.inf, -1e30)):
        yield f"with {number}", value.index_fill(0, torch.tensor(0), number)


def states(metric):
    parts = [(name, part) for name, part in metric.named_modules() if isinstance(part, Metric)]
    return {(name, state): getattr(part, state).clone() for name, part in parts for state in part._defaults}


def kind(state):
    return state.device, state.dtype


def same(one, other):
    return all(torch.equal(one[name].nan_to_num(7), other[name].nan_to_num(7)) for name in one)


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.filterwarnings("ignore:.*is NaN", "ignore:A part of")
def test_a_refused_batch_leaves_nothing_behind(name):
    metric, multi_label = CASES[name]
    everything = whole_record(multi_label)
    record = {field: everything[field] for field in metric.reads}
    metric.reset()
    metric.update(**record)
    before, tensors = states(metric), {field: value for field, value in record.items() if isinstance(value, Tensor)}

    def refused(add, field, value):
        error = None
        try:
            add(**record | {field: value})
        except (ValueError, TypeError) as raised:
            error = str(raised)
        after = states(metric)
        if error:
            assert error.startswith("Expected "), (field, value)
            assert same(before, after), (field, value)
            return True
        assert [kind(value) for value in after.values()] == [kind(value) for value in before.values()], (field, value)
        metric.compute()
        metric.reset()
        metric.update(**record)
        return False

    for field, value in tensors.items():
        for what, wrong in never(value):
            assert refused(metric.update, field, wrong), (field, what)
        for _, wrong in doubtful(value):
            refused(metric.update, field, wrong)
        if len(tensors) > 1 and not isinstance(metric, ModelValue):
            assert refused(metric.update, field, value[:-1]), (field, "a row less")
        if not isinstance(metric, FunnyBirdsScores):
            assert refused(metric.forward, field, value.to("meta"))
    metric.reset()


@pytest.mark.parametrize(("build", "option"), [
    (metrics.ClassificationActivationChange, {"link": "tanh"}),
    (metrics.ClassificationActivationChange, {"variant": "raw"}),
    (metrics.PrototypeActivationChange, {"variant": "published"}),
    (metrics.PrototypeActivationLocationChange, {"threshold": 1}),
    (metrics.PrototypeActivationLocationContrast, {"threshold": 1.5}),
    (metrics.VisualizationActivationChange, {"quantile": 1.0}), (metrics.VisualizationLocationChange, {"quantile": 95}),
    (metrics.VisualizationLocationChange, {"region": "boxes"}), (metrics.ObjectOverlap, {"quantile": 95}),
    (metrics.DistinctRegions, {"threshold": 1}), (metrics.LocalSize, {"threshold": -1.0}),
    (metrics.GlobalSize, {"variant": "published"}), (metrics.GlobalSize, {"threshold": -1.0}),
    (metrics.Sparsity, {"threshold": -1.0}), (metrics.NegativePositiveRatio, {"threshold": -1.0}),
    (metrics.TopKAccuracy, {"k": 0}), (partial(metrics.ScaleInvariantDiversity, torch.ones(CLASSES, UNITS)), {"k": 0}),
    (partial(metrics.StructuralGrounding, torch.ones(CLASSES, 2)), {"pairs": 0}),
    (partial(metrics.ConceptExistence, torch.ones(CLASSES, UNITS)), {"ranking": "size"}),
    (partial(metrics.ConceptExistence, torch.ones(CLASSES, UNITS)), {"order": "size"}),
    (partial(metrics.ConceptCalibrationError, torch.arange(UNITS), UNITS), {"bins": 0}),
    (metrics.CalibrationError, {"bins": 0}),
    (partial(metrics.ConceptTaskLeakage, torch.arange(UNITS), UNITS), {"num_classes": 0}),
])  # fmt: skip
def test_an_option_that_means_nothing_is_refused_by_the_first_batch_at_the_latest(build, option):
    def first_batch():
        metric, record = build(**option), whole_record(multi_label=False)
        metric.update(**{field: record[field] for field in metric.reads})

    with pytest.raises(ValueError, match=f"Expected argument `{next(iter(option))}` to "):
        first_batch()


def test_every_class_is_among_them():
    concrete = {kind for kind in vars(metrics).values() if inspect.isclass(kind) and not inspect.isabstract(kind)}
    assert concrete <= {type(metric) for metric, _ in CASES.values()}
