"""A file of the authors' released code becomes a run that all commands take, and that no table averages with ours."""

from pathlib import Path

import pytest
import torch

from protometry.datamodules import SketchBirds
from protometry.lightning_modules import ProtoPNet
from protometry.scripts import train
from tests.lightning_modules.test_released import RELEASED, SIZES, build, write

DATA = {"preset": "tiny", "image_size": 64, "train_size": 16, "val_size": 8, "test_size": 16}
RESNET = "{name: resnet18, weights: IMAGENET1K_V1}"  # which are nowhere, and not read


def convert(name, *more):
    """``train.py convert`` in process, into the run ``theirs``."""
    kind, _, options = RELEASED[name]
    backbone = RESNET.replace("}", ", strides: reduced}") if "backbone" in options else RESNET
    args = ["convert", "--runs", ".", "--experiment", "theirs", "--state_dict", "released.pth"]
    args += ["--model", kind.__name__, f"--model.backbone={backbone}"]
    args += [f"--model.{key}={value}" for key, value in SIZES[kind].items()]
    args += ["--data", "protometry.datamodules.SketchBirds", *(f"--data.{key}={value}" for key, value in DATA.items())]
    train.main([*args, "--trainer.accelerator=cpu", *more])


def test_a_run_is_neither_overwritten_nor_trained_on_and_nothing_is_left_of_a_failed_one():
    torch.save({"epoch": 3}, "released.pth")
    with pytest.raises(ValueError, match="to hold tensors by name"):
        convert("ProtoPNet")
    assert not Path("theirs").exists()
    write(build(RELEASED["ProtoPNet"][1]), ProtoPNet)
    convert("ProtoPNet")
    before = Path("theirs/checkpoints/last.ckpt").read_bytes()
    with pytest.raises(ValueError, match=r"but theirs holds checkpoints/last\.ckpt, config\.yaml\. Name another"):
        convert("ProtoPNet")
    with pytest.raises(ValueError, match="Start another run from its backbone with `--model"):
        train.main(["fit", "--config=theirs/config.yaml", "--ckpt_path=last"])
    assert Path("theirs/checkpoints/last.ckpt").read_bytes() == before
    checkpoint = torch.load("theirs/checkpoints/last.ckpt", weights_only=True)
    assert checkpoint["released"]["class_names"] == SketchBirds(**DATA).class_names
