"""Phase plans as data: changing, scaling, locating, checking and building them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from protometry.lightning_modules import ProtoPNet
from protometry.lightning_modules.phases import HeadSpec, OptimizerSpec, Phase, PhasePlan, SchedulerSpec
from protometry.run_folder.checkpoint_file import read_checkpoint
from tests.lightning_modules.registry import SHORT, TINY_PROTOPNET, tiny_birds, tiny_trainer

CE = {"cross_entropy": 1.0}
WARM = Phase("warm", 2, {"addon": 3e-3}, CE | {"cluster": 0.8}, weight_decay={"addon": 1e-3}, bn="eval")
JOINT = Phase(
    "joint",
    3,
    {"backbone": 1e-4, "addon": 3e-3},
    CE,
    weight_decay={"backbone": 1e-3},
    optimizer=OptimizerSpec("AdamW", key="joint"),
    scheduler=SchedulerSpec("OneCycleLR", per="step"),
)
LAST = Phase("last", 1, {"head": 1e-4}, CE, on_enter=("project",), selectable=True)
PLAN = PhasePlan((WARM, JOINT, LAST, replace(JOINT, name="joint2", epochs=2)))
KNOWN = {"groups": ["backbone", "addon", "head"], "losses": ["cross_entropy", "cluster"], "actions": ["project"]}


def groups():
    return {name: list(nn.Linear(2, 2).parameters()) for name in KNOWN["groups"]}


# -- reading a plan --------------------------------------------------------------------------------------------------
def test_every_epoch_belongs_to_one_phase():
    assert PLAN.total_epochs == 8
    places = [PLAN.locate(epoch) for epoch in range(8)]
    assert places == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (3, 1)]
    assert PLAN.locate(8) == (3, 2)  # beyond the plan: the last phase


def test_a_plan_needs_phases_with_unique_names_epochs_and_groups():
    with pytest.raises(ValueError, match="at least one phase"):
        PhasePlan(())
    with pytest.raises(ValueError, match=r"unique names, but got \['warm', 'warm'\]"):
        PhasePlan((WARM, WARM))
    with pytest.raises(
        ValueError, match=r"`epochs` of phase 'warm' to be at least 1 .*but got 0\. Remove .*warm: null"
    ):
        replace(WARM, epochs=0)
    with pytest.raises(ValueError, match="`trainable` of phase 'warm' to name at least one group"):
        replace(WARM, trainable={})
    with pytest.raises(
        ValueError, match=r"`trainable` of .* at least 0, but got {'addon': -1}.* `losses` .*{'a': nan}"
    ):
        replace(WARM, trainable={"addon": -1, "head": 0}, losses={"a": float("nan"), "b": -1})
    for place in ({"on_exit": ("fit_head",)}, {"on_enter": ("fit_head", "project")}):
        with pytest.raises(ValueError, match=r"phase 'warm' to have 'fit_head' as the last action of `on_enter`"):
            replace(WARM, **place)


def test_a_solved_head_is_not_trained_and_neither_is_what_it_reads():
    solved = replace(LAST, bn="eval", on_enter=("project", "fit_head"))
    optimizer, _ = PhasePlan((solved,)).build(0, groups(), 9)
    assert {group["name"]: group["lr"] for group in optimizer.param_groups} == {"head": 0.0}
    for moved in ({"trainable": {"head": 0.0, "addon": 1e-3}}, {"bn": "train"}):
        with pytest.raises(ValueError, match="phase 'last' to train nothing before its last layer and to have `bn: ev"):
            replace(solved, **moved)


def test_a_head_is_solved_once():
    """A second solution would find the units inactive that the first had left without a weight."""
    solved = replace(LAST, bn="eval", on_enter=("fit_head",))
    twice = PhasePlan((solved, JOINT, replace(solved, name="last2")))
    with pytest.raises(ValueError, match=r"one phase to have 'fit_head' .* got \['last', 'last2'\]"):
        twice.check(**KNOWN | {"actions": ["fit_head"]})


@pytest.mark.parametrize("wrong", [{"penalty": 0.0}, {"penalty": float("inf")}, {"others": 0.0}, {"l1_ratio": 0.0}])
def test_numbers_of_a_head_out_of_range_are_refused(wrong):
    (name, value), = wrong.items()  # fmt: skip
    with pytest.raises(ValueError, match=f"`head.{name}` to be above 0.*, but got {value}"):
        PLAN.override({"last": {"head": wrong}})
    assert PLAN.override({"last": {"head": {"penalty": 0.1}}}).phases[2].head == HeadSpec(0.1)


# -- changing a plan -------------------------------------------------------------------------------------------------
def test_override_merges_mappings_and_replaces_the_rest():
    warm, *others = PLAN.override({"warm": {
        "epochs": 7, "trainable": {"head": 1.0, "addon": 2.0}, "losses": {"cluster": None},
        "weight_decay": {"head": 0.5}, "bn": ["addon"], "on_exit": ["project"], "selectable": True,
        "optimizer": OptimizerSpec("SGD"), "scheduler": SchedulerSpec("StepLR", {"step_size": 1}),
    }}).phases  # fmt: skip
    assert warm == Phase(
        "warm", 7, {"addon": 2.0, "head": 1.0}, CE, {"addon": 1e-3, "head": 0.5}, ["addon"], OptimizerSpec("SGD"),
        SchedulerSpec("StepLR", {"step_size": 1}), on_exit=("project",), selectable=True,
    )  # fmt: skip
    assert tuple(others) == PLAN.phases[1:]
    assert PLAN.phases[0] == WARM  # the original is untouched
    plan = PhasePlan((replace(LAST, head=HeadSpec(3e-4)),)).override({"last": {"head": {"l1_ratio": 0.5}}})
    assert plan.phases[0].head == HeadSpec(3e-4, l1_ratio=0.5)


def test_override_removes_and_appends_phases_in_order():
    changed = PLAN.override({
        "warm": None, "joint": {"epochs": 1}, "prune": {"epochs": 4, "trainable": {"head": 0.1}, "losses": CE},
    })  # fmt: skip
    assert [phase.name for phase in changed.phases] == ["joint", "last", "joint2", "prune"]
    assert changed.phases[3] == Phase("prune", 4, {"head": 0.1}, CE)
    assert PLAN.override({"joint": {"scheduler": None}}).phases[1].scheduler is None


def test_override_takes_plain_data():
    change = {"optimizer": {"name": "SGD", "kwargs": {"momentum": 0.9}}, "scheduler": {"name": "StepLR"}}
    warm = PLAN.override({"warm": change}).phases[0]
    assert (warm.optimizer, warm.scheduler) == (OptimizerSpec("SGD", {"momentum": 0.9}), SchedulerSpec("StepLR"))


def test_override_changes_an_optimizer_or_scheduler_without_naming_it():
    change = {"optimizer": {"kwargs": {"eps": 1e-6}}, "scheduler": {"kwargs": {"pct_start": 0.1}}}
    joint = PLAN.override({"joint": change}).phases[1]
    assert joint.optimizer == OptimizerSpec("AdamW", {"eps": 1e-6}, "joint")
    assert joint.scheduler == SchedulerSpec("OneCycleLR", {"pct_start": 0.1}, "step")
    with pytest.raises(
        ValueError, match=r"`phases.warm.scheduler` to have a `name`, because the phase has none to change"
    ):
        PLAN.override({"warm": {"scheduler": {"kwargs": {"gamma": 0.1}}}})


@pytest.mark.parametrize(("changes", "message"), [
    ({"jiont": {"epochs": 1}}, r"`phases.jiont` to be one of \['warm', .*or a new phase .* only \['epochs'\]"),
    ({"jiont": None}, r"`phases.jiont` to be one of \['warm', 'joint', 'last', 'joint2'\] to be removed"),
    ({"warm": {"epoch": 3}}, r"`phases.warm` to have only fields of \['epochs', .* got \['epoch'\]"),
    ({"warm": {"losses": {"clutser": None}}}, r"`phases.warm.losses` to remove only .*'cluster'.* got \['clutser'\]"),
    ({"warm": {"trainable": {"addon": None}}}, "at least one group"),
    ({"warm": {"epochs": 0}}, "at least 1"),
    ({1: {"epochs": 1, "trainable": {"head": 1.0}, "losses": CE}}, "name of a phase to be a printable text, but got 1"),
    ({" ": {"epochs": 1, "trainable": {"head": 1.0}, "losses": CE}}, "a printable text, but got ' '"),
    ({name.name: None for name in PLAN.phases}, "at least one phase"),
])  # fmt: skip
def test_override_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        PLAN.override(changes)


def test_overrides_from_python_leave_a_readable_checkpoint(tmp_path):
    """Specs are stored as plain data and come back as the same plan."""
    phases = SHORT | {"last": None, "joint": {"epochs": 1, "optimizer": OptimizerSpec("SGD"), "scheduler": None}}
    model = TINY_PROTOPNET(num_classes=8, image_size=(32, 32), preset="original", phases=phases)
    trainer = tiny_trainer()
    trainer.fit(model, datamodule=tiny_birds())
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    read_checkpoint(tmp_path / "model.ckpt")
    assert ProtoPNet.load_from_checkpoint(tmp_path / "model.ckpt").plan == model.plan


# -- scaling a plan --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("factor", "epochs", "step"), [(30, [60, 90], 150), (0.5, [1, 2], 2), (0.01, [1, 1], 1)])
def test_scaled_epochs_and_steps(factor, epochs, step):
    """round(3 * 0.5) = 2 and round(5 * 0.5) = 2: halves go to the even neighbour; nothing falls below 1."""
    plan = PhasePlan((WARM, replace(JOINT, scheduler=SchedulerSpec("StepLR", {"step_size": 5, "gamma": 0.1}))))
    scaled = plan.scaled(factor)
    assert [phase.epochs for phase in scaled.phases] == epochs
    assert scaled.phases[1].scheduler.kwargs == {"step_size": step, "gamma": 0.1}
    assert plan.phases[1].scheduler.kwargs["step_size"] == 5


def test_scaled_milestones_but_not_steps_counted_in_batches():
    epochwise = replace(JOINT, scheduler=SchedulerSpec("MultiStepLR", {"milestones": [2, 4]}))
    batchwise = replace(LAST, scheduler=SchedulerSpec("StepLR", {"step_size": 100}, per="step"))
    first, second = PhasePlan((epochwise, batchwise)).scaled(3).phases
    assert first.scheduler.kwargs == {"milestones": [6, 12]}
    assert second.scheduler.kwargs == {"step_size": 100}


def test_an_explicit_number_of_epochs_is_not_scaled():
    model = TINY_PROTOPNET(
        num_classes=4, image_size=(32, 32), preset="original", phases={"warm": {"epochs": 10}}, epoch_scale=0.5
    )
    assert [phase.epochs for phase in model.plan.phases] == [10, 3, 10, 5, 10]


# -- checking a plan -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("field", "value", "unknown"), [
    ("trainable", {"addon": 1.0, "addons": 1.0}, "addons"),
    ("weight_decay", {"heda": 1.0}, "heda"),
    ("bn", ["trnk"], "trnk"),
    ("losses", {"clutser": 1.0}, "clutser"),
    ("on_enter", ("projct",), "projct"),
    ("on_exit", ("prune",), "prune"),
])  # fmt: skip
def test_check_names_the_phase_the_field_and_what_is_known(field, value, unknown):
    PLAN.check(**KNOWN)
    plan = PhasePlan((replace(WARM, **{field: value}),))
    with pytest.raises(ValueError, match=rf"`phases.warm.{field}` to use only \[.*\], but got \['{unknown}'\]"):
        plan.check(**KNOWN)


@pytest.mark.parametrize(("changes", "message"), [
    ({"optimizer": OptimizerSpec("Admm")}, r"`phases.warm.optimizer.name` to be a class of .*, but got 'Admm'"),
    ({"optimizer": OptimizerSpec("lr_scheduler")}, "to be a class of torch.optim"),  # a module
    ({"scheduler": SchedulerSpec("Step")}, r"`phases.warm.scheduler.name` to be a class of torch.*, but got 'Step'"),
    ({"optimizer": OptimizerSpec("SGD", {"momentums": 1})}, "`phases.warm` to have an optimizer .*'momentums'"),
    ({"scheduler": SchedulerSpec("StepLR", {"step_size": 0})}, "`phases.warm` .* a scheduler that work, but .*zero"),
    ({"scheduler": SchedulerSpec("StepLR", {"step_size": 1, "gamma": -1})}, r"but its learning rates become \[-0.003"),
    ({"scheduler": SchedulerSpec("ReduceLROnPlateau")}, "warm.scheduler.name` .* 'ReduceLROnPlateau', which needs a"),
    ({"optimizer": OptimizerSpec("SparseAdam")}, "an optimizer .* but SparseAdam does not support dense grad"),
    (
        {"scheduler": SchedulerSpec("OneCycleLR", {"total_steps": 8}, per="step")},
        "has 8 steps for the 18 of the phase; leave `total_steps` out",
    ),
    ({"losses": {"x": 1.0}, "bn": ["y"]}, r"`phases.warm.bn` .*\['y'\]\. Expected `phases.warm.losses` .*\['x'\]"),
])  # fmt: skip
def test_check_refuses_what_would_fail_later(changes, message):
    with pytest.raises(ValueError, match=message):
        PhasePlan((replace(WARM, **changes),)).check(**KNOWN)


def test_the_scheduler_that_the_refusal_of_another_names_works():
    with pytest.raises(ValueError, match="Name another, such as") as refused:
        PhasePlan((replace(WARM, scheduler=SchedulerSpec("ReduceLROnPlateau")),)).check(**KNOWN)
    named = str(refused.value).removesuffix(".").rpartition(" ")[2]
    PhasePlan((replace(WARM, scheduler=SchedulerSpec(named)),)).check(**KNOWN)


@pytest.mark.parametrize("change", [
    {"trainable": {"addon": 3e-3, "backbone": 1e-4}},  # the same groups in another order
    {"trainable": {"backbone": 1e-5, "addon": 3e-3}},
    {"weight_decay": {}},
    {"optimizer": OptimizerSpec("SGD", key="joint")},
    {"scheduler": None},
])  # fmt: skip
def test_check_refuses_what_a_shared_optimizer_would_ignore(change):
    plan = PhasePlan((JOINT, LAST, replace(JOINT, name="joint2", **change)))
    with pytest.raises(ValueError, match=r"phases with optimizer key 'joint' to .*'joint' .*'joint2'"):
        plan.check(**KNOWN)


def test_a_later_phase_may_unfreeze_more_groups_with_the_same_optimizer():
    less = replace(JOINT, name="less", trainable={"addon": 3e-3}, scheduler=None)
    PhasePlan((less, JOINT)).check(**KNOWN)
    with pytest.raises(ValueError, match=r"to have equal `optimizer`"):
        PhasePlan((less, replace(JOINT, optimizer=OptimizerSpec("SGD", key="joint")))).check(**KNOWN)
    with pytest.raises(ValueError, match=r"to train the same groups"):
        PhasePlan((JOINT, less)).check(**KNOWN)


# -- building a phase ------------------------------------------------------------------------------------------------
def test_build_makes_one_named_group_per_trainable_group():
    members = groups()
    optimizer, scheduler = PLAN.build(0, members, 5)
    assert isinstance(optimizer, torch.optim.Adam)
    assert scheduler is None
    (addon,) = optimizer.param_groups
    assert (addon["name"], addon["lr"], addon["weight_decay"]) == ("addon", 3e-3, 1e-3)
    assert all(a is b for a, b in zip(addon["params"], members["addon"], strict=True))
    joint, _ = PLAN.build(1, members, 5)
    assert isinstance(joint, torch.optim.AdamW)
    decay = {group["name"]: group["weight_decay"] for group in joint.param_groups}
    assert decay == {"backbone": 1e-3, "addon": 0.0}  # not AdamW's own default of 1e-2


def test_a_step_wise_schedule_covers_all_phases_of_its_key():
    """3 + 2 epochs of 5 steps; the highest rates are the phase's."""
    optimizer, scheduler = PLAN.build(1, groups(), 5)
    assert scheduler.total_steps == 25
    assert [group["max_lr"] for group in optimizer.param_groups] == [1e-4, 3e-3]
    alone = PhasePlan((replace(JOINT, optimizer=OptimizerSpec("AdamW")),))
    assert alone.build(0, groups(), 5)[1].total_steps == 15


def test_an_epoch_wise_schedule_counts_epochs():
    plan = PhasePlan((replace(JOINT, scheduler=SchedulerSpec("CosineAnnealingLR")), LAST))
    assert plan.build(0, groups(), 5)[1].T_max == 3
    given = PhasePlan((replace(JOINT, scheduler=SchedulerSpec("CosineAnnealingLR", {"T_max": 9, "eta_min": 1e-6})),))
    assert given.build(0, groups(), 5)[1].T_max == 9


def test_optimizer_arguments_arrive():
    plan = PhasePlan((replace(LAST, optimizer=OptimizerSpec("SGD", {"momentum": 0.9})),))
    optimizer, _ = plan.build(0, groups(), 1)
    assert optimizer.param_groups[0]["momentum"] == 0.9
