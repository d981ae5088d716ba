"""PIPNet: what only this model has; everything common is in ``test_contract.py``."""

from __future__ import annotations

import io
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning import Callback
from torch.optim.lr_scheduler import CosineAnnealingLR, CosineAnnealingWarmRestarts, OneCycleLR

from protometry.callbacks import Interpretability
from protometry.callbacks.phases.phase_schedule import ACTIONS
from protometry.callbacks.phases.pruning import ignore_silent
from protometry.callbacks.phases.ranks import state_hash
from protometry.lightning_modules import Classifier
from protometry.lightning_modules.bases.losses import alignment, cross_entropy, multilabel_margin, tanh_uniformity
from protometry.lightning_modules.phases import PhasePlan, SchedulerSpec
from protometry.lightning_modules.pipnet import PIPNet, paired
from protometry.metrics import CalibrationError
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import tiny_birds, tiny_trainer

SIZE = (32, 32)
close = torch.testing.assert_close


def make(**options) -> PIPNet:
    torch.manual_seed(0)
    return PIPNet(**({"num_classes": 3, "image_size": SIZE, "num_features": 6} | options))


def images(batch=2, seed=1):
    return torch.rand(batch, 3, *SIZE, generator=torch.Generator().manual_seed(seed))


def training_batch(size=4) -> dict[str, Any]:
    return {"image": images(size), "second_view": images(size, 2), "label": torch.arange(size) % 3}


def birds(**changes):
    return tiny_birds(**({"train_size": 16} | changes))


def fitted(model, *callbacks, data=None, **options):
    trainer = tiny_trainer(*callbacks, limit_val_batches=1, **options)
    trainer.fit(model, datamodule=data or birds())
    return trainer


def short(*names, epochs=1, **options):
    """A backbone from scratch with a few epochs of each named phase of the original schedule."""
    phases = {p.name: {"epochs": epochs} if p.name in names else None for p in PIPNet.presets["original"].phases}
    return make(num_classes=8, preset="original", phases=phases, **options)


# -- the loss terms --------------------------------------------------------------------------------------------------
def test_terms_see_the_first_half_as_one_view_and_the_second_as_the_other():
    model, batch = make(), paired(training_batch())
    model.enter_phase(0)
    output = model(batch["image"])
    terms = {name: term(output, batch).item() for name, term in model.loss_terms().items()}
    maps, pooled = output.maps, output.extras["pooled"]
    assert terms["alignment"] == pytest.approx(alignment(maps[:4], maps[4:]).item())
    assert terms["tanh_uniformity"] == pytest.approx(tanh_uniformity(pooled[:4], pooled[4:]).item())
    probability = (1 + output.logits.double() ** 2) / (1 + output.logits.double() ** 2).sum(1, keepdim=True)
    picked = probability[torch.arange(8), batch["label"]]
    assert terms["pipnet_class"] == pytest.approx(-picked.log().mean().item(), rel=1e-5)


def test_class_loss_takes_soft_targets():
    model = make()
    targets = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    batch = paired(
        {"image": images(), "second_view": images(), "label": torch.tensor([0, 2]), "class_targets": targets}
    )
    output = model(batch["image"])
    logs = model.probabilities(output.logits).log()
    value = model.loss_terms()["pipnet_class"](output, batch).item()
    assert value == pytest.approx(-(torch.cat([targets, targets]) * logs).sum(1).mean().item(), rel=1e-5)


@pytest.mark.parametrize("several", [False, True])
def test_class_loss_weighs_classes_and_takes_several_labels(several):
    """Class c of the weighted cross-entropy counts w_c times; several labels have the margin, on log1p(o²) too."""
    options = {"task": "multilabel"} if several else {"class_weights": True}
    model, labels = make(**options), torch.tensor([[True, False, True], [False, True, False]])
    batch = paired({"image": images(), "second_view": images(), "label": torch.tensor([0, 2]), "labels": labels})
    output = model(batch["image"])
    logits = (1 + output.logits.square()).log()
    if several:
        expected = multilabel_margin(logits, torch.cat([labels, labels]))
    else:
        model.class_weights.copy_(torch.tensor([0.5, 1.0, 3.0]))
        picked = -logits.log_softmax(1)[torch.arange(4), batch["label"]]
        expected = (picked * torch.tensor([0.5, 3.0, 0.5, 3.0])).mean()
        assert expected != cross_entropy(logits, batch["label"])
    close(model.loss_terms()["pipnet_class"](output, batch), expected)


def test_probabilities_of_several_labels():
    """O = (0, 1): sigmoid(log(1 + o²)) = (1/2, 2/3)."""
    close(make(task="multilabel").probabilities(torch.tensor([[0.0, 1.0]])), torch.tensor([[1 / 2, 2 / 3]]))


# -- the decision ------------------------------------------------------------------------------------------------------
def test_forward_follows_the_definition():
    model, pictures = make(score_threshold=0.0).eval(), images()
    model.linear.weight.data[0, 1] = -0.5
    with torch.no_grad():
        output, features = model(pictures), model.addon(model.backbone(pictures))
    assert torch.equal(output.maps, features.softmax(1))
    close(output.maps.sum(1), torch.ones(2, 4, 4))
    assert torch.equal(output.scores, output.maps.flatten(2).max(2).values)
    weight = model.linear.weight.detach().clone()
    weight[0, 1] = 0.0
    assert (weight[1:] > 0).all()
    close(output.logits, output.scores @ weight.T)
    assert torch.equal(model.units().weight, weight)
    assert PIPNet(num_classes=2, image_size=SIZE)(pictures).scores.shape == (2, 128)


def pooled_model(model, pooled):
    """The model, seeing the given largest values instead of images (two units: one cell each, rows sum to 1)."""
    model.backbone.forward = lambda _: torch.tensor(pooled)[:, :, None, None].log()
    model.addon = torch.nn.Identity()
    return model


def test_threshold_and_abstention_at_inference_only():
    """Channels .07, .93 with the threshold 0.1: the first is dropped, and no class weighs the second."""
    model = pooled_model(make(num_classes=2, num_features=2), [[0.07, 0.93], [0.93, 0.07]])
    model.linear.weight.data = torch.tensor([[2.0, 0.0], [0.0, 0.0]])
    trained, evaluated = model.train()(images()), model.eval()(images())
    close(trained.scores, torch.tensor([[0.07, 0.0], [0.93, 0.0]]))
    close(evaluated.scores, torch.tensor([[0.0, 0.0], [0.93, 0.0]]))
    close(evaluated.extras["pooled"], torch.tensor([[0.07, 0.93], [0.93, 0.07]]))
    assert evaluated.extras["abstain"].tolist() == [True, False]
    close(evaluated.logits, torch.tensor([[0.0, 0.0], [1.86, 0.0]]))
    assert model.units().active.tolist() == [True, False]


@pytest.mark.parametrize("threshold", [0.9, 0.0])
def test_abstentions_count_as_wrong_and_are_reported(threshold):
    """With a threshold no score reaches, all logits are 0, and the arg-max of that is class 0."""
    model = make(num_classes=8, score_threshold=threshold).eval()
    metrics = run_engine(Interpretability(["general"]), model, tiny_birds()).metrics
    share = 1.0 if threshold else 0.0
    assert metrics["general/abstention"]["value"] == share
    assert metrics["general/calibration_error"]["n"] == (1 - share) * metrics["general/accuracy"]["n"]
    assert not share or metrics["general/accuracy"]["value"] == metrics["general/top3_accuracy"]["value"] == 0
    other = Classifier(num_classes=8, image_size=SIZE).eval()
    reason = "abstention: the model decides on every image"
    assert run_engine(Interpretability(["general"]), other, tiny_birds()).skipped == {"general/abstention": reason}


def test_its_own_probabilities_are_judged():
    """Not the softmax of its logits."""
    model, data = make(num_classes=8).eval(), tiny_birds(test_size=9, eval_batch_size=9)
    model.linear.weight.data *= 20
    entry = run_engine(Interpretability(["general"]), model, data).metrics["general/calibration_error"]
    own, plain = CalibrationError(), CalibrationError()
    (batch,) = data.test_dataloader()
    with torch.inference_mode():
        output = model(batch["image"])
        own.update(model.probabilities(output.logits), batch["label"])
        plain.update(output.logits.softmax(dim=1), batch["label"])
    assert (entry["value"], entry["n"]) == (pytest.approx(own.compute().item()), 9)
    assert abs(plain.compute() - own.compute()) > 0.01


def test_a_score_on_the_threshold_stays():
    model = pooled_model(make(num_classes=2, num_features=2, score_threshold=0.5), [[0.5, 0.5]]).eval()
    assert (model(images(1)).scores > 0).all()


def test_probabilities_by_hand():
    """O = (0, 1, 3): 1 + o² = (1, 2, 10); with the exponent 3, 1 + o³ = (1, 2, 28)."""
    model, logits = make(), torch.tensor([[0.0, 1.0, 3.0]])
    close(model.probabilities(logits), torch.tensor([[1 / 13, 2 / 13, 10 / 13]]))
    model.exponent.data.fill_(3.0)
    close(model.probabilities(logits), torch.tensor([[1 / 31, 2 / 31, 28 / 31]]))


def test_owner_is_the_threshold_of_compactness():
    model = make(num_classes=2, num_features=4)
    model.linear.weight.data = torch.tensor([[0.0, 1e-3, 2e-3, -5.0], [0.0, 0.0, 1.0, 0.0]])
    table = model.units()
    assert table.active.tolist() == [False, True, True, False]
    assert table.owner.tolist() == [[False, False], [False, False], [True, True], [False, False]]
    assert (table.weight >= 0).all()
    assert table.vectors is table.source is None


def test_a_saved_model_comes_back_with_its_threshold():
    model, file = make(score_threshold=0.3).eval(), io.BytesIO()
    model.linear.weight.data[:, 2] = 0.0
    torch.save(model.state_dict(), file)
    file.seek(0)
    again = make().eval()
    again.load_state_dict(torch.load(file, weights_only=True), strict=True)
    first, second = model(images()), again(images())
    assert again.score_threshold.item() == pytest.approx(0.3)
    assert again.units().active.tolist() == [True, True, False, True, True, True]
    assert torch.equal(first.scores, second.scores)
    assert torch.equal(first.logits, second.logits)


# -- training ----------------------------------------------------------------------------------------------------------
class Weights(Callback):
    """The head before the optimiser's step, and after it and everything that follows."""

    def __init__(self):
        self.heads, self.phases, self.losses = [], [], []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.heads.append(pl_module.linear.weight.detach().clone())
        self.phases.append(pl_module.phase.name)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        assert (pl_module.linear.weight >= 0).all()
        self.losses.append(outputs["loss"].item())


def test_a_backbone_that_ends_early_is_trained_without_its_last_section():
    model = make(backbone={"name": "sketch", "until": "block3"}, phases={"train": {"epochs": 1}})
    assert set(model.plan.phases[0].trainable) == {"stem", "backbone_early", "backbone", "addon", "head"}


def test_proximal_step_follows_the_optimiser_in_phases_of_the_head_only():
    """With a rate of 0 the head moves by the proximal step alone: 0.001 per step, never below 0."""
    model, watch = short("pretrain", "head"), Weights()
    model.plan = model.plan.override({"head": {"trainable": {"head": 0.0}, "scheduler": None}})
    model.linear.weight.data[0] = 0.0015
    before = model.linear.weight.detach().clone()
    fitted(model, watch)
    assert watch.phases == ["pretrain"] * 2 + ["head"] * 2
    assert torch.equal(watch.heads[2], before)  # pretraining leaves it alone
    close(watch.heads[3], before - 1e-3)
    close(model.linear.weight.detach(), (before - 2e-3).clamp(min=0))
    assert (model.linear.weight[0] == 0).all()
    assert all(math.isfinite(loss) for loss in watch.losses)


def test_the_head_shrinks_once_more_before_epochs_30_and_60():
    """Two steps, the extra one of the released code, two steps and a last extra one: 0.006 in all."""
    model, watch = short("full", "full_from_30", "full_from_60"), Weights()
    still = {"trainable": {"head": 0.0}, "scheduler": None}
    model.plan = model.plan.override({phase.name: still for phase in model.plan.phases})
    before = model.linear.weight.detach().clone()
    fitted(model, watch)
    for step, taken in enumerate((0, 1, 3, 4, 6, 7)):
        close(watch.heads[step], before - taken * 1e-3)


def test_units_that_no_training_image_shows_lose_their_weights():
    """Largest scores 0.09, 0.2, 0.8 and 0.05: the first is dropped, the last is ignored by all classes already."""
    scores = iter(([[0.09, 0.11, 0.77, 0.03]], [[0.04, 0.2, 0.71, 0.05]]))
    model = make(num_classes=2, num_features=4)
    model.backbone.forward = lambda _: torch.tensor(next(scores))[:, :, None, None].log()
    model.addon = torch.nn.Identity()
    model.linear.weight.data = torch.tensor([[0.5, 0.5, 0.0, 1e-3], [0.0, 0.0, 2.0, 0.0]])
    data = SimpleNamespace(projection_dataloader=lambda: [{"image": images(1)}] * 2)
    assert ignore_silent(SimpleNamespace(datamodule=data), model) == {"kept": 2.0, "ignored": 1.0}
    close(model.linear.weight.data, torch.tensor([[0.0, 0.5, 0.0, 1e-3], [0.0, 0.0, 2.0, 0.0]]))


@pytest.mark.parametrize(("rate", "expected"), [(None, 2.0), (0.05, 1.9), (5.0, 1.0)])
def test_the_exponent_is_trained_where_the_plan_says_and_stays_at_least_one(rate, expected):
    """Adam's two steps are about as long as its rate."""
    model = make(num_classes=8, preset="quanproto")
    assert model.plan.phases[1].trainable["exponent"] == model.plan.phases[1].trainable["head"] == 0.05
    model.plan = model.plan.override({"warm": None, "joint": {"epochs": 1, "trainable": {"exponent": rate}}})
    fitted(model)
    assert model.exponent.item() == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("preset", "epochs", "peak"), [("sketch", {"train": 3}, 0.3), ("pretrained", {"train": 2, "end": 1}, 0.6)]
)
def test_under_one_cycle_the_proximal_step_follows_the_rate(preset, epochs, peak):
    """Without losses the head moves by the proximal step alone: ``shrinkage`` times rate over greatest rate."""
    silent = dict.fromkeys(("alignment", "tanh_uniformity", "pipnet_class"), 0.0)
    phases = {name: {"epochs": count, "losses": silent} for name, count in epochs.items()}
    model = make(num_classes=8, preset=preset, phases=phases, shrinkage=2e-2)
    assert [phase.selectable for phase in model.plan.phases] == [*[False] * (len(phases) - 1), True]
    watch, before = Weights(), model.linear.weight.detach().clone()
    fitted(model, watch)
    rates = OneCycleLR(torch.optim.SGD([torch.zeros(1, requires_grad=True)]), max_lr=1.0, total_steps=6, pct_start=peak)
    shares = []
    for _ in range(6):
        shares.append(rates.get_last_lr()[0])
        rates.optimizer.step()
        if len(shares) < 6:
            rates.step()
    assert max(shares) > 0.9
    assert shares[-1] < 1e-5
    taken = torch.tensor(shares, dtype=torch.float64).cumsum(0)
    for step, head in enumerate([*watch.heads[1:], model.linear.weight.detach()]):
        close(head, (before - 2e-2 * taken[step].item()).clamp(min=0))


def test_accumulated_batches_have_one_proximal_step():
    model = short("head", shrinkage=5e-3)
    model.plan = model.plan.override({"head": {"trainable": {"head": 0.0}, "scheduler": None}})
    before = model.linear.weight.detach().clone()
    fitted(model, accumulate_grad_batches=2)
    close(model.linear.weight.detach(), before - 5e-3)


def test_evaluation_never_changes_weights():
    """Regression: the proximal step belongs to training."""
    model, data = short("head"), birds()
    model.enter_phase(0)  # a phase that trains the head
    before = state_hash(model)
    trainer = tiny_trainer()
    trainer.validate(model, datamodule=data, verbose=False)
    trainer.test(model, datamodule=data, verbose=False)
    with torch.no_grad():
        model.eval()(images())
    assert state_hash(model) == before


@pytest.mark.parametrize(
    ("index", "trained"),
    [
        (0, {"backbone", "backbone_last", "addon"}),
        (1, {"head"}),
        (2, {"backbone", "backbone_last", "addon", "head"}),
        (3, {"backbone_early", "backbone", "backbone_last", "addon", "head"}),
    ],
)
def test_the_freezing_schedule_reaches_every_parameter(index, trained):
    """Regression: ``module.requires_grad = False`` freezes nothing. BatchNorm moves only where its group learns."""
    model = make(preset="original")
    model.enter_phase(index)
    for name, members in model.parameter_groups().items():
        assert {p.requires_grad for p in members} == {name in trained}, name
    for name, block in zip(("stem", "backbone_early", "backbone", "backbone_last"), model.backbone.net, strict=True):
        assert block[1].training == (name in trained), name


def test_original_schedule():
    phases = PIPNet.presets["original"].phases
    assert [(p.name, p.epochs, p.losses) for p in phases] == [
        ("pretrain", 10, {"alignment_ramp": 1.0, "tanh_uniformity": 5.0}),
        ("head", 3, {"pipnet_class": 2.0}),
        ("partial", 7, {"alignment": 5.0, "tanh_uniformity": 2.0, "pipnet_class": 2.0}),
        ("full", 19, {"alignment": 5.0, "tanh_uniformity": 2.0, "pipnet_class": 2.0}),
        ("full_from_30", 30, {"alignment": 5.0, "tanh_uniformity": 2.0, "pipnet_class": 2.0}),
        ("full_from_60", 1, {"alignment": 5.0, "tanh_uniformity": 2.0, "pipnet_class": 2.0}),
    ]
    net = {"backbone": 5e-4, "backbone_last": 5e-4, "addon": 5e-3}
    rates = [net, {"head": 0.05}, net | {"head": 0.05}, *[net | {"backbone_early": 5e-4, "head": 0.05}] * 3]
    assert [p.trainable for p in phases] == rates
    assert [p.selectable for p in phases] == [False] * 5 + [True]
    assert [(*p.on_enter, *p.on_exit) for p in phases[4:]] == [("shrink_head",), ("shrink_head", "ignore_silent")]
    assert {(p.optimizer.name, p.optimizer.kwargs["weight_decay"]) for p in phases} == {("AdamW", 0.0)}


def test_the_alignment_ramp_rises_over_the_phase(monkeypatch):
    """10 pretraining epochs: a tenth in the first, all of it in the last."""
    model, batch = make(preset="original"), paired(training_batch())
    model.enter_phase(0)
    model.eval()
    output = model(batch["image"])
    whole = model.loss_terms()["alignment"](output, batch).item()
    for epoch, share in ((0, 0.1), (4, 0.5), (9, 1.0)):
        monkeypatch.setattr(PIPNet, "current_epoch", epoch)
        assert model.loss_terms()["alignment_ramp"](output, batch).item() == pytest.approx(share * whole, rel=1e-6)
    model.plan = PhasePlan((model.plan.phases[1], model.plan.phases[0]))  # 3 epochs of another phase first
    model.phase_index = 1
    monkeypatch.setattr(PIPNet, "current_epoch", 4)
    assert model.loss_terms()["alignment_ramp"](output, batch).item() == pytest.approx(0.2 * whole, rel=1e-6)


def released_rates(epochs, frozen, restart, steps=2):
    """The rates at every step of the second stage, by the two optimisers and schedulers of the released code."""
    groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (5e-4, 5e-3, 0.05)]
    net, head = torch.optim.AdamW(groups[:2]), torch.optim.AdamW(groups[2:])
    cosine = CosineAnnealingLR(net, epochs * steps, eta_min=5e-6)
    restarts = CosineAnnealingWarmRestarts(head, restart, eta_min=1e-3)
    for epoch in range(epochs):
        for step in range(steps):
            backbone, addon = (group["lr"] for group in net.param_groups)
            rates = {"backbone_early": backbone, "backbone": backbone, "backbone_last": backbone, "addon": addon}
            yield rates | {"head": head.param_groups[0]["lr"]}
            head.step()
            restarts.step(epoch + step / steps)
            if epoch >= frozen:
                net.step()
                cosine.step()


class Rates(Callback):
    """The learning rates of every step."""

    def __init__(self):
        self.table = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.table.append({group["name"]: group["lr"] for group in trainer.optimizers[0].param_groups})


def test_rates_of_the_stage_are_those_of_the_released_code():
    """The head starts again every 10 epochs; the net waits 3 epochs, then falls along the cosine of 60 epochs."""
    model, table = make(preset="original"), []
    model.steps_per_epoch = lambda: 2
    for index, epochs in ((1, 3), (2, 7), (3, 50)):  # the last three phases have one optimiser and one scheduler
        model.enter_phase(index)
        built = model.configure_optimizers()
        assert built["lr_scheduler"]["interval"] == "step"
        for _ in range(2 * epochs):
            table.append({group["name"]: group["lr"] for group in built["optimizer"].param_groups})
            built["optimizer"].step()
            built["lr_scheduler"]["scheduler"].step()
    for row, rates in zip(table, released_rates(60, frozen=3, restart=10), strict=True):
        assert row == pytest.approx({name: rates[name] for name in row}, rel=1e-6)
    assert [len(table[step]) for step in (0, 5, 6, 19, 20, 119)] == [1, 1, 4, 4, 5, 5]
    assert table[6]["addon"] == 5e-3  # the full rate in the first epoch after three of the head alone
    assert table[119]["addon"] == pytest.approx(5e-6 + 4.995e-3 * (1 + math.cos(math.pi * 113 / 120)) / 2)


def test_rates_go_on_over_the_phases_of_a_run():
    """A tenth of the epochs, in a run: 1 of pretraining, then 1, 1, 2, 3 and 1 with a restart every epoch."""
    watch = Rates()
    fitted(make(num_classes=8, preset="original", epoch_scale=0.1), watch)
    for row, rates in zip(watch.table[2:], released_rates(8, frozen=1, restart=1), strict=True):
        assert row == pytest.approx({name: rates[name] for name in row}, rel=1e-6)


def test_other_schedulers_are_those_of_the_plan():
    model = make(preset="original")
    model.plan = model.plan.override({"full": {"scheduler": SchedulerSpec("StepLR", {"step_size": 1, "gamma": 0.5})}})
    model.enter_phase(3)
    assert model.configure_optimizers()["lr_scheduler"]["interval"] == "epoch"
    model.plan = model.plan.override({"full": {"scheduler": None}})
    assert isinstance(model.configure_optimizers(), torch.optim.AdamW)


def test_a_run_resumed_within_the_stage_is_the_straight_run(tmp_path):
    """Two epochs of ``full_from_30``, interrupted after the first: rates, moments and weights go on where they were."""
    straight, interrupted, resumed = (short("head", "full", "full_from_30", epochs=2) for _ in range(3))
    fitted(straight)
    fitted(interrupted, max_epochs=5).save_checkpoint(tmp_path / "last.ckpt")
    assert state_hash(interrupted) != state_hash(straight)
    tiny_trainer(limit_val_batches=1).fit(resumed, datamodule=birds(), ckpt_path=tmp_path / "last.ckpt")
    assert state_hash(resumed) == state_hash(straight)


def test_unfreezing_keeps_the_moments_of_the_head():
    """Two steps of the head, then two of everything, in one AdamW as in the released code."""
    state = fitted(short("head", "partial")).optimizers[0].state_dict()
    steps = {
        group["name"]: {int(state["state"][i]["step"]) for i in group["params"]} for group in state["param_groups"]
    }
    assert steps == {"backbone": {2}, "backbone_last": {2}, "addon": {2}, "head": {4}}


def test_dead_classes_are_counted():
    model = short("head")
    model.linear.weight.data[[1, 4]] = 0.0
    assert fitted(model).callback_metrics["train/dead_classes"].item() == 2


# -- groups ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("backbone", "first"),
    [
        ("resnet18", {"backbone_early": "layer2.", "backbone": "layer3.", "backbone_last": "layer4.0."}),
        ("resnet50", {"backbone_early": "layer2.", "backbone": "layer3.", "backbone_last": "layer4.2."}),
        ("bagnet9", {"backbone_early": "layer2.", "backbone": "layer3.", "backbone_last": "layer4.2."}),
        ("mobilenet_v2", {"backbone_early": "features.4.", "backbone": "features.7.", "backbone_last": "features.17."}),
        ("vgg19", {"backbone_early": "features.10.", "backbone": "features.19.", "backbone_last": "features.34."}),
        (
            "densenet169",
            {
                "backbone_early": "features.transition1.",
                "backbone": "features.transition2.",
                "backbone_last": "features.denseblock4.",
            },
        ),
        (
            "convnext_tiny",
            {"backbone_early": "features.0.", "backbone": "features.6.", "backbone_last": "features.7.2."},
        ),
        ("sketch", {"backbone_early": "block2.", "backbone": "block3.", "backbone_last": "block4."}),
    ],
)
def test_backbones_are_cut_at_named_stages(backbone, first):
    with torch.device("meta"):
        model = PIPNet(num_classes=2, image_size=(64, 64), backbone={"name": backbone}, preset="quanproto")
    names = {id(p): name for name, p in model.backbone.net.named_parameters()}
    groups = model.parameter_groups()
    stem = [] if backbone == "convnext_tiny" else ["stem"]
    assert list(groups) == [*stem, "backbone_early", "backbone", "backbone_last", "head", "exponent"]
    for group, stage in first.items():
        assert names[id(groups[group][0])].startswith(stage)
    ordered = [id(p) for group in (*stem, *first) for p in groups[group]]
    assert ordered == [id(p) for p in model.backbone.net.parameters()]
    assert set(model.plan.phases[0].trainable) == {*stem, *first}  # not the stem or add-on it does not have


def test_without_a_convolution_no_phase_names_it():
    for preset in PIPNet.presets:
        model = make(num_features=None, preset=preset)
        assert "addon" not in model.parameter_groups()
        assert all("addon" not in phase.trainable for phase in model.plan.phases)
        model.plan.check(model.parameter_groups(), model.loss_terms(), [*ACTIONS, *model.actions])
        assert "addon" in make(preset=preset).plan.phases[0].trainable


# -- two views ---------------------------------------------------------------------------------------------------------
class Batches(Callback):
    """What training batches hold."""

    def __init__(self):
        self.batches = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.batches.append(batch)


def test_two_views_are_asked_for_and_handed_back():
    data, watch = birds(), Batches()
    fitted(short("head"), watch, data=data)
    assert len(watch.batches) == 2
    assert all((batch["image"] != batch["second_view"]).any() for batch in watch.batches)
    assert not data.loading.two_views
    assert "second_view" not in next(iter(data.train_dataloader()))


# -- bad input ---------------------------------------------------------------------------------------------------------
def test_one_view_is_refused():
    with pytest.raises(ValueError, match=r"Expected the training batch of PIPNet to have `second_view`, but got only"):
        paired({"image": images(), "label": torch.tensor([0, 1])})


@pytest.mark.parametrize("sizes", [{"batch_size": 1}, {"train_size": 17}, {"train_size": 9, "batch_size": 4}])
def test_a_batch_of_one_is_refused_before_training(sizes):
    watch = Batches()
    with pytest.raises(
        ValueError, match=r"at least 2 images, but \d+ images per process in batches of \d .* Choose an"
    ):
        fitted(short("pretrain"), watch, data=birds(**sizes))
    assert watch.batches == []


def test_small_batches_are_warned_of_once():
    with pytest.warns(UserWarning, match="PIPNet trains with batches of 8 images. Below 32") as record:
        fitted(short("pretrain"))
    assert sum("PIPNet trains" in str(warning.message) for warning in record) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_features": 1}, "Expected argument `num_features` to be null or at least 2, but got 1"),
        ({"shrinkage": -1e-3}, "Expected argument `shrinkage` to be at least 0, but got -0.001"),
        ({"score_threshold": 1.0}, r"Expected argument `score_threshold` to be in \[0, 1\), but got 1.0"),
        ({"score_threshold": -0.1}, r"Expected argument `score_threshold` to be in \[0, 1\), but got -0.1"),
    ],
)
def test_arguments_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)
