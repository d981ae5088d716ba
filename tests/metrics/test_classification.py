import math
from functools import partial
from typing import ClassVar

import pytest
import torch

from metrics import Abstention, Accuracy, BalancedAccuracy, F1Score, LabelF1Score, SubsetAccuracy, TopKAccuracy
from metrics import functional as kernels
from tests.metrics.tester import (
    Case,
    MetricTests,
    check_attributes,
    check_collection,
    check_protocol,
    check_splits,
    check_two_processes,
    nowhere_finite,
    updated,
)

NAN = math.nan
K = 4
LOGITS = torch.tensor([[2.0, 2, 0], [1, 3, 0], [0, 1, 2], [5, 0, 1]])
LABELS = torch.tensor([1, 1, 2, 2])
MULTI_LOGITS = torch.tensor([[1.0, -1, 2], [-1, 1, 1], [1, 1, -1]])
MULTI_LABELS = torch.tensor([[True, False, True], [False, True, False], [True, True, False]])


def ordered(row):
    return sorted(range(len(row)), key=lambda j: (-row[j], j))


def defined(record):
    pairs = zip(record["logits"].tolist(), record["labels"].tolist(), strict=True)
    return [(row, label) for row, label in pairs if all(map(math.isfinite, row))]


def ranked(record):
    """Classes from best to worst, none for an abstention, and the label."""
    kept = record["logits"].isfinite().all(dim=1)
    gone = record["abstained"][kept].tolist()
    return [([] if out else ordered(row), label) for (row, label), out in zip(defined(record), gone, strict=True)]


def mean(values):
    values = [value for value in values if not math.isnan(value)]
    return sum(values) / len(values) if values else NAN


def slow_top_k(k, record):
    return mean([float(label in order[:k]) for order, label in ranked(record)])


def slow_per_class(statistic, record):
    pairs = [(label, (order or [None])[0]) for order, label in ranked(record)]
    values = []
    for c in range(K):
        tp = sum(pair == (c, c) for pair in pairs)
        fp = sum(y != c and p == c for y, p in pairs)
        fn = sum(y == c and p != c for y, p in pairs)
        values.append(statistic(tp, fp, fn))
    return mean(values)


def slow_f1(tp, fp, fn):
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else NAN


def slow_recall(tp, fp, fn):
    return tp / (tp + fn) if tp + fn else NAN


def slow_subset(record):
    return mean([float([logit > 0.5 for logit in row] == label) for row, label in defined(record)])


def slow_label_f1(record):
    pairs = defined(record)
    values = []
    for j in range(K):
        tp = sum(row[j] > 0.5 and label[j] for row, label in pairs)
        fp = sum(row[j] > 0.5 and not label[j] for row, label in pairs)
        fn = sum(row[j] <= 0.5 and label[j] for row, label in pairs)
        values.append(slow_f1(tp, fp, fn))
    return mean(values)


def record(multi_label):
    """Thirteen images with ties, one with a NaN logit, three abstentions, also the NaN; class 3 is never true."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randint(-2, 3, (13, K), generator=generator).float()
    logits[5, 1] = NAN
    if multi_label:
        labels = torch.rand(13, K, generator=generator) < 0.4
        labels[:6] = logits[:6] > 0.5
        return {"logits": logits, "labels": labels}
    labels, abstained = torch.randint(K - 1, (13,), generator=generator), torch.zeros(13, dtype=torch.bool)
    abstained[[0, 5, 9]] = True
    return {"logits": logits, "labels": labels, "abstained": abstained}


SINGLE, MULTI = record(False), record(True)
ABSTAINED = {"abstained": SINGLE["abstained"]}
UNSEEN, UNSEEN_SETS = nowhere_finite(SINGLE), nowhere_finite(MULTI)


class TestEveryClass(MetricTests):
    cases: ClassVar = {
        "accuracy": Case(Accuracy, SINGLE, partial(slow_top_k, 1), UNSEEN, 13),
        "top2_accuracy": Case(partial(TopKAccuracy, k=2), SINGLE, partial(slow_top_k, 2), UNSEEN, 13),
        "balanced_accuracy": Case(
            partial(BalancedAccuracy, K), SINGLE, partial(slow_per_class, slow_recall), UNSEEN, 13 + K
        ),
        "f1": Case(partial(F1Score, K), SINGLE, partial(slow_per_class, slow_f1), UNSEEN, 13 + K),
        "subset_accuracy": Case(partial(SubsetAccuracy, threshold=0.5), MULTI, slow_subset, UNSEEN_SETS, 13),
        "label_f1": Case(partial(LabelF1Score, K, threshold=0.5), MULTI, slow_label_f1, UNSEEN_SETS, 13 + K),
    }

    def test_interval_contains_the_value(self, case):
        summary = updated(case.build(), case.record).summary()
        assert summary["low"] < summary["value"] < summary["high"]


class TestAbstention:
    def test_everywhere(self, ddp_pool):
        """Three of thirteen, in batches, in any order and on two processes."""
        check_attributes(Abstention())
        check_splits(Abstention, ABSTAINED, lambda record: mean(record["abstained"].double().tolist()))
        check_protocol(Abstention, ABSTAINED)
        check_collection(Abstention, ABSTAINED)
        check_two_processes(ddp_pool, Abstention, ABSTAINED)
        assert updated(Abstention(), ABSTAINED).compute() == 3 / 13

    def test_never(self):
        assert updated(Abstention(), {"abstained": torch.zeros(4, dtype=torch.bool)}).compute() == 0

    @pytest.mark.parametrize("build", [Accuracy, TopKAccuracy, partial(BalancedAccuracy, K), partial(F1Score, K)])
    def test_no_abstention_is_the_default(self, build):
        never = SINGLE | {"abstained": torch.zeros(13, dtype=torch.bool)}
        plain = {name: SINGLE[name] for name in ("logits", "labels")}
        assert updated(build(), never).summary() == updated(build(), plain).summary()


def test_the_name_says_k():
    assert [TopKAccuracy().name, TopKAccuracy(5).name] == ["top3_accuracy", "top5_accuracy"]


def test_single_label_hand_case():
    one = {"logits": LOGITS, "labels": LABELS}
    expected = {Accuracy(): 0.5, TopKAccuracy(2): 1.0, BalancedAccuracy(3): 0.5, F1Score(3): 4 / 9}
    for metric, value in expected.items():
        assert updated(metric, one).compute().item() == pytest.approx(value, abs=1e-12)
    # class 0 has no sample: recall undefined, F1 0
    assert (updated(BalancedAccuracy(3), one).summary()["n"], updated(F1Score(3), one).summary()["n"]) == (2, 3)
    assert updated(BalancedAccuracy(3), one).summary()["skipped"] == 1


def test_multi_label_hand_case():
    one = {"logits": MULTI_LOGITS, "labels": MULTI_LABELS}
    assert updated(SubsetAccuracy(), one).compute().item() == pytest.approx(2 / 3, abs=1e-12)
    assert updated(LabelF1Score(3), one).compute().item() == pytest.approx(8 / 9, abs=1e-12)


def test_intervals():
    hits = {"logits": torch.tensor([[1.0, 0.0]] * 10), "labels": torch.tensor([0] * 8 + [1] * 2)}
    summary = updated(Accuracy(), hits).summary()
    assert [summary["low"], summary["high"]] == pytest.approx([0.4902, 0.9433], abs=5e-5)
    # 8 of 8 and 0 of 2: effective number 4 / (1/8 + 1/2) = 6.4
    for metric, value in ((F1Score(2), 4 / 9), (BalancedAccuracy(2), 1 / 2)):
        summary = updated(metric, hits).summary()
        expected = kernels.wilson_interval(torch.tensor(6.4 * value), torch.tensor(6.4))
        assert [summary["low"], summary["high"]] == pytest.approx([bound.item() for bound in expected], abs=1e-6)


def test_values_per_class():
    assert updated(F1Score(3), {"logits": LOGITS, "labels": LABELS}).values().tolist() == pytest.approx(
        [0, 2 / 3, 2 / 3]
    )
    labels = updated(LabelF1Score(3), {"logits": MULTI_LOGITS, "labels": MULTI_LABELS})
    assert labels.values().tolist() == pytest.approx([1, 1, 2 / 3])


def test_errors():
    with pytest.raises(ValueError, match="`k` to be at least 1, but got 0"):
        TopKAccuracy(0)
    for metric_class in (BalancedAccuracy, F1Score, LabelF1Score):
        with pytest.raises(ValueError, match="`num_classes` to be at least 1, but got 0"):
            metric_class(0)
    with pytest.raises(ValueError, match="below the number of classes 3, but got 3"):
        TopKAccuracy().update(LOGITS, LABELS)
    with pytest.raises(ValueError, match="to have num_classes = 5 columns, but got 3"):
        F1Score(5).update(LOGITS, LABELS)
    with pytest.raises(ValueError, match="to have num_classes = 5 columns, but got shape"):
        LabelF1Score(5).update(MULTI_LOGITS, MULTI_LABELS)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: `top`"):
        Accuracy(top=1)
