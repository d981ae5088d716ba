"""Edited models: what is removed and why, and what does not change."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from protometry.datamodules.shortcut import Stamp
from protometry.evaluation.edit import edited_phases, main, reasons_of
from protometry.lightning_modules import PIPNet
from tests.lightning_modules.registry import MODELS, TINY_PROTOPNET, selected_qpm
from tests.tiny_runs import fit

SIZE = (32, 32)


def test_without_an_evaluation_nothing_is_trained(trained):
    with pytest.raises(FileNotFoundError, match="Expected an evaluation of"):
        main([str(trained), "--remove", "3"])
    assert not (trained.parent / "first-edited").exists()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    fit(folder, "--model.phases={warm: {epochs: 1}, joint: null, last: {epochs: 1}, joint2: null, last2: null}",
        model="ProtoPNet")  # fmt: skip
    return folder


def test_reasons_by_hand():
    """Units 0 to 4: in a corner; off the object; as unit 1; inactive; on the object, away from the border."""
    model = TINY_PROTOPNET(num_classes=8, image_size=SIZE)
    mask = torch.zeros(32, 32, dtype=torch.bool)
    mask[16:24, 16:24] = True  # cell (2, 2) of 4x4
    dataset = type("Photos", (), {"sample_ids": ["a"], "__getitem__": lambda self, index: {"object_mask": mask}})()
    flags = SimpleNamespace(object_mask=True)
    data = SimpleNamespace(capabilities=lambda split: flags, dataset=lambda split: dataset, stamp=None)
    assert reasons_of(model, data) == {}
    layer = model.prototypes
    rows, columns = torch.tensor([0, 1, 1, 1, 2]), torch.tensor([0, 1, 1, 1, 2])
    layer.row[:5], layer.col[:5], layer.sample_key[:5] = rows, columns, 7
    layer.box[:5] = torch.stack([columns * 8, rows * 8, columns * 8 + 7, rows * 8 + 7], dim=1)
    layer.sample_id, layer.active[3] = ["a"] * 5 + [""] * 11, False
    found = {"background": [0, 1, 2], "border": [0], "duplicate": [2]}
    assert reasons_of(model, data) == found
    data.stamp, data.shown = Stamp(0), lambda split: SimpleNamespace(stamped=torch.tensor([7, 9]))
    seen = [model.geometry.cell_box(cell, cell, "receptive_field")[2] >= 32 - 4 for cell in (0, 1, 2)]
    assert seen == [False, True, True]  # of a stamp of 4 pixels; the cell (1, 1) itself ends at 15
    assert reasons_of(model, data) == found | {"shortcut": [1, 2, 4]}
    data.shown = lambda split: SimpleNamespace(stamped=torch.tensor([9]))
    assert reasons_of(model, data) == found | {"shortcut": []}


def test_one_phase_is_left_that_trains_the_head_alone():
    model = PIPNet(num_features=8, num_classes=8, image_size=SIZE)
    changed = PIPNet(num_features=8, num_classes=8, image_size=SIZE, phases=edited_phases(model, [3], epochs=2))
    (phase,) = changed.plan.phases
    assert (phase.name, phase.trainable, phase.epochs, phase.prune) == ("edit", {"head": 0.05}, 2, (3,))
    assert phase.on_enter == ("prune_units",)


def test_a_last_phase_that_the_run_added_is_replaced():
    """The new run reads the config of the first, where it cannot be removed: it is not in the preset."""
    own = {"epochs": 3, "trainable": {"head": 0.1}, "losses": {"pipnet_class": 1.0}, "bn": "eval"}
    solved = {"last": own | {"on_enter": ["fit_head"], "head": {"penalty": 0.1, "nonnegative": True}}}
    model = PIPNet(num_features=8, num_classes=8, image_size=SIZE, phases=solved)
    changed = PIPNet(num_features=8, num_classes=8, image_size=SIZE, phases=solved | edited_phases(model, [3]))
    (phase,) = changed.plan.phases
    assert (phase.name, phase.epochs, phase.prune, phase.head.nonnegative) == ("last", 1, (3,), True)
    assert phase.on_enter == ("prune_units", "fit_head")
    model = PIPNet(num_features=8, num_classes=8, image_size=SIZE, phases={"more": own} | solved)
    with pytest.raises(ValueError, match=r"no phase but the last to be added .* got \['more', 'last'\]"):
        edited_phases(model, [3])


@pytest.mark.parametrize(("arguments", "message"), [
    (["--remove", "3,x"], "numbers of the units 0 to 15, such as 3,17, but got 'x'"),
    (["--forbid", "ugly"], "`forbid` to name some of background, border, duplicate.* but got 'ugly'"),
    (["--remove", "99"], "numbers of the units 0 to 15.* but got '99'"),
])  # fmt: skip
def test_bad_input(trained, arguments, message):
    with pytest.raises(ValueError, match=message):
        main([str(trained), *arguments])


def test_a_metric_is_trained_again_without_the_units():
    model = MODELS["ProtoPNet metric"](num_classes=8, image_size=SIZE, preset="frozen")
    phases = edited_phases(model, [3], epochs=2)
    assert phases["metric"] is None
    assert phases["edit"]["trainable"] == {"addon": 1e-3}
    assert (phases["edit"]["on_enter"], phases["edit"]["prune"], phases["edit"]["epochs"]) == (["prune_units"], [3], 2)


def test_a_model_whose_head_is_not_trained():
    with pytest.raises(ValueError, match="phase of QPM to train its last layer"):
        edited_phases(selected_qpm(num_classes=8, image_size=SIZE), [1])
