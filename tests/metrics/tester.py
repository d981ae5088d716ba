"""Tests that every metric class passes; a test file brings the cases.

A record maps the argument names of ``update`` to tensors with one row per image.
"""

import inspect
import math
import pickle
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

import pytest
import torch
from torch import Tensor
from torchmetrics import MetricCollection
from torchmetrics.utilities import dim_zero_cat, dim_zero_max

from protometry.metrics import ModelValue, SummaryMetric
from protometry.metrics.base import AveragedOver
from tests.rounding import tolerance

Record = dict[str, Tensor]
NAN, INF = math.nan, math.inf
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# sums of some hundred float64 terms, in another order than the oracle's
TOLERANCE = tolerance(5000, dtype=torch.float64)


@dataclass(frozen=True)
class Case:
    """A metric class with what its tests need.

    Args:
        build: makes the metric.
        record: an odd number of images, part of them undefined.
        oracle: the value of a record, by a loop over the definition.
        undefined: fields of the record with which no image has a value.
        skipped: entries that are then counted as undefined.
    """

    build: Callable[[], SummaryMetric]
    record: Record
    oracle: Callable[[Record], float]
    undefined: Record
    skipped: int


def nowhere_finite(record: Record) -> Record:
    """The floating-point fields of a record, all NaN."""
    return {name: value * math.nan for name, value in record.items() if value.is_floating_point()}


def partly_unknown(record: Record, name: str = "concept_labels") -> Record:
    """The record, in which a fourth of what images have is unknown: another fourth for each of its columns."""
    truth = record[name].float()
    holes = (torch.arange(truth.numel()).view_as(truth) * 7) % 4 == 0
    return record | {name: truth.masked_fill(holes, NAN)}


class MetricTests:
    """Tests of every metric class; a subclass brings ``cases``, which ``conftest.py`` hands in one by one."""

    cases: ClassVar[dict[str, Case]]

    def test_any_batches_give_the_value_of_the_oracle(self, case: Case) -> None:
        check_splits(case.build, case.record, case.oracle)

    def test_protocol(self, case: Case) -> None:
        check_attributes(case.build())
        check_protocol(case.build, case.record)
        check_collection(case.build, case.record)

    def test_undefined(self, case: Case) -> None:
        check_undefined(case.build, case.record | case.undefined, case.skipped)

    def test_numbers_of_every_kind(self, case: Case) -> None:
        check_numbers(case.build, case.record, case.oracle)

    def test_two_processes(self, ddp_pool: Any) -> None:
        check_two_processes(ddp_pool, self.cases.values())


class ChangeTests(MetricTests):
    """Tests of every metric that compares an image with a perturbed one."""

    def test_no_change_is_exactly_zero(self, case: Case) -> None:
        check_change(case.build, case.record)


def mean(values: Iterable[float]) -> float:
    """Mean of the values that are not NaN; NaN without any."""
    values = [value for value in values if not math.isnan(value)]
    return sum(values) / len(values) if values else math.nan


def approx(values: Any) -> Any:
    """Equal up to the rounding of float64, NaN equals NaN."""
    return pytest.approx(values, abs=1e-12, nan_ok=True)


def rows(record: Record, index: Any) -> Record:
    """Some images of a record."""
    return {name: value[index] for name, value in record.items()}


def images(record: Record) -> int:
    """Number of images of a record."""
    return len(next(iter(record.values())))


def same(value: float | Tensor, expected: float | Tensor) -> bool:
    """Equal up to rounding, NaN equals NaN."""
    return math.isclose(float(value), float(expected), rel_tol=TOLERANCE, abs_tol=TOLERANCE) or (
        math.isnan(value) and math.isnan(expected)
    )


def same_summaries(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Equal up to rounding in every field, and in every entry of a list."""
    if one.keys() != other.keys():
        return False
    both = [[summary[field] for field in one] for summary in (one, other)]
    flat = [
        [number for value in values for number in (value if isinstance(value, list) else [value])] for values in both
    ]
    return len(flat[0]) == len(flat[1]) and all(map(same, *flat))


def updated(metric: SummaryMetric, record: Record, batch: int | None = None) -> SummaryMetric:
    """The metric after it has seen the record in batches."""
    total = images(record)
    for first in range(0, total, batch or total):
        metric.update(**rows(record, slice(first, first + (batch or total))))
    return metric


def check_attributes(metric: SummaryMetric) -> None:
    """What every class declares, that it reads what ``update`` takes, and that no checkpoint keeps any of it."""
    assert not metric.state_dict()
    assert isinstance(metric.unit, str)
    assert tuple(inspect.signature(metric.update).parameters) == metric.reads
    assert isinstance(type(metric).higher_is_better, bool)
    assert metric.averaged_over in get_args(AveragedOver)
    assert type(metric).is_differentiable is False
    assert type(metric).full_state_update is False
    for state, default in metric._defaults.items():
        assert isinstance(default, Tensor), state
        if metric._reductions[state] is dim_zero_cat:  # grows with the number of images: half the memory in float32
            assert default.dtype == torch.float32, state
        else:  # a maximum of flags needs one byte
            flags = metric._reductions[state] is dim_zero_max and default.dtype == torch.uint8
            assert flags or default.dtype in (torch.float64, torch.int64), state


def check_splits(build: Callable[[], SummaryMetric], record: Record, oracle: Callable[[Record], float]) -> None:
    """Any batch size and any order gives the value of the oracle, and per batch too."""
    expected = oracle(record)
    summary = updated(build(), record).summary()
    assert same(summary["value"], expected), (summary["value"], expected)
    for batch in (1, 3, images(record)):
        metric = updated(build(), record, batch)
        value = metric.compute()
        assert value.dtype == torch.float64
        assert value.shape == ()
        assert same(value, expected), batch
        assert same_summaries(metric.summary(), summary)
    order = torch.randperm(images(record), generator=torch.Generator().manual_seed(0))
    assert same_summaries(updated(build(), rows(record, order), 2).summary(), summary)
    for first in range(0, images(record), 4):
        part = rows(record, slice(first, first + 4))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            assert same(updated(build(), part).compute(), oracle(part))


def strided(value: Tensor) -> Tensor:
    """The same numbers, which do not follow each other in memory."""
    return value.transpose(0, -1).contiguous().transpose(0, -1) if value.ndim > 1 else value


def check_numbers(build: Callable[[], SummaryMetric], record: Record, oracle: Callable[[Record], float]) -> None:
    """Of every precision, in any layout; and what is not finite is undefined, whichever way it is not."""
    kinds = {name: value.is_floating_point() and "labels" not in name for name, value in record.items()}
    real = {name: record[name] for name, is_real in kinds.items() if is_real}
    others = [{name: value.to(dtype) for name, value in real.items()} for dtype in DTYPES if dtype != torch.float32]
    others += [{name: value.nan_to_num(bad, bad, bad) for name, value in real.items()} for bad in (NAN, INF, -INF)]
    for changes in others:
        data = {name: strided(value) for name, value in (record | changes).items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            assert same(updated(build(), data).compute(), oracle(data)), changes


def check_protocol(build: Callable[[], SummaryMetric], record: Record) -> None:
    """Clone, pickle, reset, ``forward`` = ``update`` + ``compute``, empty batches, half precision states."""
    metric = updated(build(), record)
    value, summary = metric.compute(), metric.summary()
    for copy in (metric.clone(), pickle.loads(pickle.dumps(metric)), metric.half(), metric.to("cpu")):
        assert same(copy.compute(), value)
        assert same_summaries(copy.summary(), summary)
    check_forward(build, record)
    fresh = metric.clone()
    fresh.reset()
    assert all(torch.equal(getattr(fresh, state), default) for state, default in fresh._defaults.items())
    assert same(updated(fresh, record).compute(), value)
    if not isinstance(metric, ModelValue):
        before = {state: getattr(metric, state).clone() for state in metric._defaults}
        metric.update(**rows(record, slice(0, 0)))
        assert all(torch.equal(getattr(metric, state), kept) for state, kept in before.items())
    with torch.inference_mode():
        inside = updated(build(), record)
    assert same(updated(inside, record).compute(), updated(updated(build(), record), record).compute())


def check_forward(build: Callable[[], SummaryMetric], record: Record) -> None:
    """``forward`` returns the value of the batch and accumulates like ``update``."""
    half = images(record) // 2
    parts = [rows(record, slice(0, half)), rows(record, slice(half, None))]
    forward, plain = build(), build()
    for part in parts:
        batch_value = forward(**part)
        plain.update(**part)
        assert same(batch_value, updated(build(), part).compute())
    assert same_summaries(forward.summary(), plain.summary())


def check_collection(build: Callable[[], SummaryMetric], record: Record) -> None:
    """In a collection, fed by argument name with more than it reads."""
    collection = MetricCollection({"family/one": build(), "family/two": build()})
    collection.update(**record, unread=torch.zeros(1))
    value = updated(build(), record).compute()
    result = collection.compute()
    assert result.keys() == {"family/one", "family/two"}
    assert all(same(entry, value) for entry in result.values())


def check_undefined(build: Callable[[], SummaryMetric], record: Record, skipped: int) -> None:
    """A record without any defined value gives NaN, one warning and a count."""
    metric = updated(build(), record)
    with pytest.warns(UserWarning, match="is NaN: nothing it could measure") as caught:
        assert metric.compute().isnan()
    assert len(caught) == 1
    summary = metric.summary()
    assert (summary["n"], summary["skipped"]) == (0, skipped)
    assert all(math.isnan(summary[field]) for field in ("value", "low", "high"))
    metric = build()
    with pytest.warns(UserWarning, match="before the ``update``") as caught:
        assert metric.compute().isnan()
    assert len(caught) == 1


def check_change(build: Callable[[], SummaryMetric], record: Record) -> None:
    """A perturbation that changes nothing scores exactly 0 at batch 1, 4 and 16."""
    unchanged = {name: torch.cat([value, value])[:16] for name, value in record.items()}
    for name in record:
        if name.startswith("perturbed_"):
            clean = unchanged[name.removeprefix("perturbed_")]
            shape = unchanged[name].shape
            unchanged[name] = (clean if clean.shape == shape else clean[:, None].expand(shape)).clone()
    summaries = [updated(build(), unchanged, batch).summary() for batch in (1, 4, 16)]
    assert summaries[0]["n"] > 1
    assert all(summary["value"] == 0 for summary in summaries)
    assert same_summaries(summaries[0], summaries[1])
    assert same_summaries(summaries[0], summaries[2])


def summarise_shares(rank: int, world_size: int, metrics: list[SummaryMetric], records: list[Record]) -> list[Any]:
    """What one of two processes computes from its share of each record, and whether its own states survive."""
    found = []
    for metric, record, shares in ((m, r, s) for m, r in zip(metrics, records, strict=True) for s in SHARES):
        share, fresh = rows(record, shares[rank]), metric.clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            if images(share):
                updated(fresh, share, 2)
            before = {state: getattr(fresh, state).clone() for state in fresh._defaults}
            summary, value = fresh.summary(), fresh.compute()
        found.append((summary, value, all(torch.equal(getattr(fresh, state), own) for state, own in before.items())))
    return found


# strided halves of an odd number of images, and a process without any
SHARES = [[slice(0, None, 2), slice(1, None, 2)], [slice(None), slice(0, 0)], [slice(0, 0), slice(None)]]


def check_two_processes(ddp_pool: Any, cases: Iterable[Case]) -> None:
    """Shares of the images give the value of one process."""
    metrics, records = [case.build() for case in cases], [case.record for case in cases]
    expected = [updated(case.build(), case.record).summary() for case in cases for _ in SHARES]
    assert all(images(record) % 2 for record in records)
    for found in ddp_pool.run(summarise_shares, metrics, records):
        for (summary, value, kept), wanted in zip(found, expected, strict=True):
            assert same_summaries(summary, wanted), (summary, wanted)
            assert same(value, wanted["value"])
            assert kept
