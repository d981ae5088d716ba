"""Data sets of others on the command line."""

import torch

from protometry.datamodules import load_datamodule
from protometry.lightning_modules import load_model
from tests.datamodules.test_wrapped import OwnShapes
from tests.tiny_runs import fit, run_evaluation


def test_a_subclass_serves_the_command_line(tmp_path):
    folder = tmp_path / "own"
    own = [f"--data={OwnShapes.__module__}.OwnShapes", "--data.image_size=32", "--data.batch_size=12"]
    fit(folder, *own, "--trainer.max_epochs=1", model="Classifier", data=f"{OwnShapes.__module__}.OwnShapes")
    run_evaluation(folder, "--suite", "general,compactness")
    fit(folder, *own, "--ckpt_path=last", model="Classifier", data=f"{OwnShapes.__module__}.OwnShapes")
    straight = tmp_path / "straight"
    fit(straight, *own, model="Classifier", data=f"{OwnShapes.__module__}.OwnShapes")
    one, other = (load_model(path / "checkpoints/last.ckpt").state_dict() for path in (folder, straight))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert load_datamodule(folder / "checkpoints/last.ckpt", allow_classes=["tests"]).dataset_name == "OwnShapes"
