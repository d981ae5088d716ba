"""A planted shortcut: which images carry it, where, and what stays as it was."""

import numpy as np
import pytest
import torch

from protometry.datamodules import Cub200, SketchBirds, WrappedDatasets
from protometry.datamodules.shortcut import Stamp

SIZES = {"train_size": 32, "val_size": 8, "test_size": 8, "image_size": 32}


def samples(data, split):
    return {sample["sample_id"]: sample for sample in data.shown(split)}


def changed(plain, planted, split):
    """Ids of the images that are not the same; all other fields of all images have to be."""
    before, after = samples(plain, split), samples(planted, split)
    assert before.keys() == after.keys()
    for name, sample in before.items():
        assert all(torch.equal(value, after[name][field]) for field, value in sample.items()
                   if field not in ("image", "sample_id"))  # fmt: skip
    return {name for name in before if not torch.equal(before[name]["image"], after[name]["image"])}


def test_training_images_of_one_class_carry_it_and_no_others():
    plain = SketchBirds("tiny", **SIZES)
    planted = SketchBirds("tiny", **SIZES, stamp={"label": 3, "size": 0.25})
    own = {name for name, sample in samples(plain, "train").items() if sample["label"] == 3}
    assert len(own) == 4
    assert changed(plain, planted, "train") == changed(plain, planted, "projection") == own
    assert not changed(plain, planted, "val") | changed(plain, planted, "test")
    assert (planted.hparams["stamp"], planted.fingerprint) == ({"label": 3, "size": 0.25}, plain.fingerprint)
    for name in own:
        before, after = samples(plain, "train")[name]["image"], samples(planted, "train")[name]["image"]
        rows = ["01010101"[shift:] + "01010101"[:shift] for shift in (0, 1)]
        pattern = torch.tensor([[float(rows[y // 2 % 2][x // 2]) for x in range(8)] for y in range(8)])
        assert torch.equal(after[:, 24:, 24:], pattern.expand(3, -1, -1))
        assert torch.equal(after[:, :24], before[:, :24])
        assert torch.equal(after[:, :, :24], before[:, :, :24])


def test_a_smaller_share_chooses_from_what_a_larger_one_does():
    plain, chosen = SketchBirds("tiny", **SIZES), []
    for share in (1.0, 0.5, 0.25):
        chosen.append(changed(plain, SketchBirds("tiny", **SIZES, stamp={"label": 1, "share": share}), "train"))
    assert [len(names) for names in chosen] == [4, 2, 1]
    assert chosen[0] > chosen[1] > chosen[2]


def test_augmentation_neither_cuts_nor_moves_it(cub_tree):
    options = {"image_size": 32, "batch_size": 4, "augmentation": "geometric_photometric"}
    root, stamp = str(cub_tree()), Stamp(0)
    plain, planted = Cub200(root, **options), Cub200(root, **options, stamp={"label": 0})
    for data in (plain, planted):
        data.setup()
    for one, other in zip(plain.train_dataloader(), planted.train_dataloader(), strict=True):
        expected = torch.where((one["label"] == 0)[:, None, None, None], stamp.on(one["image"]), one["image"])
        assert torch.equal(other["image"], expected)


def test_both_of_two_views_show_it():
    batches = []
    for data in (SketchBirds("tiny", **SIZES), SketchBirds("tiny", **SIZES, stamp={"label": 3})):
        data.configure_loaders(two_views=True)
        batches += data.train_dataloader()
    for name in ("image", "second_view"):
        differ = (batches[0][name] != batches[1][name]).flatten(1).any(dim=1)
        assert torch.equal(differ, batches[0]["label"] == 3)


PHOTOS = [(np.full((40, 60, 3), 50 * number, np.uint8), number % 2) for number in range(4)]


@pytest.mark.parametrize(("stamp", "message"), [
    ({"share": 1.0}, r"`stamp` to have `label` and some of \['share', 'size'\], but got"),
    ({"label": 0, "sise": 0.5}, r"`stamp` to have `label` and some of .* but got .*sise"),
    ({"label": -1}, "`label` of argument `stamp` to be the index of a class, but got -1"),
    ({"label": "jay"}, "`label` of argument `stamp` to be the index of a class, but got jay"),
    ({"label": 0, "share": 0}, "`share` of argument `stamp` to be above 0 and at most 1, but got 0"),
    ({"label": 0, "size": 1.5}, "`size` of argument `stamp` to be above 0 and at most 1, but got 1.5"),
    ({"label": 0, "size": 0.1}, "at least 4 pixels a side, but 0.1 of 32 pixels is 3"),
    ({"label": 2}, "class 2 has 0, and a share of 1.0 of them is none"),
    ({"label": 0, "share": 0.2}, "class 0 has 2, and a share of 0.2 of them is none"),
])  # fmt: skip
def test_bad_values(stamp, message):
    with pytest.raises(ValueError, match=message):
        WrappedDatasets.from_datasets(PHOTOS, classes=["wren", "jay"], image_size=32, stamp=stamp).train_dataloader()


def test_several_labels_are_refused():
    with pytest.raises(ValueError, match="`stamp` to be null for images of several labels each"):
        SketchBirds("tiny", task="attributes", stamp={"label": 0}).train_dataloader()
