"""Classes of other data matched by name, and what a model trained on others is shown of them."""

import numpy as np
import pytest
import torch

from protometry.datamodules.dataset import ImageDataset
from protometry.datamodules.matching import Matched, match_classes


class Four(ImageDataset):
    """Four images of classes 0, 1, 2, 1, which are also their only labels."""

    sample_ids = ("a", "b", "c", "d")
    labels = np.array([0, 1, 2, 1])

    def __len__(self):
        return 4

    def __getitem__(self, index):
        label = int(self.labels[index[1] if isinstance(index, tuple) else index])
        labels = torch.nn.functional.one_hot(torch.tensor(label), 3).bool()
        return {"image": torch.zeros(3, 2, 2), "label": label, "labels": labels, "class_targets": labels.float()}


@pytest.mark.parametrize(("names", "trained", "message"), [
    (["a", "b"], ["c", "d"], "to share classes with the model, by name, but got none: the data has 'a', 'b', the"),
    (["001.A", "2.a"], ["a"], "classes of the data to differ by name, .* but got '001.A', '2.a'"),
    (["a"], ["b_c", "b c"], "classes of the model to differ by name, .* but got 'b_c', 'b c'"),
])  # fmt: skip
def test_names_that_do_not_match(names, trained, message):
    with pytest.raises(ValueError, match=message):
        match_classes(names, trained)


def test_images_of_other_classes_are_left_out():
    seen = Matched(Four(), match_classes(["x", "Wren", "jay"], ["001.Jay", "002.Heron", "003.wren"]))
    assert seen.sample_ids == ["b", "c", "d"]
    assert seen.labels.tolist() == seen.batch([0, (1, 1), 2])["label"].tolist() == [2, 0, 2]
    assert "class_targets" not in seen[0]


def test_several_labels_per_image_are_in_the_order_of_the_logits():
    seen = Matched(Four(), match_classes(["x", "wren", "jay"], ["jay", "wren"]), multi_label=True)
    assert seen.batch(range(4))["labels"].int().tolist() == [[0, 0], [0, 1], [1, 0], [0, 1]]
    assert seen.labels.tolist() == [0, 1, 2, 1]
