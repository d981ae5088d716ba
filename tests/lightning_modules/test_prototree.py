"""ProtoTree: what only this model has; the tree alone is in ``test_tree.py``, the rest in ``test_contract.py``."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from lightning import Callback, seed_everything
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from protometry.callbacks import Interpretability, RunCheckpoint, state_hash
from protometry.callbacks.phases.projection import nearest_patches, project
from protometry.lightning_modules import ProtoTree
from tests.lightning_modules.registry import tiny_birds, tiny_trainer
from tests.tiny_runs import StopAt, StopError, differences

SIZE = (32, 32)
MODES = ("distributed", "sample_max", "greedy")
STEPS = 3  # batches in an epoch of tiny_birds
PLAN = {"warm": {"epochs": 1}, "joint": {"epochs": 2}, "settle": {"epochs": 1}}
close = torch.testing.assert_close


def make(**options) -> ProtoTree:
    seed_everything(0, verbose=False)
    small = {"num_classes": 4, "image_size": SIZE, "depth": 3, "prototype_channels": 8}
    return ProtoTree(**(small | options)).eval()


def grown(**options) -> ProtoTree:
    """With leaves that differ, so that routing matters."""
    model = make(**options)
    with torch.no_grad():
        model.tree.leaf_logits.copy_(2 * torch.randn(model.tree.leaf_logits.shape))
    return model


def images(batch=3):
    return torch.rand(batch, 3, *SIZE, generator=torch.Generator().manual_seed(1))


def fit(model, *callbacks, data=None, ckpt_path=None, **options):
    trainer = tiny_trainer(*callbacks, limit_val_batches=0, **options)
    trainer.fit(model, datamodule=data or tiny_birds(), ckpt_path=ckpt_path)
    return model


# -- architecture ----------------------------------------------------------------------------------------------------
def test_initial_state():
    model = make(prototype_channels=256, depth=7)
    convolution, squash = model.addon
    assert convolution.bias is None
    assert isinstance(squash, nn.Sigmoid)
    assert convolution.weight.std().item() == pytest.approx((2 / (128 + 256)) ** 0.5, rel=0.02)  # xavier normal
    assert model.prototypes.vectors.mean().item() == pytest.approx(0.5, abs=0.01)
    assert model.prototypes.vectors.std().item() == pytest.approx(0.1, rel=0.02)
    assert (model.tree.leaf_logits == 0).all()
    assert model.tree.leaf_logits.shape == (128, 4)
    assert ProtoTree(num_classes=200, image_size=SIZE).units().vectors.shape == (511, 256)


def test_forward_follows_the_definition():
    model = grown()
    with torch.no_grad():
        output = model(images())
    leaves = model.tree.leaf_logits.double().softmax(1)
    for image in range(3):
        scores = []
        for unit in range(7):
            vector = model.prototypes.vectors[unit].detach().double()
            distances = [math.dist(cell, vector) for cell in output.latent[image].double().flatten(1).T]
            scores.append(math.exp(-min(distances)))
            assert output.scores[image, unit].item() == pytest.approx(scores[-1], abs=1e-6)
        mixture = torch.zeros(4, dtype=torch.float64)
        for leaf in range(8):
            node, probability = 0, 1.0
            for turn in f"{leaf:03b}":  # 0 left, 1 right
                probability *= scores[node] if turn == "1" else 1 - scores[node]
                node = 2 * node + 1 + int(turn)
            mixture += probability * leaves[leaf]
        close(output.logits[image].double(), mixture.log(), rtol=1e-5, atol=1e-5)
    close(model.probabilities(output.logits), output.logits.exp())


def test_an_exact_hit_scores_one():
    """exp(-sqrt(0 + 1e-14)) = 1 - 1e-7."""
    model = make(prototype_channels=256)
    with torch.no_grad():
        model.prototypes.vectors[2] = model(images()).latent[1, :, 2, 3]
        output = model(images())
        distances = model.distance_maps(output.latent)
    assert distances[1, 2, 2, 3].item() == pytest.approx(1e-7, rel=1e-3)
    assert output.scores[1, 2].item() == pytest.approx(1 - 1e-7, abs=6e-8)
    assert output.maps[1, 2].flatten().argmax().item() == 2 * 4 + 3


def test_units():
    model = grown(depth=4)
    table = model.units()
    assert (table.kind, table.pool, table.weight, table.comparison) == ("prototype", "max", None, "distance")
    assert table.vectors is model.prototypes.vectors
    assert torch.equal(table.owner[0], torch.zeros(4).index_fill(0, model.tree.leaf_logits.argmax(1), 1).bool())


def test_allowed_takes_labels_of_both_kinds():
    model = grown(depth=4)
    several = torch.tensor([[True, False, True, False], [False, False, False, False]])
    one = model.allowed(torch.tensor([0, 2]))
    assert torch.equal(one, model.units().owner.T[[0, 2]])
    assert torch.equal(model.allowed(several), torch.stack([one.any(dim=0), torch.zeros(15, dtype=torch.bool)]))


# -- inference -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
@pytest.mark.parametrize("inference", MODES)
def test_every_inference(inference, task):
    model = grown(inference=inference, task=task)
    with torch.no_grad():
        output = model(images())
    assert torch.equal(model.head(output.scores), output.logits)
    assert torch.equal(output.logits, model.tree(output.scores, inference))
    if inference != "distributed":
        leaves = model.tree.leaf_logits if task == "multilabel" else model.tree.leaf_logits.log_softmax(1)
        assert all((row == leaves).all(dim=1).any() for row in output.logits)  # the logits of one leaf


def test_training_always_mixes():
    model = grown(inference="greedy").train()
    scores = torch.rand(3, 7)
    assert torch.equal(model.head(scores), model.tree(scores))


def test_inference_is_restored_and_may_be_changed():
    model = grown(inference="sample_max")
    again = ProtoTree(**model.hparams)
    again.load_state_dict(model.state_dict())
    again.eval()
    assert torch.equal(again(images()).logits, model(images()).logits)
    again.inference = "distributed"
    assert torch.equal(again(images()).logits, grown()(images()).logits)


@pytest.mark.parametrize("inference", ["distributed", "greedy"])
def test_contributions_are_what_is_lost_without_a_unit(inference):
    model, classes = grown(inference=inference), torch.tensor([0, 3, 1])
    with torch.no_grad():
        output = model(images())
        shares = model.contributions(output, classes)
        for unit in range(7):
            without = output.scores.clone()
            without[:, unit] = 0
            lost = (output.logits - model.head(without))[torch.arange(3), classes]
            close(shares[:, unit], lost, rtol=1e-4, atol=1e-5)


def test_fidelity_by_hand():
    """Root .6 and leaves that agree: all the same. Root .9, left .9: the mixture follows the most probable leaf."""
    model = make(depth=2)
    with torch.no_grad():
        model.tree.leaf_logits.copy_(torch.eye(4) * 3)
    scores = torch.tensor([[0.9, 0.5, 0.9], [0.55, 0.95, 0.55]])
    # π = (.05 .05 .09 .81): leaf 3, greedy right right = 3. π = (.0225 .4275 .2475 .3025): leaf 1, greedy 3
    faithful = model.fidelity(scores)
    assert faithful["sample_max"].tolist() == [True, True]
    assert faithful["greedy"].tolist() == [True, False]


def test_fidelity_of_several_labels_compares_the_labels():
    model = grown(task="multilabel")
    model.decision_threshold.fill_(0.5)
    scores = torch.rand(20, 7)
    decided = [model.tree(scores, mode) > 0.5 for mode in MODES]
    for other, mode in zip(decided[1:], MODES[1:], strict=True):
        assert torch.equal(model.fidelity(scores)[mode], (decided[0] == other).all(dim=1))


def test_fidelity_is_reported_at_test_time():
    model, data = grown(num_classes=8), tiny_birds(test_size=13)
    trainer = tiny_trainer()
    trainer.callbacks = trainer.callbacks[1:]
    trainer.test(model, datamodule=data, verbose=False)
    with torch.no_grad():
        scores = torch.cat([model(batch["image"]).scores for batch in data.test_dataloader()])
    for mode, same in model.fidelity(scores).items():
        assert trainer.callback_metrics[f"fidelity/{mode}"].item() == pytest.approx(same.float().mean().item())


# -- leaves ----------------------------------------------------------------------------------------------------------
class Replay(Callback):
    """Updates the leaves by the formula of the paper, in float64 and with loops, from what the model saw."""

    def __init__(self):
        self.leaves = self.start = None
        self.largest = 0.0

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if self.leaves is None:
            self.leaves = pl_module.tree.leaf_logits.double()
        if batch_idx == 0:
            self.start = self.leaves.clone()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        tree, target = pl_module.tree, batch.get("class_targets", F.one_hot(batch["label"], 8)).double()
        reach = tree.log_reach(pl_module._step_scores).double().exp()
        share = self.leaves.softmax(dim=1)
        added = torch.zeros_like(self.leaves)
        for image in range(len(reach)):
            mixture = reach[image] @ share
            for leaf in range(len(share)):
                added[leaf] += reach[image, leaf] * share[leaf] * target[image] / mixture
        self.leaves = (self.leaves - self.start / STEPS).clamp(min=0) + added
        self.largest = max(self.largest, (self.leaves - tree.leaf_logits.double()).abs().max().item())


@pytest.mark.parametrize(
    ("part_removal", "options"),  # hard and soft targets
    [(0.0, {}), (0.5, {}), (0.0, {"accumulate_grad_batches": 2}), (0.5, {"precision": "bf16-mixed"})],
    ids=str,
)
def test_leaves_learn_once_per_batch(part_removal, options):
    replay = Replay()
    model = make(num_classes=8, phases=PLAN)
    fit(model, replay, data=tiny_birds(part_removal=part_removal), max_epochs=3, **options)
    assert replay.largest < 1e-4
    assert model.tree.leaf_logits.max() > 0.1
    total = model.tree.leaf_logits.sum()
    assert total.item() == pytest.approx(24, abs=2)  # every image of the last epoch gave 1; little was cut at zero


def test_the_loss_is_the_negative_log_likelihood():
    model = grown().train()
    labels = torch.tensor([0, 3, 1])
    losses = []
    for loss in (
        lambda logits: model.loss_terms()["cross_entropy"](SimpleNamespace(logits=logits), {"label": labels}),
        lambda logits: -logits[torch.arange(3), labels].mean(),
    ):
        model.zero_grad()
        value = loss(model(images()).logits)
        value.backward()
        losses.append((value, model.prototypes.vectors.grad.clone()))
    close(losses[0], losses[1], rtol=1e-4, atol=1e-6)


def test_looking_teaches_the_leaves_nothing():
    model = make(num_classes=8, phases=PLAN)
    fit(model, max_epochs=1)
    before = state_hash(model)
    trainer = tiny_trainer()
    trainer.callbacks = trainer.callbacks[1:]
    trainer.validate(model, datamodule=tiny_birds(), verbose=False)
    trainer.test(model, datamodule=tiny_birds(), verbose=False)
    assert state_hash(model) == before


# -- resume ----------------------------------------------------------------------------------------------------------
def run(folder, ckpt_path=None, kill=None, **options):
    """One process's life; returns the checkpoint it leaves."""
    model = make(num_classes=8, phases=PLAN)
    callbacks = [Interpretability(), RunCheckpoint(), *([StopAt(kill, "on_train_batch_end")] if kill else [])]
    try:
        fit(model, *callbacks, ckpt_path=ckpt_path, default_root_dir=folder, **options)
    except StopError:
        assert kill
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    return run(tmp_path_factory.mktemp("straight"))


@pytest.mark.parametrize("cut", [{"max_epochs": 1}, {"kill": STEPS + 1}], ids=str)
def test_a_resumed_run_ends_as_one_that_was_not_cut(tmp_path, straight, cut):
    """Cut in the first and the last epoch in ``tests/slow``."""
    assert_same_end(tmp_path, straight, cut)


def assert_same_end(tmp_path, straight, cut):
    assert run(tmp_path, **cut)["global_step"] < straight["global_step"]
    resumed = run(tmp_path, ckpt_path=tmp_path / "checkpoints" / "last.ckpt")
    for part in ("epoch", "global_step", "state_dict", "optimizer_states", "lr_schedulers", "callbacks"):
        assert differences(resumed[part], straight[part]) == []


class Requeue(Callback):
    """Saves in the middle of an epoch, as a cluster asks for, and stops."""

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step == STEPS + 1:
            trainer.save_checkpoint(f"{trainer.default_root_dir}/middle.ckpt", weights_only=False)
            raise InterruptedError


class Starts(Callback):
    """The start of the epoch that every step knows."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.seen.append(pl_module.tree.epoch_leaf_logits.clone())


def test_a_run_resumed_in_the_middle_of_an_epoch_knows_its_start(tmp_path):
    with pytest.raises(InterruptedError):
        fit(make(num_classes=8, phases=PLAN), Requeue(), default_root_dir=tmp_path)
    saved = torch.load(tmp_path / "middle.ckpt", weights_only=True)["state_dict"]
    assert (saved["tree.epoch_leaf_logits"] > 0).any()
    assert not torch.equal(saved["tree.epoch_leaf_logits"], saved["tree.leaf_logits"])
    starts = Starts()
    fit(make(num_classes=8, phases=PLAN), starts, ckpt_path=tmp_path / "middle.ckpt", default_root_dir=tmp_path)
    assert torch.equal(starts.seen[0], saved["tree.epoch_leaf_logits"])
    assert not torch.equal(starts.seen[-1], saved["tree.epoch_leaf_logits"])


# -- pruning and projection ------------------------------------------------------------------------------------------
def knowing(*leaves, **options) -> ProtoTree:
    """Only these of 8 leaves know a class: leaf i class i."""
    model = make(num_classes=8, **options)
    with torch.no_grad():
        for leaf in leaves:
            model.tree.leaf_logits[leaf, leaf] = 5.0
    return model


def test_pruning_reports_and_deactivates():
    """Nodes 0 1 3 decide between the leaves 0 1 2 7; see test_tree.py."""
    model = knowing(0, 1, 2, 7)
    assert model.prune_tree(None) == {"nodes_before": 7, "nodes_after": 3, "leaves_before": 8, "leaves_after": 4}
    table = model.units()
    assert table.active.nonzero().flatten().tolist() == [0, 1, 3]
    assert not table.owner[~table.active].any()
    assert table.owner.nonzero().tolist() == [[0, 0], [0, 1], [0, 2], [0, 7], [1, 0], [1, 1], [1, 2], [3, 0], [3, 1]]
    with torch.no_grad():
        output = model(images())
    assert (output.scores[:, ~table.active] == 0).all()
    assert (output.maps[:, ~table.active] > 0).all()
    assert torch.equal(model.head(output.scores), output.logits)
    for label in range(8):
        shares = model.contributions(output, torch.full((3,), label))
        assert (shares[:, ~table.active] == 0).all()


@pytest.mark.parametrize(("classes", "options", "threshold"), [
    (2, {}, 0.75),  # between chance and certainty
    (3, {}, 2 / 3),
    (8, {}, 0.25),  # 2/K
    (200, {"depth": 8}, 0.01),  # both
    (400, {"depth": 9}, 0.01),  # the original's
    (8, {"prune_threshold": 0.5}, 0.5),
])  # fmt: skip
def test_threshold_of_pruning(classes, options, threshold):
    assert make(num_classes=classes, **options).prune_threshold == pytest.approx(threshold)


def test_a_tree_that_knows_nothing_is_not_pruned():
    model = knowing()
    with pytest.warns(UserWarning, match=r"No leaf gives any class more than 0\.25: the tree is not pruned"):
        report = model.prune_tree(None)
    assert report["nodes_after"] == 7
    assert model.units().active.all()


def test_projection_leaves_out_what_is_cut():
    model = knowing(0, 1, 2, 7)
    model.prune_tree(None)
    before, data = model.prototypes.vectors.clone(), tiny_birds()
    nearest = nearest_patches(model, data.projection_dataloader(), model.device)
    project(SimpleNamespace(datamodule=data), model)
    table = model.units()
    assert torch.equal(model.prototypes.vectors[~table.active], before[~table.active])
    assert not table.source.found[~table.active].any()
    result = table.source.found
    assert torch.equal(result, table.active & torch.isfinite(nearest.distance))
    assert result.any()
    labels = table.source.label
    assert all(table.owner[unit, labels[unit]] for unit in result.nonzero().flatten())
    assert set(labels[1:4][result[1:4]].tolist()) <= {0, 1, 2}  # below node 1 there are no others


def test_a_projected_prototype_is_its_patch():
    model, data = knowing(*range(8)), tiny_birds()
    project(SimpleNamespace(datamodule=data), model)
    source = model.units().source
    by_key = {int(key): image for batch in data.projection_dataloader() for key, image in
              zip(batch["sample_key"], batch["image"], strict=True)}  # fmt: skip
    for unit in source.found.nonzero().flatten().tolist():
        with torch.no_grad():
            output = model(by_key[int(source.sample_key[unit])][None])
        assert output.scores[0, unit].item() == pytest.approx(1, abs=1e-3)
        assert output.maps[0, unit].flatten().argmax() == source.row[unit] * 4 + source.col[unit]


def test_a_run_ends_pruned_then_projected():
    class Order(Callback):
        names: list = []  # noqa: RUF012

        def on_action_end(self, trainer, module, action, report):
            Order.names.append((trainer.current_epoch, action))

    model = fit(make(num_classes=8, phases=PLAN, prune_threshold=0.0), Order())
    assert Order.names == [
        *((0, "sample_patches"), (1, "project"), (3, "project"), (3, "prune_tree"), (3, "project")),
    ]
    assert model.units().source.found.any()


HEAD_ONLY = {"epochs": 1, "trainable": {"head": 0.1}, "losses": {"multilabel_margin": 1.0}}


# -- multilabel ------------------------------------------------------------------------------------------------------
def test_several_labels_have_leaves_with_a_rate_and_no_pruning():
    plain, several = make(), make(task="multilabel")
    assert "head" not in plain.parameter_groups()
    assert several.parameter_groups()["head"] == [several.tree.leaf_logits]
    for phase, other in zip(plain.plan.phases, several.plan.phases, strict=True):
        assert other.trainable == phase.trainable | {"head": phase.trainable["prototypes"]}
        assert other.on_exit == tuple(a for a in phase.on_exit if a != "prune_tree")
        assert list(other.losses) == ["multilabel_margin"]
    asked = {"warm": {"on_enter": ["prune_tree", "project"]}, "last": HEAD_ONLY}
    phases = make(task="multilabel", phases=asked, preset="sketch").plan.phases
    assert (phases[0].on_enter, phases[-1].trainable) == (("project",), HEAD_ONLY["trainable"])
    rates = make(task="multilabel", phases={"warm": {"trainable": {"head": 0.5}}}, preset="sketch").plan.phases[0]
    assert rates.trainable["head"] == 0.5
    with pytest.raises(ValueError, match="Expected `task` to be multiclass to prune the tree"):
        several.prune_tree(None)


def test_several_labels_by_definition():
    model = grown(task="multilabel")
    with torch.no_grad():
        output = model(images())
    reach = model.tree.log_reach(output.scores).double().exp()
    expected = reach @ model.tree.leaf_logits.detach().double().sigmoid()
    close(model.probabilities(output.logits).double(), expected, rtol=1e-4, atol=1e-6)


# -- plans, groups, bad input ----------------------------------------------------------------------------------------
def test_published_schedule():
    freeze, train = ProtoTree.presets["original"].phases
    assert (freeze.epochs, train.epochs) == (30, 70)
    assert freeze.trainable == {"backbone_last": 1e-3, "addon": 1e-3, "prototypes": 1e-3}
    assert train.trainable == freeze.trainable | {"backbone": 1e-5}
    assert freeze.optimizer == train.optimizer
    assert (train.optimizer.name, train.optimizer.kwargs) == ("AdamW", {"weight_decay": 0.0, "eps": 1e-7})
    milestones = [freeze.epochs + epoch for epoch in train.scheduler.kwargs["milestones"]]
    assert (milestones, train.scheduler.kwargs["gamma"]) == ([60, 70, 80, 90, 100], 0.5)


@pytest.mark.parametrize("preset", ProtoTree.presets)
def test_every_preset_ends_pruned_and_projected(preset):
    *earlier, last = ProtoTree.presets[preset].phases
    assert last.on_exit == ("prune_tree", "project")
    assert not any("prune_tree" in (*phase.on_enter, *phase.on_exit) for phase in earlier)


def test_the_backbone_has_two_groups():
    groups = make().parameter_groups()
    assert list(groups) == ["backbone", "backbone_last", "addon", "prototypes"]
    names = {id(p): name for name, p in make().backbone.net.named_parameters()}
    assert len(groups["backbone"]) + len(groups["backbone_last"]) == len(names)


def test_frozen_blocks_keep_their_statistics():
    model = make(preset="original")
    model.enter_phase(0)
    modes = {name: part.training for name, part in model.backbone.net.named_modules() if isinstance(part, _BatchNorm)}
    assert modes == {"block1.1": False, "block2.1": False, "block3.1": False, "block4.1": True}
    model.enter_phase(1)
    assert all(part.training for part in model.modules() if isinstance(part, _BatchNorm))


@pytest.mark.parametrize(("options", "message"), [
    ({"num_classes": 9}, r"`depth` to be at least 4, which gives one leaf to each of the 9 .*, but got 3.* 8 leaves"),
    ({"depth": 0}, "`depth` to be at least 2, which"),
    ({"prototype_channels": 0}, "`prototype_channels` to be at least 1, but got 0"),
    ({"depth": 45}, "`depth` to be at most 20, but got 45"),
    ({"prune_threshold": -0.1}, r"`prune_threshold` to be null or in \[0, 1\), but got -0.1"),
    ({"prune_threshold": math.nan}, r"`prune_threshold` to be null or in \[0, 1\), but got nan"),
    ({"inference": "best"}, "`inference` to be one of .*sample_max.*, but got 'best'"),
])  # fmt: skip
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=f"Expected argument {message}"):
        make(**options)


def test_eight_classes_fit_into_eight_leaves():
    assert make(num_classes=8).tree.leaf_logits.shape == (8, 8)
