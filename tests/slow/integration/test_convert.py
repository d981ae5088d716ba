"""A file of the authors' released code becomes a run that all commands take, and that no table averages with ours."""

import csv
import hashlib
import json
from pathlib import Path

import pytest
import torch

from protometry.datamodules import SketchBirds
from protometry.lightning_modules import PIPNet, ProtoPNet
from protometry.lightning_modules.released import FORMATS
from protometry.scripts import evaluate, train
from tests.lightning_modules.test_released import RELEASED, SIZES, build, their_logits, write

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


def evaluated(command, *more):
    evaluate.main([command, "--ckpt_path", "theirs/checkpoints/last.ckpt", *more])


@pytest.mark.parametrize("name", ["ProtoPNet pruned", "ProtoPool", "PIPNet", "ProtoTree pruned"])
def test_a_released_file_is_evaluated_as_the_authors_layers_decide(name, capsys):
    kind, make, _ = RELEASED[name]
    authors = build(make)
    write(authors, kind)
    convert(name)
    evaluated("run", "--suite=general", "--trainer.accelerator=cpu")
    images = SketchBirds(**DATA).dataset("test")
    logits = their_logits(authors, torch.stack([images[index]["image"] for index in range(len(images))]))
    expected = (logits.pow(2.5).log1p() if kind is PIPNet else logits).softmax(dim=1)
    with Path("theirs/evaluation/images.csv").open() as file:
        rows = {row["sample_id"]: row for row in csv.DictReader(file)}
    for probabilities, name in zip(expected, images.sample_ids, strict=True):
        row, best = rows[name], SketchBirds(**DATA).class_names.index(rows[name]["prediction"])
        assert float(row["probability"]) == pytest.approx(probabilities.max().item(), abs=1e-5)
        assert probabilities[best].item() == pytest.approx(probabilities.max().item(), abs=1e-5)
    result = json.loads(Path("theirs/evaluation/metrics.json").read_text())
    protocol = result["protocol"]
    assert protocol["trained_with"] == FORMATS[kind].code
    assert protocol["state_dict"] == {
        "file": "released.pth",
        "sha256": hashlib.sha256(Path("released.pth").read_bytes()).hexdigest(),
    }
    unknown = {"selection": "not recorded", "augmentation": "not recorded", "train_seed": None}
    assert protocol | unknown == protocol
    assert protocol["weights"] == "IMAGENET1K_V1"  # said by the config
    assert not {"preset", "phases", "epoch_scale"} & result["training"]["model"].keys()
    evaluated("predict", "--trainer.accelerator=cpu")
    evaluated("explain", f"--sample={images.sample_ids[0]}")
    evaluated("metrics", "--suite=general")
    assert "general/accuracy" in capsys.readouterr().out
