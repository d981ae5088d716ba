import math

import pytest
import torch

from metrics.functional import label_f1_score, subset_accuracy
from metrics.general.multilabel_classification import label_counts
from tests.metrics.functional.logits import random_case, same, slow_f1

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
LOGITS = torch.tensor([[1.0, -1, 2], [-1, 1, 1], [1, 1, -1]])
LABELS = torch.tensor([[True, False, True], [False, True, False], [True, True, False]])


class TestMultilabel:
    def test_hand_case(self):
        # predicted {0, 2}, {1, 2}, {0, 1}; truth {0, 2}, {1}, {0, 1}
        assert subset_accuracy(LOGITS, LABELS).tolist() == [1, 0, 1]
        counts = label_counts(LOGITS, LABELS)
        assert counts.tolist() == [[2, 2, 1], [0, 0, 1], [0, 0, 0]]
        # label 2: tp 1, fp 1 -> 2/3
        assert same(label_f1_score(*counts).tolist(), [1, 1, 2 / 3])

    def test_the_threshold_is_strict_and_on_logits(self):
        # at 1 only the logit 2 remains: {2}, {}, {}
        assert label_counts(LOGITS, LABELS, 1.0).tolist() == [[0, 0, 1], [0, 0, 0], [2, 2, 0]]
        assert subset_accuracy(LOGITS, LABELS, 1.0).tolist() == [0, 0, 0]

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        for seed in range(3):
            logits, _ = random_case(seed, dtype, batch=8, classes=4)
            labels = torch.rand(8, 4, generator=torch.Generator().manual_seed(seed + 9)) < 0.4
            for threshold in (0.0, 0.5):
                truth = [{j for j in range(4) if row[j]} for row in labels.tolist()]
                predicted = [{j for j in range(4) if row[j] > threshold} for row in logits.tolist()]
                pairs = list(zip(truth, predicted, strict=True))
                assert subset_accuracy(logits, labels, threshold).tolist() == [float(t == p) for t, p in pairs]
                expected = [
                    slow_f1(
                        sum(j in t and j in p for t, p in pairs),
                        sum(j not in t and j in p for t, p in pairs),
                        sum(j in t and j not in p for t, p in pairs),
                    )
                    for j in range(4)
                ]
                assert same(label_f1_score(*label_counts(logits, labels, threshold)).tolist(), expected)

    def test_a_label_nobody_has_is_undefined(self):
        zeros = torch.zeros(3, dtype=torch.int64)
        assert label_f1_score(zeros, zeros, zeros).isnan().all()

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_not_finite_is_undefined(self, bad):
        logits = torch.cat([LOGITS, torch.tensor([[1.0, bad, 1]])])
        labels = torch.cat([LABELS, torch.ones(1, 3, dtype=torch.bool)])
        assert subset_accuracy(logits, labels).isnan().tolist() == [False, False, False, True]
        assert torch.equal(label_counts(logits, labels), label_counts(LOGITS, LABELS))

    def test_empty_batch(self):
        assert subset_accuracy(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.bool)).shape == (0,)

    def test_errors(self):
        with pytest.raises(ValueError, match=r"`labels` to be of shape .* dtype bool, but got .* torch.int64"):
            subset_accuracy(LOGITS, LABELS.long())
        with pytest.raises(ValueError, match="`labels` to be of shape"):
            label_counts(LOGITS, LABELS[:2])
        with pytest.raises(ValueError, match="`logits` to be of shape"):
            subset_accuracy(LOGITS.long(), LABELS)
