"""The way of a user through the commands, with every model: no step may end in an error that only one model meets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from PIL import Image

import evaluate
import studies.__main__ as studies
from datamodules import load_datamodule
from lightning_modules import load_model
from tests.tiny_runs import ARGUMENTS, ROOT, fit

pytestmark = pytest.mark.slow

MODELS = [*ARGUMENTS, "ProtoPNet", "ProtoPNet pruned"]
ACROSS = ["--across+=explainer", "--across+=explained_by"]  # BagNet's maps are its own
FORMS = {"ProtoTree": "tree", **dict.fromkeys(("ProtoPNet", "ProtoPNet pruned", "ProtoPool", "PIPNet"), "units")}


def train(folder: Path, name: str, *more: str) -> None:
    """Train a model, and evaluate it at its end with every metric."""
    model, *pruned = name.split()
    phases = {
        "BagNet": ["--model.phases.train.epochs=16"],
        "ProtoPNet": ["--model.phases.joint2=null"],  # as the plan ends, units are the patches they were projected onto
    }
    pruning = ["--config", f"{ROOT}/configs/model/protopnet_pruned.yaml", "--model.phases.prune.epochs=1"]
    data = ["--data.train_size=320", "--data.batch_size=32", "--test_after_fit=true", "--evaluation.suite=[all]"]
    fit(folder, *data, *phases.get(model, []), *(pruning if pruned else []), *more, model=model)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "other"
    train(folder, "Classifier")
    return folder


class Journey:
    """One model on its way, on the backbone of a trained black box where it has the same."""

    def __init__(self, folder: Path, name: str, weights: Path) -> None:
        self.folder, self.name = folder, name
        started = f"--model.backbone={{name: sketch, weights: {weights}}}"
        self.more = [] if name in ("Classifier", "BagNet") else [started]
        train(folder, name, *self.more)
        self.checkpoint = str(folder / "checkpoints" / "last.ckpt")


@pytest.fixture(scope="module", params=MODELS)
def journey(request, tmp_path_factory, other):
    folder = tmp_path_factory.mktemp("runs") / request.param.replace(" ", "-")
    return Journey(folder, request.param, other / "checkpoints" / "last.ckpt")


def test_evaluate_and_report(journey, capsys):
    evaluate.main(
        ["run", "--ckpt_path", journey.checkpoint, "--suite", "all", "--limit", "12", "--trainer.accelerator=cpu"]
    )
    assert "index.html" in capsys.readouterr().out
    evaluate.main(["report", "--ckpt_path", journey.checkpoint])


def test_table(journey, other, capsys):
    evaluate.main(["table", str(journey.folder), str(other)])
    evaluate.main(["table", str(journey.folder), str(other), "--published", "quanproto"])
    print(capsys.readouterr().out)


def test_compare(journey, other, capsys):
    evaluate.main(["compare", str(journey.folder), str(other), "--images", "3", *ACROSS])
    assert "pages:" in capsys.readouterr().out


def test_explain(journey, tmp_path):
    photo = tmp_path / "photo.png"
    Image.effect_noise((50, 40), 60).convert("RGB").save(photo)
    name = load_datamodule(journey.checkpoint).dataset("test").sample_ids[0]
    evaluate.main(["explain", "--ckpt_path", journey.checkpoint, "--image", str(photo), "--sample", name])
    assert len(list((journey.folder / "explained").glob("*.png"))) == 2


def test_study(journey, tmp_path):
    arm = {"id": "model", "ckpt_path": journey.checkpoint, "form": FORMS.get(journey.name, "heatmap")}
    consent = tmp_path / "consent.md"
    consent.write_text("Do you take part?")
    study = {
        "id": "birds", "title": "Birds", "task": "agreement", "items": 2, "consent": str(consent),
        "assignment": {"people": 2, "right": 1, "wrong": 1}, "arms": [arm],
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    assert studies.main(["build", "--config", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "study")]) == 0
    assert studies.main(["simulate", str(tmp_path / "study")]) == 0
    answers = ["--database", str(tmp_path / "study" / "simulated.sqlite")]
    assert studies.main(["analyse", str(tmp_path / "study"), *answers]) == 0


def test_resume(journey):
    train(journey.folder, journey.name, *journey.more, "--ckpt_path", "last")


def test_load(journey):
    model, data = load_model(journey.checkpoint), load_datamodule(journey.checkpoint)
    batch = next(iter(data.test_dataloader()))
    assert torch.isfinite(model(batch["image"]).logits).all()
