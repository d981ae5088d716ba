"""Metrics that scikit-learn or torchmetrics also have, against theirs."""

import math

import pytest
import torch
from sklearn import metrics as sklearn_metrics
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from protometry.metrics import Accuracy, BalancedAccuracy, CalibrationError, F1Score, LabelF1Score, TopKAccuracy
from protometry.metrics.functional import calibration_bins, calibration_error, concept_auc
from tests.metrics.tester import updated

CLASSES, IMAGES = 5, 200
each = pytest.mark.parametrize("seed", range(3))


def drawn(seed):
    """Logits without ties, labels of the first four of five classes, which the logits know a little about."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES - 1, (IMAGES,), generator=generator)
    logits = torch.randn(IMAGES, CLASSES, generator=generator, dtype=torch.float64)
    return logits + torch.nn.functional.one_hot(labels, CLASSES), labels


@each
def test_single_labels(seed):
    logits, labels = drawn(seed)
    record, predicted = {"logits": logits, "labels": labels}, logits.argmax(dim=1)
    true = {kind: updated(kind(CLASSES), record).compute().item() for kind in (BalancedAccuracy, F1Score)}
    assert updated(Accuracy(), record).compute() == sklearn_metrics.accuracy_score(labels, predicted)
    top = sklearn_metrics.top_k_accuracy_score(labels, logits, k=3, labels=range(CLASSES))
    assert updated(TopKAccuracy(3), record).compute().item() == pytest.approx(top, rel=1e-14)
    recall = sklearn_metrics.recall_score(labels, predicted, average=None, labels=range(CLASSES - 1))
    assert true[BalancedAccuracy] == pytest.approx(recall.mean(), rel=1e-14)  # of classes that have an image
    f1 = sklearn_metrics.f1_score(labels, predicted, average="macro", labels=range(CLASSES))
    assert true[F1Score] == pytest.approx(f1, rel=1e-14)


@each
def test_label_sets(seed):
    logits = drawn(seed)[0]
    labels = torch.rand(logits.shape, generator=torch.Generator().manual_seed(seed)) < 0.3
    value = updated(LabelF1Score(CLASSES), {"logits": logits, "labels": labels}).compute().item()
    assert value == pytest.approx(sklearn_metrics.f1_score(labels, logits > 0, average="macro"), rel=1e-14)


@each
def test_areas_under_the_curve(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(20, (IMAGES, 3), generator=generator).double()  # with ties
    labels = torch.rand(IMAGES, 2, generator=generator) < 0.3
    expected = [[sklearn_metrics.roc_auc_score(present, unit) for present in labels.T] for unit in scores.T]
    torch.testing.assert_close(
        concept_auc(scores, labels), torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0
    )


@each
def test_calibration_errors(seed):
    generator = torch.Generator().manual_seed(seed)
    probabilities = torch.rand(IMAGES, 3, generator=generator, dtype=torch.float64)
    labels = torch.rand(IMAGES, 3, generator=generator) < 0.4
    values = calibration_error(calibration_bins(probabilities, labels))
    for value, predicted, present in zip(values, probabilities.T, labels.T, strict=True):
        theirs = binary_calibration_error(predicted, present.long(), n_bins=15)
        assert math.isclose(value, theirs, rel_tol=1e-13)
    logits, classes = drawn(seed)
    record = {"probabilities": logits.softmax(dim=1), "labels": classes}
    theirs = multiclass_calibration_error(record["probabilities"], classes, CLASSES, n_bins=15)
    assert math.isclose(updated(CalibrationError(), record).compute(), theirs, rel_tol=1e-6)  # theirs in float32
