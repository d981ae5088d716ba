"""One training run: what lies in its folder, and that the folder says everything needed to go on or start over."""

import csv
import json
import os
import warnings

import pytest
import torch
import yaml
from lightning import Callback

from protometry.callbacks import read_checkpoint
from protometry.lightning_modules import ProtoPNet
from protometry.scripts import train
from tests.tiny_runs import EPOCHS, ROOT, STEPS_PER_EPOCH, differences, fit, fit_args, run_training, state

MOMENTS = ("warm-epoch00", "joint-epoch02", "last-epoch03", "joint2-epoch04")  # the ends of the four phases
EXPLANATIONS = {*MOMENTS, *(f"{moment}-units" for moment in MOMENTS)}


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_run_folder(finished_run):
    files = {"checkpoints/best.ckpt", "checkpoints/last.ckpt", "config.yaml", "metrics.csv", "training.png"}
    files |= {"prototypes/last-epoch03.csv", "prototypes/last-epoch03.png"}
    assert contents(finished_run).keys() == files | {f"explanations/{name}.png" for name in EXPLANATIONS}


def test_checkpoints_hold_plain_types_and_the_best_is_of_a_selectable_phase(finished_run):
    def walk(value):
        assert isinstance(value, dict | list | tuple | str | int | float | torch.Tensor | None), type(value)
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
            walk(item)

    checkpoint = read_checkpoint(finished_run / "checkpoints" / "last.ckpt")
    walk(checkpoint)
    assert checkpoint["global_step"] == EPOCHS * STEPS_PER_EPOCH
    assert checkpoint["hyper_parameters"]["num_classes"] == 8
    assert read_checkpoint(finished_run / "checkpoints" / "best.ckpt")["epoch"] == 3


def test_every_epoch_has_its_rows(finished_run):
    table = rows(finished_run)
    for epoch, phase in enumerate((0, 1, 1, 2, 3)):
        values = {k: v for row in table if row["epoch"] == str(epoch) for k, v in row.items() if v}
        assert float(values["phase"]) == phase
        assert {"train/loss", "train/accuracy", "val/general/accuracy"} <= values.keys()
    (projected,) = [row for row in table if row["project/moved_mean"]]
    assert int(projected["step"]) == 3 * STEPS_PER_EPOCH


def said_of_epochs(capsys):
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("phase")]


def test_a_larger_suite_is_computed_every_second_epoch(tmp_path, capsys):
    """And its values belong to the epoch that measured them."""
    keys = ["completeness/psc", "continuity/plc", "compactness/local_size"]
    more = [f"--evaluation.validation_suite=[{', '.join(keys)}]", "--evaluation.every_n_epochs=2"]
    fit(tmp_path / "run", *more, "--trainer.max_epochs=3")
    assert ["val/completeness/psc" in line for line in said_of_epochs(capsys)] == [False, True, False]
    table = [row for row in rows(tmp_path / "run") if row["val/general/accuracy"]]
    for key in keys:
        assert [row["epoch"] for row in table if row[f"val/{key}"]] == ["1"], key
    assert float(table[1]["val/continuity/plc"]) >= 0


def test_a_value_belongs_to_the_epoch_that_measured_it(tmp_path, capsys):
    key = "val/general/accuracy"
    fit(tmp_path / "run", "--trainer.check_val_every_n_epoch=2", "--trainer.max_epochs=3")
    assert [key in line for line in said_of_epochs(capsys)] == [False, True, False]
    assert [row["epoch"] for row in rows(tmp_path / "run") if row[key]] == ["1"]
    curves = next(v for k, v in state(tmp_path / "run")["callbacks"].items() if "TrainingCurves" in k)
    assert [key in row for row in curves["rows"]] == [False, True, False]


class Wanderer(Callback):
    """Changes the working folder as soon as it is made."""

    def __init__(self):
        os.chdir("..")


@pytest.mark.parametrize(("runs", "home"), [("~/mine", "home"), ("mine", "work")])
def test_all_parts_of_a_run_lie_in_one_folder(runs, home, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("work", "other"):
        (tmp_path / name).mkdir()
    more = [f"--runs={runs}", "--trainer.max_epochs=1", "--trainer.callbacks+=tests.integration.test_train.Wanderer"]
    monkeypatch.chdir(tmp_path / "work")
    fit(tmp_path / "run", *more)
    folder = tmp_path / home / "mine" / "run"
    assert {"config.yaml", "metrics.csv", "checkpoints/last.ckpt"} <= set(contents(folder))
    assert [path for path in contents(tmp_path) if not (tmp_path / path).is_relative_to(folder)] == []
    assert yaml.safe_load((folder / "config.yaml").read_text())["runs"] == runs.replace("~", f"{tmp_path}/home")
    monkeypatch.chdir(tmp_path / ("other" if runs.startswith("~") else "work"))
    with pytest.raises(ValueError, match=r"Expected a folder without a run, but .*mine/run holds one"):
        fit(tmp_path / "run", *more)


def test_a_finished_run_that_is_started_again_is_no_error(evaluated_copy, capsys):
    before = contents(evaluated_copy)
    with pytest.raises(SystemExit) as end:
        fit(evaluated_copy)
    assert (end.value.code, "which is finished: there is nothing to train" in capsys.readouterr().out) == (0, True)
    with pytest.raises(ValueError, match=r"but got others\. model\.epsilon"):
        fit(evaluated_copy, "--model.epsilon=0.5")
    assert contents(evaluated_copy) == before


def test_the_saved_config_starts_the_same_run_elsewhere(tmp_path, finished_run):
    before = contents(finished_run)
    config = str(finished_run / "config.yaml")
    run_training(["fit", "--config", config, "--runs", str(tmp_path), "--experiment", "cub/again"])
    assert differences(state(tmp_path / "cub" / "again"), state(finished_run)) == []
    assert (tmp_path / "cub" / "again" / "metrics.csv").read_bytes() == before["metrics.csv"]
    assert contents(finished_run) == before


def test_the_saved_config_is_what_was_asked_for(run_copy):
    fit(run_copy, "--ckpt_path", "last")
    saved = yaml.safe_load((run_copy / "config.yaml").read_text())
    assert "ckpt_path" not in saved
    assert saved["trainer"]["default_root_dir"] is None
    assert saved["trainer"]["logger"]["init_args"] == {"save_dir": None, "resume_step": None}
    assert saved["experiment"] == "copy"


@pytest.mark.parametrize("subcommand", ["validate", "test"])
def test_other_subcommands_change_nothing(subcommand, run_copy):
    before = contents(run_copy)
    cli = run_training([subcommand, *fit_args(run_copy)[1:], "--ckpt_path", "last"])
    assert contents(run_copy) == before
    prefix = "val/" if subcommand == "validate" else ""
    assert 0 <= cli.trainer.callback_metrics[f"{prefix}general/accuracy"] <= 1
    if subcommand == "validate":
        last_row = [row for row in rows(run_copy) if row["val/general/accuracy"]][-1]
        assert float(last_row["val/general/accuracy"]) == cli.trainer.callback_metrics["val/general/accuracy"]


def test_flags_of_phases_and_a_run_without_bars_and_checkpoints(tmp_path, capsys):
    flags = ["--model.phases.warm.trainable.addon=1e-2", "--model.phases.joint=null", "--model.phases.joint2", "null"]
    switches = ["--trainer.enable_progress_bar=false", "--trainer.enable_checkpointing=false"]
    cli = fit(tmp_path / "run", *flags, *switches, drawn=True)
    warm, _ = cli.model.plan.phases
    assert (warm.epochs, warm.trainable["addon"]) == (1, 1e-2)  # the epochs are those given before
    left = {"config.yaml", "explanations", "metrics.csv", "prototypes", "training.png"}
    assert {name.split("/")[0] for name in contents(tmp_path / "run")} == left
    assert "· epoch" not in capsys.readouterr().out


@pytest.mark.parametrize("model", [["--config", f"{ROOT}/configs/quickstart.yaml"], ["--model", "ProtoPNet"]])
def test_phases_of_configs_and_flags_are_merged(model, tmp_path, capsys):
    (tmp_path / "later.yaml").write_text("model: {init_args: {phases: {warm: null, last: {losses: {cluster: 1}}}}}")
    flags = ["--model.phases.last.epochs", "3", "--config", str(tmp_path / "later.yaml"), "--data=SketchBirds"]
    with pytest.raises(SystemExit):
        run_training(["fit", *model, *flags, "--print_config"])
    phases = yaml.safe_load(capsys.readouterr().out)["model"]["init_args"]["phases"]
    assert phases["warm"] is None
    assert {"losses": {"cluster": 1}, "epochs": 3}.items() <= phases["last"].items()
    assert ("settle" in phases) == ("--config" in model)  # only the quick start names that phase


def test_null_means_the_same_in_flags_files_and_python_at_every_depth(tmp_path):
    """A phase that a config adds is gone, one of the preset is removed, and a key of a phase, too."""
    added = {
        "extra": {"epochs": 1, "trainable": {"addon": 1e-3}, "losses": {"cross_entropy": 1.0}},
        "warm": {"weight_decay": {"alien": 1e-4}},
    }
    said = {"extra": None, "settle": None, "joint2": None, "joint": {"trainable": {"backbone": None}}}
    said["warm"] = {"weight_decay": {"alien": None}}
    for name, phases in {"added": added, "said": said}.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"model": {"init_args": {"phases": phases}}}))
    first = ["fit", "--model=ProtoPNet", "--model.preset=pretrained", "--data=SketchBirds"]
    reader, first = train.settings_reader(), [*first, "--config", str(tmp_path / "added.yaml")]
    forms = [
        ["--config", str(tmp_path / "said.yaml")],
        ["--model.phases", json.dumps(said)],
        [f"--model.phases.{name}={json.dumps(change)}" for name, change in said.items()],
        ["--model.init_args.phases.extra=null", "--model.phases.settle", "null", "--model.phases.joint2=null",
         "--model.phases.joint.trainable", "{backbone: null}", "--model.phases.warm.weight_decay.alien=null"],
        ["--model.phases={extra: null, settle: null}", "--model.phases.joint2=null",
         "--model.phases.warm", "{weight_decay: {alien: null}}", "--model.phases.joint.trainable.backbone=null"],
    ]  # fmt: skip
    expected = {name: change for name, change in said.items() if name != "extra"} | {"warm": {"weight_decay": {}}}
    for form in forms:
        phases = reader.read([*first, *form])["model"]["init_args"]["phases"]
        assert phases == expected, form
        plan = ProtoPNet(num_classes=4, image_size=(32, 32), preset="pretrained", phases=phases).plan
        assert plan.names == ["warm", "joint", "last"]
        assert "backbone" not in plan.phases[1].trainable
    with pytest.raises(ValueError, match=r"Expected `phases.extra` to be one of .* to be removed"):
        ProtoPNet(num_classes=4, image_size=(32, 32), phases=said)


def test_a_trial_run_leaves_nothing_in_the_way_and_names_nothing_of_it(tmp_path, capsys):
    with warnings.catch_warnings(record=True) as warned:
        fit(tmp_path / "run", "--trainer.fast_dev_run=true", drawn=True)
    assert contents(tmp_path) == {}
    said = capsys.readouterr().out + "".join(str(warning.message) for warning in warned)
    assert [name for name in ("checkpoints/", "best.ckpt", "--ckpt_path", "Pass -1") if name in said] == []
    fit(tmp_path / "run", "--trainer.max_epochs=1")


def test_a_run_without_a_name(tmp_path, cub_tree):
    args = ["--seed_everything=3", f"--data.root={cub_tree()}", "--data.image_size=32", "--data.fold=1"]
    args += [f"--trainer.{each}" for each in ("max_epochs=1", "limit_train_batches=1", "logger=false")]
    command = fit_args(tmp_path / "runs" / "x", *args, model="Classifier", data="Cub200")
    at = command.index("--experiment")
    run_training(command[:at] + command[at + 2 :])
    folder = tmp_path / "runs" / "cub200" / "classifier-fold1-seed3"
    assert (folder / "checkpoints" / "last.ckpt").is_file()
    assert (folder / "config.yaml").is_file()
    record = json.loads((folder / "split.json").read_text())
    assert record["folds"] == len(record["val"]) == 4


def test_without_validation_the_last_checkpoint_is_evaluated(tmp_path, cub_tree):
    args = [f"--data.root={cub_tree()}", "--data.image_size=32", "--data.fold=null", "--test_after_fit=true"]
    args += ["--evaluation.suite=[general]"]
    fit(tmp_path / "run", "--trainer.max_epochs=1", *args, model="Classifier", data="Cub200")
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["last.ckpt"]
    result = json.loads((tmp_path / "run" / "evaluation" / "metrics.json").read_text())
    assert result["checkpoint"] == "checkpoints/last.ckpt"
    assert result["protocol"]["selection"] == "last epoch"


def test_a_run_that_validates_nothing_says_so_once(tmp_path, capsys):
    for flag in ("limit_val_batches=0", "check_val_every_n_epoch=2"):
        fit(tmp_path / flag, "--trainer.max_epochs=1", "--trainer.limit_train_batches=1", f"--trainer.{flag}")
        lines = [line for line in capsys.readouterr().out.splitlines() if "validation" in line or "best.ckpt" in line]
        assert [line.partition(":")[0] for line in lines] == ["validation  none"]


@pytest.mark.parametrize("subcommand", ["test", "validate"])
def test_random_weights_are_never_scored(subcommand, tmp_path):
    with pytest.raises(ValueError, match="Expected argument `ckpt_path` to name a checkpoint"):
        run_training([subcommand, *fit_args(tmp_path / "run")[1:]])


@pytest.mark.parametrize(("request_", "flag"), [("backbone", "backbone.until"), ("phases", "phases.NAME.epochs")])
def test_groups_of_settings_have_a_help_of_their_own(request_, flag, capsys):
    with pytest.raises(SystemExit, match="0"):
        run_training(["fit", "--model", "ProtoPNet", f"--model.{request_}.help"])
    assert f"--model.{flag}" in capsys.readouterr().out
