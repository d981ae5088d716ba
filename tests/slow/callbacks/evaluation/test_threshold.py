"""The decision threshold of multilabel models: by definition, once, and with its weights."""

from __future__ import annotations

import math

import pytest

from protometry.callbacks import Interpretability, PrototypeMedia
from protometry.callbacks.evaluation.threshold import fit_threshold
from protometry.metrics.suite import FAMILIES, resolve
from tests.callbacks.evaluation.test_threshold import assert_every_checkpoint_has_its_threshold, birds, make
from tests.engine_runs import run_engine
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


SINGLE = {  # metrics that need one label, for the prototypes of ProtoPNet
    *(f"general/{name}" for name in ("balanced_accuracy", "top3_accuracy", "calibration_error", "ties")),
    "continuity/crc",
    *(f"contrastivity/{name}" for name in ("apd_intra", "apd_inter", "afd_intra", "afd_inter")),
    *(f"alignment/{name}" for name in ("consistency", "stability", "stability_nonempty", "parts_covered")),
    *(f"class_representation/{name}" for name in ("structural_grounding", "class_independence")),
    *(f"sanity/{name}" for name in ("exchanged_accuracy", "exchanged_agreement", "shortcut_success")),
    *FAMILIES["concepts"].keys,
    *FAMILIES["intervention"].keys,
    *FAMILIES["funnybirds"].keys,
}


def test_the_whole_suite_gives_numbers_or_reasons():
    data, model = birds(), make(TINY_PROTOPNET)
    fit_threshold(model, data)
    result = run_engine(Interpretability(["all"]), model, data)
    assert {key for key, reason in result.skipped.items() if "the data are multilabel" in reason} == SINGLE
    assert result.skipped.keys() - SINGLE == {"general/abstention", "sanity/shortcut_units"}
    assert {*result.metrics, *result.skipped} == set(resolve(["all"]))
    undefined = {key for key, entry in result.metrics.items() if math.isnan(entry["value"])}
    assert not undefined, undefined
