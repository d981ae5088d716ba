"""Confusions as a table and as a picture."""

import numpy as np
import torch

from protometry.callbacks.run.confusion import confusion_matrix, confusions, log_confusion
from protometry.explanations.charts import to_picture

COUNTS = torch.tensor([[3, 1, 0, 0], [0, 0, 0, 4], [0, 2, 2, 0]])  # three classes; the last column means no prediction
CLASSES = ["crow", "jay", "tit"]


def test_confusions_are_ordered_by_number_and_cut():
    expected = [("jay", "no prediction", 4, 1.0), ("tit", "jay", 2, 0.5), ("crow", "jay", 1, 0.25)]
    assert confusions(COUNTS, CLASSES) == expected
    assert confusions(COUNTS, CLASSES, limit=1) == expected[:1]
    assert confusions(torch.eye(3, 4, dtype=torch.int64), CLASSES) == []
    assert COUNTS[0, 0] == 3  # the counts of the metric stay as they are


def test_cells_are_as_dark_as_they_are_frequent_within_their_class():
    (axes,) = confusion_matrix(COUNTS, CLASSES).axes
    assert np.allclose(axes.images[0].get_array(), COUNTS / COUNTS.sum(dim=1, keepdim=True))
    assert [label.get_text() for label in axes.get_yticklabels()] == CLASSES
    picture = np.asarray(to_picture(confusion_matrix(torch.eye(2, 3, dtype=torch.int64), CLASSES[:2])))
    assert {0, 255} <= set(picture[picture.shape[0] // 4].flatten().tolist())  # all images right: black and white


def test_a_class_without_images_and_many_classes_are_drawn():
    assert confusions(torch.zeros(2, 3, dtype=torch.int64), ["a", "b"]) == []
    many = confusion_matrix(torch.zeros(500, 501, dtype=torch.int64), [str(i) for i in range(500)])
    assert to_picture(many).width > 2 * 501  # two pixels for a class, which is too low for its name
    assert many.axes[0].get_yticklabels() == []


def test_multilabel_data_have_no_confusions():
    log_confusion([object()], None, CLASSES, "val", 0)  # a logger that could not take anything
