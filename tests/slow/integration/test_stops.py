"""Commands that a signal ends at a named moment: said, with 128 + n, nothing left in the way of the next command."""

import multiprocessing
import os
import shlex
import signal
import sys
from functools import partial
from pydoc import locate

import pytest

from protometry.evaluation.__main__ import main as export
from protometry.run_folder.command_line.ending import from_shell
from protometry.scripts import evaluate
from tests.tiny_runs import STEPS_PER_EPOCH, fit, last, run_evaluation

CLEAN = multiprocessing.get_context("forkserver")  # a fork of ours might inherit threads of autograd
CLEAN.set_forkserver_preload(["protometry.scripts.train", "protometry.scripts.evaluate"])  # once, for all of them


def stopped(moment, number, said, command):
    """Send a signal to this process where a function is called first, in a command of its own."""
    holder, _, name = moment.rpartition(".")
    usual = getattr(locate(holder), name)

    def stop(*args, **options):
        os.kill(os.getpid(), number)
        return usual(*args, **options)

    setattr(locate(holder), name, stop)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a process in the background lacks
    with said.open("a") as sys.stdout, said.open("a") as sys.stderr:
        from_shell(command)


def end(tmp_path, moment, number, command):
    """The exit status of a command, and the last line that it says."""
    said = tmp_path / "said.txt"
    process = CLEAN.Process(target=stopped, args=(moment, number, said, command))
    process.start()
    process.join(60)
    return process.exitcode, said.read_text().strip().splitlines()[-1]


def in_the_way(folder):
    return [path for path in folder.rglob("*") if path.name == ".lock" or path.suffix == ".part"]


@pytest.mark.parametrize(
    ("moment", "number", "resumes"),
    [
        ("protometry.lightning_modules.backbones.kept_features.KeptFeatures.keep", signal.SIGTERM, True),
        ("protometry.datamodules.SketchBirds.setup", signal.SIGTERM, False),
        ("protometry.callbacks.Interpretability.on_validation_batch_end", signal.SIGHUP, True),
        ("protometry.callbacks.RunCheckpoint.on_train_epoch_end", signal.SIGTERM, True),
        ("protometry.callbacks.phases.projection.nearest_patches", signal.SIGINT, True),
        ("protometry.scripts.train.TrainCLI.after_fit", signal.SIGUSR1, True),
    ],
)
def test_a_training(moment, number, resumes, tmp_path):
    folder, more = tmp_path / "runs" / "run", [f"--data.cache={tmp_path / 'cache'}"]
    code, line = end(tmp_path, moment, number, partial(fit, folder, *more))
    assert code == 128 + number
    assert line.endswith("with `--ckpt_path last`." if resumes else "Run the command again.")
    assert in_the_way(tmp_path) == []
    if "epoch_end" in moment:
        assert last(folder)["global_step"] == STEPS_PER_EPOCH  # which was validated, and is not trained again
    fit(folder, *more, *(["--ckpt_path=last"] if resumes else []))


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("protometry.callbacks.Interpretability.on_test_batch_end", signal.SIGTERM),
        ("protometry.evaluation.evaluate.remove_maps", signal.SIGHUP),
        ("protometry.evaluation.pages.site.Site.page", signal.SIGTERM),
    ],
)
def test_an_evaluation(moment, number, tmp_path, run_copy):
    call = ("--report", "true", "--suite", "general,compactness", "--overwrite", "true")
    code, line = end(tmp_path, moment, number, partial(run_evaluation, run_copy, *call))
    assert code == 128 + number
    assert in_the_way(run_copy) == []
    if "site" in moment:
        evaluate.main([*shlex.split(line.partition("evaluate.py ")[2].removesuffix("`.")), "--allow_classes", "tests"])
    else:
        assert line.endswith("Run the command again.")
        run_evaluation(run_copy, *call)
    assert (run_copy / "evaluation" / "report" / "index.html").is_file()


def test_an_export(tmp_path, run_copy):
    call = [str(run_copy), "--out", str(tmp_path / "model"), "--allow_classes", "tests"]
    moment = "protometry.evaluation.export.export.write_exported"
    ended = end(tmp_path, moment, signal.SIGTERM, partial(export, call))
    assert ended == (143, "Stopped by SIGTERM. Run the command again.")
    assert [path.name for path in tmp_path.iterdir() if "model" in path.name] == []
    export(call)
