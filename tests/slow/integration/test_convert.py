"""A file of the authors' released code becomes a run that all commands take, and that no table averages with ours."""

import csv
import hashlib
import json
from pathlib import Path

import pytest
import torch

from protometry.datamodules import SketchBirds
from protometry.lightning_modules import PIPNet
from protometry.lightning_modules.released import FORMATS
from protometry.scripts import evaluate
from tests.integration.test_convert import DATA, convert
from tests.lightning_modules.test_released import RELEASED, build, their_logits, write


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
