import math

import pytest
import torch

from metrics.functional import (
    accuracy,
    balanced_accuracy,
    confusion_matrix,
    f1_score,
    top_k_accuracy,
)
from metrics.general.classification import confusion_table
from tests.metrics.functional.logits import random_case, same, slow_f1

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
LOGITS = torch.tensor([[2.0, 2, 0], [1, 3, 0], [0, 1, 2], [5, 0, 1]])
LABELS = torch.tensor([1, 1, 2, 2])


def slow_hit(row, label, k):
    return float(label in sorted(range(len(row)), key=lambda j: (-row[j], j))[:k])


class TestSingleLabel:
    def test_hand_case(self):
        # predictions 0 (tie to the lowest), 1, 2, 0
        assert accuracy(LOGITS, LABELS).tolist() == [0, 1, 1, 0]
        # the true class 2 of the last image has one better class, the true class 1 of the first too
        assert top_k_accuracy(LOGITS, LABELS, 2).tolist() == [1, 1, 1, 1]
        table = confusion_matrix(LOGITS, LABELS, 3)
        assert table.tolist() == [[0, 0, 0], [1, 1, 0], [1, 0, 1]]
        assert table.dtype == torch.int64
        # class 0 is predicted twice but never true: F1 0, recall undefined; classes 1 and 2: tp 1, fn 1
        assert same(f1_score(table).tolist(), [0, 2 / 3, 2 / 3])
        assert same(balanced_accuracy(table).tolist(), [math.nan, 0.5, 0.5])

    def test_class_balanced_is_not_accuracy(self):
        logits = torch.tensor([[1.0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]])
        labels = torch.tensor([0, 0, 1, 2])
        # 3 of 4 right, but recalls 2/2, 1/1, 0/1
        assert accuracy(logits, labels).mean() == 0.75
        assert balanced_accuracy(confusion_matrix(logits, labels, 3)).mean() == pytest.approx(2 / 3)

    def test_constant_logits_hit_one_class_in_three(self):
        logits, labels = torch.zeros(3, 3), torch.arange(3)
        assert accuracy(logits, labels).mean() == pytest.approx(1 / 3)
        assert top_k_accuracy(logits, labels, 2).tolist() == [1, 1, 0]
        assert balanced_accuracy(confusion_matrix(logits, labels, 3)).mean() == pytest.approx(1 / 3)

    def test_an_abstention_is_wrong_whatever_the_class(self):
        """Regression: the arg-max of a row of zeros is class 0, which would then be right."""
        logits, labels = torch.tensor([[0.0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]]), torch.tensor([0, 1, 2, 0])
        abstained = torch.tensor([True, True, True, False])
        assert accuracy(logits, labels, abstained).tolist() == [0, 0, 0, 1]
        assert top_k_accuracy(logits, labels, 2, abstained).tolist() == [0, 0, 0, 1]
        table = confusion_table(logits, labels, 3, abstained)
        assert table.tolist() == [[1, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]]
        assert balanced_accuracy(table).tolist() == [0.5, 0, 0]
        assert same(f1_score(table).tolist(), [2 / 3, 0, 0])  # class 0: tp 1, fn 1; nobody is a false positive

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        for seed in range(4):
            logits, labels = random_case(seed, dtype)
            pairs = list(zip(logits.tolist(), labels.tolist(), strict=True))
            assert accuracy(logits, labels).tolist() == [slow_hit(row, label, 1) for row, label in pairs]
            for k in (1, 2, 4):
                assert top_k_accuracy(logits, labels, k).tolist() == [slow_hit(row, label, k) for row, label in pairs]
            predicted = [max(range(5), key=lambda j, row=row: (row[j], -j)) for row, _ in pairs]
            truth = labels.tolist()
            table = confusion_matrix(logits, labels, 5)
            both = list(zip(truth, predicted, strict=True))
            assert table.tolist() == [[both.count((row, column)) for column in range(5)] for row in range(5)]
            tp = [both.count((c, c)) for c in range(5)]
            expected = [slow_f1(tp[c], predicted.count(c) - tp[c], truth.count(c) - tp[c]) for c in range(5)]
            assert same(f1_score(table).tolist(), expected)
            recall = [tp[c] / truth.count(c) if c in truth else math.nan for c in range(5)]
            assert same(balanced_accuracy(table).tolist(), recall)

    def test_relabelling_classes_moves_the_values(self):
        logits = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
        labels = random_case(0, torch.float32)[1]
        order = torch.randperm(5, generator=torch.Generator().manual_seed(2))
        moved = order.argsort()[labels]
        assert torch.equal(accuracy(logits[:, order], moved), accuracy(logits, labels))
        table = confusion_matrix(logits, labels, 5)
        assert torch.equal(confusion_matrix(logits[:, order], moved, 5), table[order][:, order])

    def test_perfect_and_worst(self):
        labels = torch.arange(4)
        right = torch.nn.functional.one_hot(labels, 4).float()
        wrong = right.roll(1, dims=1)
        for logits, expected in ((right, 1), (wrong, 0)):
            table = confusion_matrix(logits, labels, 4)
            for values in (accuracy(logits, labels), f1_score(table), balanced_accuracy(table)):
                assert values.tolist() == [expected] * 4

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_not_finite_is_undefined(self, bad):
        logits = torch.cat([LOGITS, torch.tensor([[bad, 0, 0]])])
        labels = torch.cat([LABELS, torch.tensor([0])])
        assert accuracy(logits, labels).isnan().tolist() == [False] * 4 + [True]
        assert top_k_accuracy(logits, labels, 2).isnan().tolist() == [False] * 4 + [True]
        assert torch.equal(confusion_matrix(logits, labels, 3), confusion_matrix(LOGITS, LABELS, 3))

    def test_empty_batch_and_layout(self):
        empty = torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64)
        assert accuracy(*empty).shape == top_k_accuracy(*empty).shape == (0,)
        assert confusion_matrix(*empty, 5).sum() == 0
        assert f1_score(confusion_matrix(*empty, 5)).isnan().all()
        strided = LOGITS.T.contiguous().T
        assert torch.equal(accuracy(strided, LABELS), accuracy(LOGITS, LABELS))

    def test_errors(self):
        for call in (accuracy, top_k_accuracy, lambda x, y: confusion_matrix(x, y, 3)):
            with pytest.raises(ValueError, match="`logits` to be of shape"):
                call(LOGITS[0], LABELS)
            with pytest.raises(ValueError, match="`labels` to be of shape"):
                call(LOGITS, LABELS[:2])
            with pytest.raises(ValueError, match=r"`labels` to be of shape .* dtype int64"):
                call(LOGITS, LABELS.int())
        for k in (0, 3, 4):
            with pytest.raises(
                ValueError, match=f"`k` to be at least 1 and below the number of classes 3, but got {k}"
            ):
                top_k_accuracy(LOGITS, LABELS, k)
        with pytest.raises(ValueError, match="to have num_classes = 4 columns, but got 3"):
            confusion_matrix(LOGITS, LABELS, 4)

    @pytest.mark.parametrize("label", [-1, 3])
    def test_a_label_out_of_range_is_never_a_miss(self, label):
        for call in (accuracy, lambda x, y: top_k_accuracy(x, y, 2), lambda x, y: confusion_matrix(x, y, 3)):
            with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
                call(LOGITS, torch.tensor([label, label, label, label]))
