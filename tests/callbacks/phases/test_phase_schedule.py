"""The schedule walks a plan inside one fit: what is trained, with which optimiser, in which order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning import Callback, seed_everything
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from protometry.callbacks import PhaseSchedule, state_hash
from protometry.callbacks.phases.phase_schedule import ACTIONS
from protometry.lightning_modules import Classifier, ProtoPNet
from tests.lightning_modules.registry import PRUNE, TINY_PROTOPNET, tiny_birds, tiny_trainer

STEPS = 3  # batches in an epoch of tiny_birds
STEP_LR = {"name": "StepLR", "kwargs": {"step_size": 1, "gamma": 0.5}}
ONE_CYCLE = {"optimizer": {"name": "AdamW", "key": "cycle"}, "scheduler": {"name": "OneCycleLR", "per": "step"}}
CYCLED = {  # the joint phases are one OneCycle of 5 epochs, with a projection within
    "warm": None, "joint": {"epochs": 3} | ONE_CYCLE, "last": {"epochs": 1}, "joint2": {"epochs": 2} | ONE_CYCLE,
    "last2": None,
}  # fmt: skip
PHASES = {  # preset "original": six phases, the two joint ones are one optimiser
    "warm": {"epochs": 1},
    "joint": {"epochs": 2, "scheduler": STEP_LR},
    "last": {"epochs": 1},
    "joint2": {"epochs": 2, "scheduler": STEP_LR},
    "last2": {"epochs": 1},
    "prune": PRUNE,
}
EPOCHS = ["warm", "joint", "joint", "last", "joint2", "joint2", "last2", "prune"]


def make(kind: Any = TINY_PROTOPNET, **options: Any) -> ProtoPNet:
    seed_everything(0, verbose=False)
    return kind(**({"num_classes": 8, "image_size": (32, 32), "preset": "original", "phases": PHASES} | options))


class Steps(Callback):
    """What is in force at every training step."""

    def __init__(self):
        self.rows: list[SimpleNamespace] = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        optimizer = trainer.optimizers[0]
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        groups = pl_module.parameter_groups()
        modes = {m.training for m in pl_module.modules() if isinstance(m, _BatchNorm)}
        self.rows.append(SimpleNamespace(
            epoch=trainer.current_epoch,
            phase=pl_module.phase.name,
            trained={name for name, members in groups.items() if all(p.requires_grad for p in members)},
            frozen={name for name, members in groups.items() if not any(p.requires_grad for p in members)},
            held={name for name, members in groups.items() if all(id(p) in held for p in members)},
            rates={group["name"]: group["lr"] for group in optimizer.param_groups},
            bn=modes,
            training=pl_module.training,
            statistics=state_of(pl_module.backbone),
            steps_taken={int(s["step"]) for s in optimizer.state.values()},
            moment=sum(float(s["exp_avg"].abs().sum()) for s in optimizer.state.values() if "exp_avg" in s),
            optimizer=type(optimizer).__name__,
        ))  # fmt: skip

    def of(self, phase: str) -> list[SimpleNamespace]:
        return [row for row in self.rows if row.phase == phase]


def state_of(module: nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.detach().clone() for name, buffer in module.named_buffers()}


# -- walking ---------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def walked():
    model, steps = make(), Steps()
    trainer = tiny_trainer(steps)
    trainer.fit(model, datamodule=tiny_birds())
    return model, steps, trainer


def test_every_epoch_is_spent_in_its_phase(walked):
    _, steps, trainer = walked
    assert [row.phase for row in steps.rows] == [name for name in EPOCHS for _ in range(STEPS)]
    assert [row.epoch for row in steps.rows] == [epoch for epoch in range(8) for _ in range(STEPS)]
    assert trainer.current_epoch == 8
    assert trainer.callback_metrics["phase"] == 5.0


def test_exactly_the_groups_of_the_phase_are_trainable_and_optimised(walked):
    model, steps, _ = walked
    groups = set(model.parameter_groups())
    for row in steps.rows:
        phase = next(p for p in model.plan.phases if p.name == row.phase)
        assert row.trained == row.held == set(phase.trainable) == set(row.rates)
        assert row.frozen == groups - row.trained
        assert row.optimizer == phase.optimizer.name


def test_batchnorm_moves_only_where_the_phase_says_so(walked):
    _, steps, _ = walked
    frozen = {"warm", "last", "last2", "prune"}
    for before, after in zip(steps.rows, steps.rows[1:], strict=False):
        assert before.training
        assert before.bn == {before.phase not in frozen}
        stays = all(torch.equal(before.statistics[name], after.statistics[name]) for name in before.statistics)
        assert stays == (before.phase in frozen)


def test_some_batchnorm_layers_may_move():
    model = make(Classifier, preset="sketch", phases={"train": {"bn": ["head"]}})
    model.backbone.net.block4[1].requires_grad_(False)
    model.enter_phase(0)
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    assert not any(m.training for m in norms)
    moving = dict(model.parameter_groups(), head=list(norms[2].parameters()))
    model.parameter_groups = lambda: moving
    model.apply_modes()
    assert [m.training for m in norms] == [False, False, True, False]
    assert model.linear.training


def test_learning_rates_follow_the_phase_and_its_schedule(walked):
    """StepLR(1, 0.5) from 1e-4 (backbone) and 3e-3: it goes on in joint2 where joint left it; others are constant."""
    _, steps, _ = walked
    assert {tuple(row.rates.items()) for row in steps.of("warm")} == {(("addon", 3e-3), ("prototypes", 3e-3))}
    joint = [row.rates for row in steps.of("joint") + steps.of("joint2")]
    for step, rates in enumerate(joint):
        factor = 0.5 ** (step // STEPS)
        expected = {"backbone": 1e-4 * factor, "addon": 3e-3 * factor, "prototypes": 3e-3 * factor}
        assert rates == pytest.approx(expected, rel=1e-9)
    assert {row.rates["head"] for row in steps.of("last") + steps.of("last2")} == {1e-4}
    assert {row.rates["head"] for row in steps.of("prune")} == {1e-2}


def test_a_shared_optimizer_lives_on_over_a_projection(walked):
    _, steps, _ = walked
    taken = [row.steps_taken for row in steps.of("joint") + steps.of("joint2")]
    assert taken == [set(), *({n} for n in range(1, 4 * STEPS))]
    assert steps.of("joint2")[0].moment > 0
    for name in ("warm", "last", "last2", "prune"):
        assert steps.of(name)[0].steps_taken == set()  # all others begin afresh


def test_unshared_phases_begin_afresh():
    alone = {"name": "Adam", "kwargs": {}, "key": None}
    changes = {name: PHASES[name] | {"optimizer": alone} for name in ("joint", "joint2")}
    model, steps = make(phases=PHASES | changes), Steps()
    tiny_trainer(steps, max_epochs=5).fit(model, datamodule=tiny_birds())
    assert steps.of("joint2")[0].steps_taken == set()
    assert steps.of("joint2")[0].rates["backbone"] == 1e-4


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_step_wise_schedule_moves_with_every_optimizer_step(accumulate):
    """OneCycle over 3 + 2 epochs of 3 batches, or of 2 optimiser steps when two batches are one."""
    model, steps = make(phases=CYCLED), Steps()
    tiny_trainer(steps, accumulate_grad_batches=accumulate).fit(model, datamodule=tiny_birds())
    per_epoch = -(-STEPS // accumulate)
    sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    reference = torch.optim.lr_scheduler.OneCycleLR(sgd, max_lr=3e-3, total_steps=5 * per_epoch)
    expected = []
    for _ in range(5):
        for batch in range(STEPS):
            expected.append(reference.get_last_lr()[0])
            if (batch + 1) % accumulate == 0 or batch == STEPS - 1:
                sgd.step()
                reference.step()
    assert [row.rates["addon"] for row in steps.of("joint") + steps.of("joint2")] == pytest.approx(expected, rel=1e-9)


# -- actions ---------------------------------------------------------------------------------------------------------
class Acting(ProtoPNet):
    """Writes down when its actions, steps and validations happen."""

    actions = ("first", "second", "third")

    def __init__(self, **options):
        super().__init__(prototypes_per_class=1, prototype_channels=4, **options)
        self.events: list[str] = []

    def _act(self, name):
        self.events.append(name)
        with torch.no_grad():
            self.linear.weight += 1.0
        return {"figure": 2.0}

    def first(self, trainer):
        return self._act("first")

    def second(self, trainer):
        return self._act("second")

    def third(self, trainer):
        self._act("third")  # an action need not report

    def training_step(self, batch, batch_idx):
        self.events.append(f"step {self.phase.name}")
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        self.events.append("validate")
        self.validated = self.linear.weight.detach().clone()
        return super().validation_step(batch, batch_idx)


ACTING = {
    "warm": {"epochs": 2, "on_enter": ["first", "second"], "on_exit": ["third", "first"]},
    "joint": {"epochs": 1, "scheduler": None, "on_exit": ["second"]},
    "last": None, "joint2": None, "last2": None,
}  # fmt: skip


class Listener(Callback):
    def __init__(self):
        self.reports = []

    def on_action_end(self, trainer, module, action, report):
        self.reports.append((action, report))


def test_actions_run_in_order_and_exit_actions_before_validation():
    model, listener = make(Acting, phases=ACTING), Listener()
    tiny_trainer(listener, limit_train_batches=1, limit_val_batches=1).fit(model, datamodule=tiny_birds())
    assert model.events == [
        "first", "second", "step warm", "validate",
        "step warm", "third", "first", "validate",
        "step joint", "second", "validate",
    ]  # fmt: skip
    assert listener.reports == [
        ("first", {"figure": 2.0}), ("second", {"figure": 2.0}), ("third", {}), ("first", {"figure": 2.0}),
        ("second", {"figure": 2.0}),
    ]  # fmt: skip
    assert torch.equal(model.validated, model.linear.weight)  # the last validation saw the last action's work


class Figures(Logger):
    """Keeps what actions report, with the step it is logged at."""

    name = version = "figures"

    def __init__(self):
        super().__init__()
        self.rows = []

    def log_hyperparams(self, *args, **kwargs):
        pass

    def log_metrics(self, metrics, step):
        self.rows += [(step, key, value) for key, value in metrics.items() if key.endswith("/figure")]


def test_figures_of_exit_actions_belong_to_the_last_step_of_their_epoch():
    """A resume keeps the rows of steps below the checkpoint's ``global_step`` and writes the others again.

    Exit actions are done when the epoch is saved, hence ``global_step - 1``; the enter actions of the next phase are
    not, and run again, hence ``global_step``.
    """
    figures = Figures()
    tiny_trainer(logger=figures, limit_train_batches=1).fit(make(Acting, phases=ACTING), datamodule=tiny_birds())
    assert figures.rows == [
        (0, "first/figure", 2.0), (0, "second/figure", 2.0),  # entering warm, before step 0
        (1, "first/figure", 2.0),  # leaving warm after steps 0 and 1
        (2, "second/figure", 2.0),  # leaving joint after step 2
    ]  # fmt: skip


def test_no_one_leaves_the_model_in_evaluation_mode():
    class Evaluating(Acting):
        def third(self, trainer):
            self.eval()

        def on_train_epoch_end(self):
            self.eval()

    model, steps = make(Evaluating, phases=ACTING), Steps()
    tiny_trainer(steps, limit_train_batches=2).fit(model, datamodule=tiny_birds())
    assert [row.phase for row in steps.rows] == ["warm"] * 4 + ["joint"] * 2
    assert all(row.training for row in steps.rows)
    assert {mode for row in steps.of("warm") for mode in row.bn} == {False}
    assert steps.of("joint")[0].bn == {True}


# -- refusals --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("action", sorted(ACTIONS.keys() - {"fit_head"}))  # whose plan is refused before
def test_models_that_an_action_cannot_change_are_refused(action):
    said = f"for the action '{action.removesuffix('_distinct')}', but got Classifier"
    with pytest.raises(TypeError, match=said):
        ACTIONS[action](SimpleNamespace(datamodule=tiny_birds()), Classifier(num_classes=8, image_size=(32, 32)))


def fit(model, *callbacks, **options):
    trainer = tiny_trainer(*callbacks, **options)
    trainer.fit(model, datamodule=tiny_birds())
    return trainer


def test_it_must_come_first():
    trainer = tiny_trainer()
    trainer.callbacks.insert(0, Steps())
    with pytest.raises(ValueError, match="PhaseSchedule to be the first callback, but got Steps first"):
        trainer.fit(make(), datamodule=tiny_birds())


def test_max_epochs_may_not_exceed_the_plan():
    with pytest.raises(ValueError, match=r"`trainer\.max_epochs` to be at most the 8 epochs .*, but got 9"):
        fit(make(), max_epochs=9)
    assert fit(make(), max_epochs=1).current_epoch == 1


@pytest.mark.parametrize(("change", "message"), [
    ({"trainable": {"adon": 1.0}}, r"`phases.warm.trainable` to use only \['addon', .*\['adon'\]"),
    ({"losses": {"clutser": 1.0}}, r"`phases.warm.losses` to use only .*\['clutser'\]"),
    ({"bn": ["trnk"]}, r"`phases.warm.bn` to use only .*\['trnk'\]"),
    ({"on_enter": ["projct"]}, r"`phases.warm.on_enter` to use only \['calib.*\], but got \['projct'\]"),
    ({"optimizer": {"name": "Adan"}}, "`phases.warm.optimizer.name` .* got 'Adan'"),
])  # fmt: skip
def test_unknown_names_are_refused_before_any_work(change, message):
    model = make(phases=PHASES | {"warm": PHASES["warm"] | change})
    before = state_hash(model)
    with pytest.raises(ValueError, match=message):
        fit(model)
    assert state_hash(model) == before


@pytest.mark.parametrize("kind", [DeepSpeedStrategy, object])
def test_unverified_strategies_are_refused(kind):
    """DeepSpeed's strategy is a subclass of DDP's."""
    strategy, schedule = kind.__new__(kind), PhaseSchedule()
    loop = SimpleNamespace(max_epochs=-1)
    trainer = SimpleNamespace(callbacks=[schedule], strategy=strategy, fit_loop=loop, limit_train_batches=1.0)
    with pytest.raises(ValueError, match=f"to be a single device or ddp, but got {kind.__name__}"):
        schedule.setup(trainer, make(), "fit")
    trainer.strategy = DDPStrategy()
    schedule.setup(trainer, make(), "fit")
    assert trainer.fit_loop.max_epochs == 8


class Exploding(ProtoPNet):
    """Its loss is not finite in one step."""

    def __init__(self, **options):
        super().__init__(prototypes_per_class=1, prototype_channels=4, **options)
        self.steps, self.bad, self.value, self.ids = 0, 0, torch.nan, []

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.steps += 1
        if self.steps != self.bad:
            return loss
        self.ids = batch["sample_id"]
        return loss * 0 + self.value


@pytest.mark.parametrize(("bad", "phase", "epoch", "ended"), [
    (2, "warm", 1, 3),  # noticed one step later
    (3, "warm", 1, 3),  # the last batch of an epoch: at once, before any checkpoint
    (5, "joint", 2, 6),
])  # fmt: skip
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_names_phase_step_and_images(bad, phase, epoch, ended, value):
    model = make(Exploding)
    model.bad, model.value = bad, value
    said = f"loss is {value} in phase '{phase}' at step {bad}, epoch {epoch};"
    with pytest.raises(RuntimeError, match=said) as error:
        fit(model)
    assert len(model.ids) == 8
    assert all(sample_id in str(error.value) for sample_id in model.ids)
    assert model.steps == ended


# -- hashes and ranks ------------------------------------------------------------------------------------------------
def test_the_hash_sees_every_bit():
    module = nn.BatchNorm1d(3)
    hashes = {state_hash(module)}
    for change in (
        lambda: module.weight.data[0].mul_(1 + 2**-23),
        lambda: module.num_batches_tracked.add_(1),
        lambda: module.running_mean[1].neg_(),  # 0.0 becomes -0.0
    ):
        change()
        hashes.add(state_hash(module))
    assert len(hashes) == 4
    assert all(0 <= value < 2**63 for value in hashes)
    assert state_hash(module) == state_hash(module)


def test_a_checkpoint_of_a_longer_plan():
    schedule = PhaseSchedule()
    schedule._module = ProtoPNet(num_classes=2, image_size=(32, 32), prototypes_per_class=1)
    with pytest.raises(ValueError, match="the phases of the checkpoint, which is in phase 10, but the plan has only"):
        schedule.load_state_dict({"index": 9, "entered": [], "parked": {}})
