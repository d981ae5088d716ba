"""Records with ties, abstentions and undefined images, a hand case, and what is predicted by the definition."""

import math

import torch

from tests.metrics.tester import NAN, mean

K = 4
# predictions 0 (tie to the lowest), 1, 2, 0
LOGITS = torch.tensor([[2.0, 2, 0], [1, 3, 0], [0, 1, 2], [5, 0, 1]])
LABELS = torch.tensor([1, 1, 2, 2])
HAND = {"logits": LOGITS, "labels": LABELS}
# predicted {0, 2}, {1, 2}, {0, 1}; truth {0, 2}, {1}, {0, 1}
MULTI_LOGITS = torch.tensor([[1.0, -1, 2], [-1, 1, 1], [1, 1, -1]])
MULTI_LABELS = torch.tensor([[True, False, True], [False, True, False], [True, True, False]])
HAND_SETS = {"logits": MULTI_LOGITS, "labels": MULTI_LABELS}


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


def defined(record):
    """Logits and label of every image whose logits are finite."""
    pairs = zip(record["logits"].tolist(), record["labels"].tolist(), strict=True)
    return [(row, label) for row, label in pairs if all(map(math.isfinite, row))]


def ranked(record):
    """Classes from best to worst, none for an abstention, and the label."""
    kept = record["logits"].isfinite().all(dim=1)
    gone = record["abstained"][kept].tolist() if "abstained" in record else [False] * int(kept.sum())
    orders = [sorted(range(len(row)), key=lambda j, row=row: (-row[j], j)) for row, _ in defined(record)]
    labels = [label for _, label in defined(record)]
    return [([] if out else order, label) for order, label, out in zip(orders, labels, gone, strict=True)]


def slow_top_k(k, record):
    """Top-k accuracy by the definition."""
    return mean([float(label in order[:k]) for order, label in ranked(record)])


def slow_per_class(statistic, record):
    """Mean over classes of a statistic of true positives, false positives and false negatives."""
    pairs = [(label, (order or [None])[0]) for order, label in ranked(record)]
    values = []
    for c in range(record["logits"].shape[1]):
        tp = sum(pair == (c, c) for pair in pairs)
        fp = sum(y != c and p == c for y, p in pairs)
        fn = sum(y == c and p != c for y, p in pairs)
        values.append(statistic(tp, fp, fn))
    return mean(values)


def slow_f1(tp, fp, fn):
    """NaN where a class is neither true nor predicted."""
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else NAN


def slow_recall(tp, fp, fn):
    """NaN where a class is never true."""
    return tp / (tp + fn) if tp + fn else NAN
