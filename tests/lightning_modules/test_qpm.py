"""QPM: how selected features decide, by hand, and what fine-tuning leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from lightning import Callback, seed_everything

from protometry.lightning_modules import QPM
from protometry.lightning_modules.heads.feature_selection import find_selection
from tests.lightning_modules.registry import tiny_birds, tiny_trainer

SIZE = (32, 32)
SMALL = {"name": "sketch", "until": "block2"}  # features that are quickly selected from


def test_four_channels_by_hand():
    """Channels 1, 2 and 3 are kept; their means over cells are 3, 4 and 5.

    Scores: (3 - 2) / 0.5 = 2, (4 - 4) / 1 = 0, (5 - 1) / 4 = 1. Logits: 2 + 1, 2 + 0, and 0 - 1 without bias.
    """
    model = QPM(num_features=3, features_per_class=2, num_classes=3, image_size=SIZE).eval()
    model.backbone.forward = lambda images: torch.tensor([9.0, 3.0, 4.0, 5.0])[None, :, None, None].expand(1, 4, 1, 2)
    model.linear = torch.nn.Linear(4, 3)
    assert model(torch.zeros(1, 3, *SIZE)).scores.tolist() == [[9, 3, 4, 5]]
    assert model.units().active.all()
    model.selection.copy_(torch.tensor([1, 2, 3]))
    model.assignment.copy_(torch.tensor([[1, 0, 1], [1, 1, 0], [0, 1, -1]]))
    model.mean.copy_(torch.tensor([2.0, 4.0, 1.0]))
    model.std.copy_(torch.tensor([0.5, 1.0, 4.0]))
    model.selected.fill_(True)
    output, table = model(torch.zeros(1, 3, *SIZE)), model.units()
    assert output.scores.tolist() == [[0, 2, 0, 1]]
    assert output.logits.tolist() == [[3, 2, -1]]
    assert model.contributions(output, torch.tensor([2])).tolist() == [[0, 0, 0, -1]]
    assert table.active.tolist() == [False, True, True, True]
    assert table.owner.T.tolist() == [
        [False, True, False, True],
        [False, True, True, False],
        [False, False, True, True],
    ]


@pytest.mark.parametrize("ternary", [False, True])
def test_a_class_has_the_sign_of_its_features(ternary):
    """Feature 0 is brighter in class 0, feature 1 darker; all others are noise. Only ternary weights know of 1."""
    model = QPM(8, 2, ternary=ternary, num_classes=8, image_size=SIZE, backbone=SMALL)
    sums, labels = model.feature_sums(), torch.arange(160) % 8
    maps = torch.rand(160, model.linear.in_features, 2, 2, generator=torch.Generator().manual_seed(0))
    maps[labels == 0, 0] += 5
    maps[labels != 0, 1] += 5
    sums.update(maps, labels)
    model.select(sums)
    assert model.units().weight[0, 0] == 1
    assert model.units().weight[0, 1] == (-1 if ternary else 0)
    assert set(model.assignment.unique().tolist()) <= ({-1, 0, 1} if ternary else {0, 1})


class AfterSelection(Callback):
    """Everything the model is right after the selection."""

    def on_action_end(self, trainer, module, action, report):
        self.state = {name: value.clone() for name, value in module.state_dict().items()}


def test_fine_tuning_trains_the_backbone_alone():
    seed_everything(0, verbose=False)
    phases = {"dense": {"epochs": 1}, "finetune": {"epochs": 2}}
    model = QPM(12, 3, num_classes=8, image_size=SIZE, phases=phases, backbone=SMALL)
    after = AfterSelection()
    tiny_trainer(after, limit_val_batches=0).fit(model, datamodule=tiny_birds())
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, after.state[name])}
    assert {name.split(".")[0] for name in moved} == {"backbone"}
    assert {name for name, _ in model.backbone.named_parameters(prefix="backbone")} <= moved


ADAPTED = {"adapter": 16, "adapter_width": 24, "num_features": 12, "features_per_class": 3, "preset": "adapter"}


def test_an_adapter_is_trained_and_the_backbone_is_not():
    seed_everything(0, verbose=False)
    phases = {"dense": {"epochs": 1}, "finetune": {"epochs": 1}}
    model = QPM(num_classes=8, image_size=SIZE, phases=phases, **ADAPTED)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    tiny_trainer(limit_val_batches=0).fit(model, datamodule=tiny_birds())
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.split(".")[0] for name in moved if "." in name} == {"adapter", "linear"}
    output = model.eval()(torch.rand(2, 3, *SIZE))
    maps, pooled = (values[:, model.selection] for values in (output.maps, output.extras["pooled"]))
    released = 5 * maps.abs().mean() + pooled.abs().mean()
    sparsity = model.loss_terms()["feature_sparsity"](output, {})
    assert model.phase.losses["feature_sparsity"] * sparsity.item() == pytest.approx(released.item())


def test_an_adapter_is_selected_from_without_locality_and_anew():
    model, labels = QPM(num_classes=8, image_size=SIZE, **ADAPTED), torch.arange(64) % 8
    maps = torch.rand(64, 16, 4, 4, generator=torch.Generator().manual_seed(0))
    sums = model.feature_sums()
    sums.update(maps + labels[:, None, None, None], labels)
    plain = replace(sums.constants(), locality=torch.zeros(16))
    assert model.select(sums)["objective"] == find_selection(plain, 12, 3).objective
    assert find_selection(sums.constants(), 12, 3).objective != find_selection(plain, 12, 3).objective
    before, others = model.selection.clone(), model.feature_sums()
    others.update(maps.flip(1) + labels[:, None, None, None], labels)
    model.select(others)
    assert not torch.equal(model.selection, before)


@pytest.mark.parametrize(("options", "message"), [
    ({"num_features": 129}, "at least 1 and at most the 128 features there are, but got 129"),
    ({"num_features": 4}, "`features_per_class` to be at least 1 and at most `num_features` = 4, but got 5"),
    ({"num_features": 5}, "only 1 sets of .* for 8 classes. Set `num_features` to at least 7 or"),
    ({"phases": {"finetune": {"on_enter": []}}}, r"phase of QPM with 'select_features' .* of \['dense', 'finetune'\]"),
    ({"adapter": 10, "num_features": 11}, "at most the 10 features there are"),
    ({"adapter": 0}, "`adapter` to be at least 1"),
    ({"task": "multilabel"}, r"`task` of QPM to be one of \('multiclass',\), but got 'multilabel'"),
])  # fmt: skip
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        QPM(**({"num_classes": 8, "image_size": SIZE} | options))


def test_several_labels_per_image_are_refused():
    data = tiny_birds(task="attributes")
    model = QPM(num_features=12, features_per_class=3, num_classes=data.num_classes, image_size=SIZE)
    with pytest.raises(ValueError, match=r"multilabel\. Choose another task of the data with `--data.task`"):
        tiny_trainer().fit(model, datamodule=data)
