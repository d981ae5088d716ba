import inspect
import math
import pickle
import warnings

import pytest
import torch

from metrics import SpatialMisalignment
from metrics.functional import (
    accuracy_change,
    misalignment_activation_change,
    misalignment_location_change,
    misalignment_rank_change,
)
from tests.metrics.tester import images, rows, same, same_summaries

NAN = math.nan
PARTS = ("pac", "plc", "prc", "ac")
OWNER = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]).bool()
ACTIVE = torch.tensor([True, True, True, True, True, False])


def record():
    generator = torch.Generator().manual_seed(21)
    scores, perturbed = (torch.randn(13, 6, generator=generator) for _ in range(2))
    logits, perturbed_logits = (torch.randn(13, 3, generator=generator) for _ in range(2))
    maps, perturbed_maps = (torch.randn(13, 6, 7, generator=generator) for _ in range(2))
    target = torch.randint(5, (13,), generator=generator)
    scores[3, 1], logits[4, 0], maps[5], target[6] = NAN, math.inf, 1, -1
    return {
        "scores": scores,
        "perturbed_scores": perturbed,
        "target_ids": target,
        "target_maps": maps,
        "perturbed_target_maps": perturbed_maps,
        "logits": logits,
        "perturbed_logits": perturbed_logits,
        "labels": torch.randint(3, (13,), generator=generator),
    }


def build():
    return SpatialMisalignment(OWNER, ACTIVE, quantile=0.8)


def updated(metric, data, batch=13):
    for first in range(0, images(data), batch):
        metric.update(**rows(data, slice(first, first + batch)))
    return metric


def oracle(data):
    """Means over images of the kernels, which have their own oracles, one image at a time."""
    values = {part: [] for part in PARTS}
    for image in (data["target_ids"] >= 0).nonzero().flatten().tolist():  # none of the four without a target
        one = rows(data, slice(image, image + 1))
        scores = one["scores"], one["perturbed_scores"], one["target_ids"]
        values["pac"].append(misalignment_activation_change(*scores).item())
        values["plc"].append(misalignment_location_change(one["target_maps"], one["perturbed_target_maps"], 0.8).item())
        values["prc"].append(misalignment_rank_change(*scores, one["labels"], OWNER, ACTIVE).item())
        values["ac"].append(accuracy_change(one["logits"], one["perturbed_logits"], one["labels"]).item())
    defined = {part: [value for value in entries if not math.isnan(value)] for part, entries in values.items()}
    return {part: sum(entries) / len(entries) if entries else NAN for part, entries in defined.items()}


def test_attributes():
    metric = build()
    assert metric.reads == tuple(inspect.signature(metric.update).parameters)
    assert (metric.is_differentiable, metric.full_state_update) == (False, False)


def test_hand_case():
    # one image: score 2 → .8, overtaken by two units of the other class, still correct, one of two region cells moves
    maps = torch.arange(20.0).view(1, 4, 5)
    moved = maps.clone()
    moved[0, 0, 0], moved[0, 3, 3] = 18, 0
    metric = SpatialMisalignment(torch.tensor([[True, False], [False, True], [False, True]]))
    logits = torch.tensor([[2.0, 1.0]])
    scores, perturbed = torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[0.8, 1.0, 0.9]])
    metric.update(scores, perturbed, torch.tensor([0]), maps, moved, logits, logits.flip(1), torch.tensor([0]))
    assert {part: value.item() for part, value in metric.compute().items()} == pytest.approx(
        {"pac": 0.6, "plc": 2 / 3, "prc": 2, "ac": 1}
    )
    # a second image without any change: s² = x²/2, half width t x / 2 with t = 12.706205
    metric.update(scores, scores, torch.tensor([0]), maps, maps, logits, logits, torch.tensor([0]))
    summary = metric.summary()
    assert summary["prc"] == pytest.approx({"value": 1, "low": 1 - 12.706205, "high": 13.706205, "n": 2, "skipped": 0})
    assert [(summary[part]["low"] >= -1, summary[part]["high"] <= 1) for part in ("plc", "ac")] == [(True, True)] * 2
    assert [summary[part]["value"] for part in PARTS] == pytest.approx([0.3, 1 / 3, 1, 0.5])


def test_splits():
    data, expected = record(), oracle(record())
    for batch in (1, 4, 13):
        values = updated(build(), data, batch).compute()
        assert tuple(values) == PARTS
        assert all(value.dtype == torch.float64 and value.shape == () for value in values.values())
        assert all(same(values[part], expected[part]) for part in PARTS), batch
    order = torch.randperm(13, generator=torch.Generator().manual_seed(0))
    values = updated(build(), rows(data, order), 5).compute()
    assert all(same(values[part], expected[part]) for part in PARTS)


def test_every_part_counts_its_own_images():
    data, summary = record(), updated(build(), record()).summary()
    not_positive = int((data["scores"].gather(1, data["target_ids"].clamp(min=0)[:, None]) <= 0).sum())
    assert {part: summary[part]["skipped"] for part in ("plc", "prc", "ac")} == {"plc": 2, "prc": 2, "ac": 2}
    assert summary["pac"]["skipped"] >= not_positive
    assert all(summary[part]["n"] + summary[part]["skipped"] == 13 for part in PARTS)
    assert all(type(summary[part]["n"]) is int for part in PARTS)


def test_no_perturbation_no_change():
    data = record()
    for name in ("scores", "target_maps", "logits"):
        data["perturbed_" + name] = data[name]
    assert {part: value.item() for part, value in updated(build(), data).compute().items()} == dict.fromkeys(PARTS, 0)


def test_multilabel():
    data = record()
    one_hot = data | {"labels": torch.nn.functional.one_hot(data["labels"], 3).bool()}
    values, single = updated(build(), one_hot).compute(), updated(build(), data).compute()
    assert all(same(values[part], single[part]) for part in ("pac", "plc", "prc"))


def test_protocol():
    data = record()
    metric = updated(build(), data)
    value, summary = metric.compute(), metric.summary()
    for copy in (metric.clone(), pickle.loads(pickle.dumps(metric)), metric.half(), metric.to("cpu")):
        assert all(same(copy.compute()[part], value[part]) for part in PARTS)
    forward = build()
    for part in (slice(0, 6), slice(6, None)):
        batch_value, expected = forward(**rows(data, part)), updated(build(), rows(data, part)).compute()
        assert all(same(batch_value[name], expected[name]) for name in PARTS)
    assert all(same_summaries(forward.summary()[part], summary[part]) for part in PARTS)
    before = {state: getattr(metric, state).clone() for state in metric._defaults}
    metric.update(**rows(data, slice(0, 0)))
    assert all(torch.equal(getattr(metric, state), kept) for state, kept in before.items())
    metric.reset()
    assert metric.image_count.tolist() == [0] * 4


def test_undefined():
    data = record()
    data["target_ids"] = torch.full((13,), -1)
    metric = updated(build(), data)
    with pytest.warns(UserWarning, match="A part of SpatialMisalignment is NaN") as caught:
        values = metric.compute()
    assert len(caught) == 1
    assert all(values[part].isnan() for part in PARTS)
    assert [(entry["n"], entry["skipped"]) for entry in metric.summary().values()] == [(0, 13)] * 4


def share(rank, world_size, metric, data, shares):
    part = rows(data, shares[rank])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if images(part):
            updated(metric, part, 2)
        return metric.summary(), metric.compute()


def test_two_processes(ddp_pool):
    data = record()
    expected = updated(build(), data).summary()
    for shares in ([slice(0, None, 2), slice(1, None, 2)], [slice(None), slice(0, 0)]):
        for summary, values in ddp_pool.run(share, build(), data, shares):
            assert all(same_summaries(summary[part], expected[part]) for part in PARTS)
            assert all(same(values[part], expected[part]["value"]) for part in PARTS)


def test_errors():
    with pytest.raises(ValueError, match=r"`owner` to be of shape \(U, K\) and dtype bool"):
        SpatialMisalignment(OWNER.float())
    with pytest.raises(ValueError, match=r"`active` to be of shape \(6,\)"):
        SpatialMisalignment(OWNER, ACTIVE[:3])
    with pytest.raises(ValueError, match=r"`scores` to be of shape \(B, 6\)"):
        updated(build(), record() | {"scores": torch.zeros(13, 2), "perturbed_scores": torch.zeros(13, 2)})
