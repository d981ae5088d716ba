"""Confusions as a table and as a picture."""

import numpy as np
import torch

from callbacks.run.confusion import NAMES, confusion_picture, confusions, log_confusion

COUNTS = torch.tensor([[3, 1, 0, 0], [0, 0, 0, 4], [0, 2, 2, 0]])  # three classes; the last column is no prediction
CLASSES = ["crow", "jay", "tit"]


def test_confusions_are_ordered_by_number_and_cut():
    expected = [("jay", "no prediction", 4, 1.0), ("tit", "jay", 2, 0.5), ("crow", "jay", 1, 0.25)]
    assert confusions(COUNTS, CLASSES) == expected
    assert confusions(COUNTS, CLASSES, limit=1) == expected[:1]
    assert confusions(torch.eye(3, 4, dtype=torch.int64), CLASSES) == []
    assert COUNTS[0, 0] == 3  # the counts of the metric stay as they are


def test_cells_are_as_dark_as_they_are_frequent_within_their_class():
    cell = 160
    pixels = np.asarray(confusion_picture(COUNTS, CLASSES))[:, :, 0].astype(float)
    top = 32
    share = [[1 - pixels[top + cell * row + 80, NAMES + cell * col + 80] / 255 for col in range(4)] for row in range(3)]
    expected = (COUNTS / COUNTS.sum(dim=1, keepdim=True)).tolist()
    assert np.allclose(share, expected, atol=0.003)


def test_a_class_without_images_and_many_classes_are_drawn():
    assert confusions(torch.zeros(2, 3, dtype=torch.int64), ["a", "b"]) == []
    confusion_picture(torch.zeros(500, 501, dtype=torch.int64), [str(i) for i in range(500)])


def test_multilabel_data_have_no_confusions():
    log_confusion([object()], None, CLASSES, "val", 0)  # a logger that could not take anything
