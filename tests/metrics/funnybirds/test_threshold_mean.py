"""The checks of important parts at every threshold, by the definition."""

import math
import pickle
import warnings
from functools import partial

import pytest
import torch
from torchmetrics import MetricCollection

from protometry.metrics import (
    ControlledSyntheticDataCheck,
    DeletionCheck,
    Distractibility,
    ImportantParts,
    PreservationCheck,
)
from protometry.metrics.functional import mean_interval, minimal_sufficient_sets, wilson_interval
from tests.metrics.funnybirds.birds import booleans, draws, variants
from tests.metrics.tester import NAN, check_attributes, images, mean, rows, same_summaries, updated

THRESHOLDS = 4
SETS = minimal_sufficient_sets(variants(0, 6))


def threshold_record():
    labels = torch.arange(13) % 6
    return {
        "label_parts": booleans(1, 13, THRESHOLDS, 5),
        "predicted_parts": booleans(2, 13, THRESHOLDS, 5),
        "label_candidates": booleans(3, 13, THRESHOLDS, 8),
        "irrelevant": booleans(4, 13, 8) & (torch.arange(13) != 4)[:, None],
        "labels": labels,
        "predictions": torch.where(torch.arange(13) % 4 == 0, 0, labels),
        "kept_predictions": torch.where(
            booleans(7, 13, 32) & booleans(8, 13, 32), -1, torch.randint(3, (13, 32), generator=draws(5))
        ),
        "sample_ids": torch.randint(-(2**40), 2**40, (13,), generator=draws(6)),
    }


BUILDS = {
    "csdc": partial(ControlledSyntheticDataCheck, SETS, THRESHOLDS),
    "pc": partial(PreservationCheck, THRESHOLDS),
    "dc": partial(DeletionCheck, THRESHOLDS),
    "d": partial(Distractibility, THRESHOLDS),
    "important_parts": partial(ImportantParts, THRESHOLDS),
}


def slow_values(key, record):
    """One list of T values per image, by the definition."""
    collected = []
    for b in range(images(record)):
        sets = [{j for j in range(5) if one[j]} for one in SETS[record["labels"][b]].tolist() if any(one)]
        predicted, kept = record["predictions"][b].item(), record["kept_predictions"][b].tolist()
        irrelevant = set(record["irrelevant"][b].nonzero().flatten().tolist())
        right = predicted == record["labels"][b]
        row = []
        for t in range(THRESHOLDS):
            label, shown, candidates = (
                set(record[name][b, t].nonzero().flatten().tolist())
                for name in ("label_parts", "predicted_parts", "label_candidates")
            )
            alone, without = (kept[sum(2**j for j in parts)] for parts in (shown, {*range(5)} - shown))
            row.append({
                "csdc": max(len(one & label) / len(one) for one in sets) if right and sets else NAN,
                "pc": NAN if alone < 0 else float(alone == predicted),
                "dc": NAN if without < 0 else float(without != predicted),
                "d": 1 - len(candidates & irrelevant) / len(irrelevant) if irrelevant else NAN,
                "important_parts": float(len(shown)),
            }[key])  # fmt: skip
        collected.append(row)
    return collected


def means(values):
    return [mean(column) for column in zip(*values, strict=True)] if values else [NAN] * THRESHOLDS


def fed(key, record, batch=None):
    metric = BUILDS[key]()
    return updated(metric, {name: record[name] for name in metric.reads}, batch)


def share_thresholds(rank, world_size, metric, record, shares):
    if images(share := rows(record, shares[rank])):
        updated(metric, share, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return metric.compute(), metric.halves(), metric.summary(1), metric.summary()


@pytest.mark.parametrize("key", BUILDS)
class TestThresholdMeans:
    def test_any_batches_give_the_values_of_the_oracle(self, key):
        record = threshold_record()
        values = slow_values(key, record)
        even = [id % 2 == 0 for id in record["sample_ids"].tolist()]
        halves = [means([v for v, e in zip(values, even, strict=True) if e == half]) for half in (True, False)]
        order = torch.randperm(13, generator=draws(1))
        for metric in (fed(key, record), fed(key, record, 1), fed(key, record, 5), fed(key, rows(record, order), 3)):
            assert metric.compute().tolist() == pytest.approx(means(values), abs=1e-12)
            assert metric.halves().flatten().tolist() == pytest.approx(halves[0] + halves[1], abs=1e-12)
            for index in range(THRESHOLDS):
                summary = metric.summary(index)
                assert summary["value"] == pytest.approx(means(values)[index])
                assert summary["n"] + summary["skipped"] == 13
                assert summary["low"] < summary["value"] < summary["high"]
                if key in ("pc", "dc"):  # 0 or 1 for each image
                    n = summary["n"]
                    low = wilson_interval(torch.tensor(summary["value"] * n), torch.tensor(n))[0]
                    assert summary["low"] == pytest.approx(low.item())
        area = torch.tensor([sum(row) / THRESHOLDS for row in values if not math.isnan(sum(row))], dtype=torch.float64)
        sums = (area.sum(), area.square().sum(), torch.tensor(len(area)))
        summary, bounds = metric.summary(), [float(b) for b in mean_interval(*sums, value_range=metric.value_range)]
        assert [summary[name] for name in ("value", "low", "high")] == pytest.approx([area.mean().item(), *bounds])
        torch.testing.assert_close(fed(key, record).image_values.tolist(), values, equal_nan=True)

    def test_protocol(self, key):
        record = threshold_record()
        metric = fed(key, record)
        check_attributes(metric)
        for copy in (metric.clone(), pickle.loads(pickle.dumps(metric)), metric.half()):
            assert same_summaries(copy.summary(2), metric.summary(2))
        mine = {name: record[name] for name in metric.reads}
        first, forward = BUILDS[key](), BUILDS[key]()
        first.update(**rows(mine, slice(0, 6)))
        assert torch.equal(forward(**rows(mine, slice(0, 6))).nan_to_num(-1), first.compute().nan_to_num(-1))
        forward(**rows(mine, slice(6, None)))
        forward.update(**rows(mine, slice(0, 0)))
        assert same_summaries(forward.summary(), metric.summary())
        collection = MetricCollection({"a": BUILDS[key](), "b": BUILDS[key]()})
        collection.update(**record, unread=torch.zeros(1))
        assert all(torch.equal(value, metric.compute()) for value in collection.compute().values())
        metric.reset()
        with pytest.warns(UserWarning, match="before the ``update``"):
            assert metric.compute().isnan().all()
        with pytest.raises(IndexError, match=r"`index` to be in \[0, 4\), but got 4"):
            metric.summary(THRESHOLDS)

    def test_two_processes(self, key, ddp_pool):
        record = threshold_record()
        expected = fed(key, record)
        mine = {name: record[name] for name in expected.reads}
        for shares in ([slice(0, None, 2), slice(1, None, 2)], [slice(0, 0), slice(None)]):
            for value, halves, summary, area in ddp_pool.run(share_thresholds, BUILDS[key](), mine, shares):
                torch.testing.assert_close(value, expected.compute(), rtol=0, atol=1e-12)
                torch.testing.assert_close(halves, expected.halves(), rtol=0, atol=1e-12)
                assert same_summaries(summary, expected.summary(1))
                assert same_summaries(area, expected.summary())


def test_a_model_without_any_correct_prediction():
    record = threshold_record()
    metric = fed("csdc", record | {"predictions": (record["labels"] + 1) % 6})
    with pytest.warns(UserWarning, match="ControlledSyntheticDataCheck is NaN: .* among 13 images"):
        assert metric.compute().isnan().all()
    summary = metric.summary(0)
    assert (summary["n"], summary["skipped"], math.isnan(summary["value"])) == (0, 13, True)
