"""Mistakes end in one clear error: settings before work, bad numbers at once."""

import errno
import io
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from protometry.callbacks.phases.phase_schedule import ACTIONS
from protometry.callbacks.run import checkpoint as checkpoint_module
from protometry.datamodules import SketchBirds
from protometry.run_folder.folder import check_unchanged
from protometry.run_folder.free_folder import check_free
from protometry.scripts import train
from tests.tiny_runs import DATA as TINY
from tests.tiny_runs import NOISY, STEPS_PER_EPOCH, NoisyProtoPNet, fit, fit_args, last, only_fit, run_evaluation


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# -- settings ---------------------------------------------------------------------------------------------------------
PARSER = [
    ("--model.protos=3", "'protos' is not accepted"),
    ("--modle.preset=sketch", "modle.preset"),
    ("--data.batch_size=many", "Expected a <class 'int'>. Got value: many"),
    ("--model=protometry.lightning_modules.ProtoPnet", "Did you mean 'protometry.lightning_modules.ProtoPNet'?"),
    ("--data.preset=smal", "'full'.*Got value: smal. Did you mean 'small'"),
    ("--model.phases={warm: {epoch: 1}}", "Unexpected keys: {'epoch'}"),
    ("--model.phases={warm: {epochs: 1, epochs: 2}}", "Expected every key once, but `epochs` appears twice"),
    ("--model.phases.warm.epoch=1", "Unexpected keys: {'epoch'}"),
    ("--model.phases.warm.trainable.addon=.nan", "finite numbers .* got nan as `phases.warm.trainable.addon`"),
    ("--evaluation.memory_budget=.inf", "Expected finite numbers only, but got inf as `evaluation.memory_budget`"),
    ("--experiment=caf\udce9", r"Expected arguments in UTF-8, but got '--experiment=caf\\udce9'"),
    ("--data.seed=3", "`data.seed` to be left out, .* the run, but got 3. Pass `--seed_everything 3`"),
    ("--data.init_args.seed=9", "`data.seed` to be left out, .* the run, but got 9. Pass `--seed_everything 9`"),
    ("--seed_everything=true", "\"seed_everything\": Expected a <class 'int'>. Got value: True"),
]
SETTINGS = [
    ("--trainer.max_steps=0", "`trainer.max_steps` to be at least 1, or -1 for no limit, but got 0"),
    ("--trainer.max_time={days: -1}", "`trainer.max_time` to be a positive time, but got {'days': -1}"),
    ("--seed_everything=-1", "`seed_everything` to be at least 0, but got -1"),
    ("--trainer.accumulate_grad_batches=0", "`trainer.accumulate_grad_batches` to be at least 1, but got 0"),
    ("--trainer.val_check_interval=0", "`trainer.val_check_interval` to be above 0, but got 0"),
    ("--trainer.precision=64-true", "`trainer.precision` to be one of 32, .*bf16-mixed, but got 64-true"),
    ("--trainer.strategy=ddp_spawn", "`trainer.strategy` to start processes as `ddp` does, but got ddp_spawn"),
    ("--model.num_concepts=-1", "`model.num_concepts` to be left out, .* the data, but got -1"),
    ("--runs=", "`runs` to name a folder, but got ''"),
]
MODEL = [
    ("preset=orignal", r"`preset` to be one of \[.*'original', .*got 'orignal'. Did you mean 'original'"),
    ("preset=null", "Expected argument `preset` to be one of .*'original', .*but got None."),
    ("backbone={name: resnet19}", "`backbone.name` to be one of .*Did you mean 'resnet18'"),
    ("phases={warmup: {epochs: 1}}", "Expected `phases.warmup` to be one of .*'warm'.*or a new phase"),
    ("phases={warm: {losses: {clst: 1}}}", "`phases.warm.losses` to use only .*'cluster'.*got .'clst'"),
    ("phases={warm: {trainable: {body: 1}}}", "`phases.warm.trainable` to use .*'backbone'.*got .'body'"),
    ("phases={warm: {on_enter: [push]}}", "`phases.warm.on_enter` to use only .*'project'.*got .'push'"),
    ("phases={new: {epochs: 1, trainable: {head: 1}, losses: {}}}", "`phases.new.losses` to name some of"),
    ("phases={warm: {epochs: 0}}", "Expected argument `epochs` of phase 'warm' to be at least 1"),
    ("phases={warm: null, joint: null, last: null, joint2: null, last2: null}", "leave at least one phase"),
    (
        "phases={warm: {epochs: 0, losses: {x: null}}, jiont: {epochs: 1}, nope: null}",
        "warm.losses` to remove only .* of phase 'warm' to be at least 1 .*`phases.jiont` to .*`phases.nope` to",
    ),
]
DATA = [
    ("test_size=1000000000000", "Expected every split to have at most 10000000 images, but got 10000000000"),
    ("image_size=8", "Expected argument `image_size` to be at least 16"),
    ("batch_size=0", "Expected argument `batch_size` to be at least 1"),
    ("num_workers=1000000000", "Expected argument `num_workers` to be at most 1024, but got 1000000000"),
    ("eval_batch_size=0", "Expected argument `eval_batch_size` to be at least 1"),
]
START = [
    ("--model.epoch_scale=1e9", "`epoch_scale` to make at most 100000 of .*, but got 1000000000.0"),
    ("--experiment=../x", "`experiment` to name a folder below `--runs`, but got '../x'"),
    ("--experiment=", "`experiment` to name a folder below `--runs`, but got ''"),
    ("--experiment=/tmp/x", "`experiment` to name a folder below `--runs`, but got '/tmp/x'"),
    ("--trainer.max_epochs=0", "Expected `trainer.max_epochs` to be .*5 epochs of the phase plan, but got 0"),
    ("--evaluation.top_k=500", "`top_k` to be at most 16, the units of the model, but got 500"),
    ("--trainer.max_epochs=99", "Expected `trainer.max_epochs` to be .*5 epochs of the phase plan, but got 99"),
    ("--trainer.limit_train_batches=0", "`trainer.limit_train_batches` to leave a batch to train on, but got 0"),
    ("--trainer.accelerator=abacus", "Expected settings below `trainer` that Lightning accepts, .*'abacus'"),
    ("--checkpoint.monitor=general/accuracy", "Expected argument `monitor` to be a validation key"),
    ("--checkpoint.monitor=val/general/acc", "Expected argument `monitor` to be one of .*'val/general/accuracy'"),
    ("--checkpoint.mode=min", "`mode` to be 'max', because larger values of val/general/accuracy .* but got 'min'"),
    ("--media.explainer=protometry.explanations.CoAM", "Expected argument `explainer` to support the model, but"),
    ("--evaluation.suite=[]", "Expected argument `suite` to name at least one metric, but got none"),
    ("--evaluation.suite=[genral]", "Expected argument `suite` to hold names among .*'general'.*got .'genral'"),
    ("--trainer.logger={class_path: protometry.callbacks.RunWandbLogger, init_args: {save_dir: ''}}", "`save_dir`"),
]


@pytest.fixture(scope="module")
def reader():
    with only_fit():
        return train.settings_reader()


def test_what_the_parser_refuses(reader, tmp_path, capsys):
    for parse, argument, message in [(train.main, *PARSER[0]), *((reader.read, *each) for each in PARSER)]:
        with pytest.raises(SystemExit, match="2"):
            parse(fit_args(tmp_path / "run", argument))
        _, text = capsys.readouterr().err.splitlines()  # after a tip where to look
        assert re.search(message, text), text
    assert files(tmp_path) == []


def test_all_settings_that_lightning_would_accept_are_refused_at_once(tmp_path):
    with pytest.raises(ValueError, match="Expected ") as error:
        fit(tmp_path / "run", *(argument for argument, _ in SETTINGS))
    for _, message in SETTINGS:
        assert re.search(message, str(error.value)), message


def check_plan(model):
    model.phases().check(model.parameter_groups(), model.loss_terms(), [*ACTIONS, *model.actions])


@pytest.mark.parametrize(("setting", "message"), MODEL)
def test_what_a_model_refuses(setting, message):
    name, _, value = setting.partition("=")
    options = {"num_classes": 8, "image_size": (32, 32), "preset": "original", name: yaml.safe_load(value)}
    with pytest.raises(ValueError, match=message):
        check_plan(NoisyProtoPNet(**options))


@pytest.mark.parametrize(("setting", "message"), DATA)
def test_what_data_refuse(setting, message):
    name, _, value = setting.partition("=")
    with pytest.raises(ValueError, match=message):
        SketchBirds(**{**TINY, name: int(value)})


@pytest.mark.parametrize(("argument", "message"), [(f"--data.{DATA[0][0]}", DATA[0][1]), *START])
def test_what_is_refused_before_training(argument, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        fit(tmp_path / "run", argument)
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert not (tmp_path / "run" / "metrics.csv").exists()


def test_a_section_of_a_config_that_is_null(reader, tmp_path):
    for section in ("evaluation", "media", "trainer"):
        (tmp_path / "null.yaml").write_text(f"{section}: null\n")
        with pytest.raises(ValueError, match=f"Expected `{section}` to hold settings as `key: value`, but got null."):
            reader.read(fit_args(tmp_path / "run", "--config", str(tmp_path / "null.yaml")))


def test_a_corrected_start_takes_the_same_folder(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match="`monitor`"):
        fit(folder, "--checkpoint.monitor=val/general/acc", "--trainer.logger=protometry.callbacks.RunWandbLogger")
    assert not folder.exists()  # no W&B run has started
    fit(folder, "--trainer.max_epochs=1")
    assert last(folder)["global_step"] == STEPS_PER_EPOCH


def test_a_monitor_that_does_not_apply_ends_the_first_epoch(tmp_path, cub_tree):
    args = [f"--data.root={cub_tree()}", "--data.image_size=32", "--checkpoint.monitor=val/general/top3_accuracy"]
    with pytest.raises(ValueError, match="but got 'val/general/top3_accuracy', which is not applicable"):
        fit(tmp_path / "run", *args, model="Classifier", data="Cub200")
    assert last(tmp_path / "run")["global_step"] == 0


def test_missing_data(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Expected argument `root` to be a folder, but there is none at .*Get"):
        fit(tmp_path / "run", f"--data.root={tmp_path / 'nowhere'}", model="Classifier", data="Cub200")


# -- resuming ---------------------------------------------------------------------------------------------------------
def test_last_without_a_run(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Expected .*run/checkpoints/last.ckpt to resume from"):
        fit(tmp_path / "run", "--ckpt_path", "last")
    with pytest.raises(FileNotFoundError, match=r"to be a checkpoint file, but nothing.ckpt does not exist"):
        fit(tmp_path / "run", "--ckpt_path", "nothing.ckpt")
    assert files(tmp_path) == []


def test_a_fresh_run_on_top_of_another(run_copy):
    kept = {path: path.read_bytes() for path in run_copy.rglob("*.*")}
    with pytest.raises(ValueError, match="Resume it with `--ckpt_path last`"):
        fit(run_copy)
    assert {path: path.read_bytes() for path in run_copy.rglob("*.*")} == kept
    for name in ("checkpoints/best.ckpt", "config.yaml", "metrics.csv"):
        path = run_copy.parent / Path(name).stem / name
        path.parent.mkdir(parents=True)
        path.touch()
        with pytest.raises(ValueError, match=rf"holds {name}\. Name another with `--experiment NAME` or `--runs DIR`"):
            check_free(run_copy.parent / Path(name).stem)


def test_a_run_within_another(run_copy, finished_run):
    shutil.copytree(finished_run, run_copy / "sub")
    with pytest.raises(ValueError, match=r"Expected a folder without a run, but .*copy holds one"):
        fit(run_copy, "--ckpt_path", str(run_copy / "sub" / "checkpoints" / "last.ckpt"))
    with pytest.raises(ValueError, match=r"other lies in the run .*copy"):
        fit(run_copy / "other")
    fit(run_copy / "sub", "--ckpt_path", "last")  # one that is there already continues


CHANGED = [
    ("--model.preset=sketch", "model.preset: 'original' in the run, 'sketch' requ"),
    ("--model.prototypes_per_class=3", "model.prototypes_per_class: 2 in the run, 3 requested"),
    ("--model.phases.joint.epochs=1", "others. model.phases.joint.epochs: 2 in the run, 1 reques"),
    ("--model=protometry.lightning_modules.Classifier", "model: tests.*NoisyProtoPNet in the run, "),
    ("--data.batch_size=8", "data.batch_size: 12 in the run, 8 requested"),
    ("--data.test_size=null", "data.test_size: 33 in the run, None requested"),
    ("--seed_everything=1", "data.seed: 0 in the run, 1 requested"),
]


def test_changed_settings(reader, run_copy, finished_run):
    expected = "Expected the settings that .* was trained with.*"
    for argument, message in CHANGED:
        args = fit_args(run_copy, argument)
        if argument.startswith("--model="):
            args = [argument if a == NOISY else a for a in fit_args(run_copy) if not a.startswith("--model")]
        asked = reader.parser.parse_args(args).fit
        with pytest.raises(ValueError, match=expected + message):
            check_unchanged(run_copy / "checkpoints" / "last.ckpt", asked.model.as_dict(), asked.data.as_dict())
    for path in ("last", str(run_copy / "checkpoints" / "best.ckpt")):
        with pytest.raises(ValueError, match=expected + CHANGED[0][1]):
            fit(run_copy, CHANGED[0][0], "--ckpt_path", path)
    assert files(run_copy) == files(finished_run)


def test_data_with_other_classes_than_the_checkpoint(tmp_path, cub_tree):
    folder, args = tmp_path / "run", ["--data.image_size=32", "--model.phases={train: {epochs: 1}}"]
    kinds = {"model": "Classifier", "data": "Cub200"}
    fit(folder, f"--data.root={cub_tree('three')}", *args, **kinds)
    other = cub_tree("four", classes=4)
    with pytest.raises(ValueError, match="Expected data with the 3 classes of the checkpoint, but Cub200 has 4"):
        fit(folder, f"--data.root={other}", *args, "--ckpt_path", "last", **kinds)
    with pytest.raises(ValueError, match=r"Expected data with the 3 classes of .*last.ckpt, but Cub200 has 4"):
        run_evaluation(folder, "--data_root", str(other))
    assert not (folder / "evaluation").exists()


# -- bad numbers and full disks ---------------------------------------------------------------------------------------
def test_a_loss_that_is_not_finite_names_phase_step_and_samples(tmp_path):
    phases = "{warm: {trainable: {addon: 1.0e+30, prototypes: 1.0e+30}}}"
    with pytest.raises(RuntimeError, match=r"loss is (nan|-?inf) in phase 'warm' at step 2, .*train/\d+, train/\d"):
        fit(tmp_path / "run", f"--model.phases={phases}")
    assert last(tmp_path / "run")["global_step"] == 0


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    folder, save = tmp_path / "run", torch.save

    class FullDisk(io.BytesIO):
        def write(self, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fills_the_disk(checkpoint, file):
        save(checkpoint, FullDisk() if checkpoint["global_step"] == 2 * STEPS_PER_EPOCH else file)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module.torch, "save", fills_the_disk)
        with pytest.raises(OSError, match=r"Could not write .*last.ckpt .*No space left.*the earlier last.ckpt is unt"):
            fit(folder)
    assert last(folder)["global_step"] == STEPS_PER_EPOCH
    assert files(folder / "checkpoints") == ["last.ckpt"]
