"""The decision threshold of multilabel models: by definition, once, and with its weights."""

from __future__ import annotations

import pytest

from protometry.callbacks import PrototypeMedia
from tests.callbacks.evaluation.test_threshold import assert_every_checkpoint_has_its_threshold, birds, make
from tests.lightning_modules.registry import TINY_PROTOPNET, tiny_trainer


def test_prototypes_are_drawn_under_a_label_that_owns_them(tmp_path):
    """The class of a source image is a bird, none of the 20 attributes."""
    data = birds()
    model = make(TINY_PROTOPNET, phases={"warm": None, "joint": {"epochs": 1}, "settle": None, "last": {"epochs": 1}})
    tiny_trainer(PrototypeMedia(), default_root_dir=tmp_path, limit_val_batches=0).fit(model, datamodule=data)
    rows = (tmp_path / "prototypes" / "joint-epoch00.csv").read_text().splitlines()[1:]
    named = {int(row.split(",")[0]): row.split(",")[1] for row in rows}
    source = model.units().source
    assert named == {unit: data.class_names[unit // 2] for unit in range(40) if source.found[unit]}
    for unit in named:
        index = data.dataset("projection").sample_ids.index(source.sample_id[unit])
        sample = data.dataset("projection")[index]
        assert sample["labels"][unit // 2]
        assert source.label[unit] == sample["label"]  # the stratum


@pytest.mark.parametrize("options", [{}, {"limit_val_batches": 0}], ids=str)
def test_every_checkpoint_has_the_threshold_of_its_weights(tmp_path, options):
    assert_every_checkpoint_has_its_threshold(tmp_path, **options)
