"""The way of a user through the commands, with every model: no step may end in an error that only one model meets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from PIL import Image

import protometry.studies.__main__ as studies
from protometry.callbacks.run.training_curves import TrainingCurves
from protometry.datamodules import load_datamodule
from protometry.metrics.suite import ENTRIES, resolve
from tests.tiny_runs import ARGUMENTS, ROOT, fit_learning, run_command

MODELS = [*ARGUMENTS, "ProtoPNet", "ProtoPNet pruned"]
PRUNING = ["--config", f"{ROOT}/configs/model/protopnet_pruned.yaml", "--model.phases.prune.epochs=1"]
HEADS = ("ProtoPNet", "ConceptBottleneck", "QPM")  # from whose scores sparse heads are solved, which takes long
EVERY = resolve(["all"])
OTHERS = [key for key in EVERY if ENTRIES[key].view != "sparse_heads"]
SIZES = ["--data.train_size=160", "--data.test_size=24"]
ACROSS = ["--across+=explainer", "--across+=explained_by"]  # BagNet's maps are its own
PARTS = ("ProtoPNet", "ProtoPNet pruned", "ProtoPool", "PIPNet", "STProtoPNet", "TesNet")
FORMS = {"ProtoTree": "tree", **dict.fromkeys(PARTS, "units")}


def fit_all(folder: Path, *more: str, model: str, **kinds: Any) -> None:
    """Train, and evaluate the best checkpoint with every metric; its pages are left to ``evaluate.py``.

    The curves of the training are the same for all models.
    """
    suite = f"--evaluation.suite={json.dumps(EVERY if model in HEADS else OTHERS)}"
    with mock.patch("protometry.evaluation.evaluate.build_report"), mock.patch.object(TrainingCurves, "_draw"):
        fit_learning(folder, "--test_after_fit=true", suite, *SIZES, *more, model=model, **kinds, drawn=True)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A run to compare with, whose backbone the other models start from."""
    folder = tmp_path_factory.mktemp("runs") / "other"
    fit_all(folder, model="Classifier")
    return folder


class Journey:
    """One model on its way."""

    def __init__(self, folder: Path, name: str, weights: Path) -> None:
        self.folder, self.name = folder, name
        self.checkpoint = str(folder / "checkpoints" / "last.ckpt")
        self.weights = weights
        self.fit()
        best = folder / "checkpoints" / "best.ckpt"  # a ProtoTree has only the last, which its plan ends with
        self.measured = str(best) if best.exists() else self.checkpoint  # with every metric

    def fit(self, *more: str) -> None:
        model, *pruned = self.name.split()
        fit_all(self.folder, *(PRUNING if pruned else []), *more, model=model, weights=self.weights)


@pytest.fixture(scope="module", params=MODELS)
def journey(request, tmp_path_factory, other):
    folder = tmp_path_factory.mktemp("runs") / request.param.replace(" ", "-")
    return Journey(folder, request.param, other / "checkpoints" / "last.ckpt")


def test_evaluate(journey):
    few = ["--suite", "general,compactness", "--limit", "4", "--trainer.accelerator=cpu", "--report", "false"]
    run_command("run", "--ckpt_path", journey.checkpoint, *few)


def test_report(journey, capsys):
    run_command("report", "--ckpt_path", journey.measured, "--limits.images=2", "--limits.units=2")
    assert "index.html" in capsys.readouterr().out


def test_table(journey, other, capsys):
    run_command("table", str(journey.folder), str(other), "--published", "quanproto")
    assert "general/accuracy" in capsys.readouterr().out


def test_compare(journey, other, capsys):
    run_command("compare", str(journey.folder), str(other), "--images", "1", *ACROSS)
    assert "pages:" in capsys.readouterr().out


def test_predict(journey):
    """The checkpoint that was evaluated after training predicts what was measured."""
    run_command("predict", "--ckpt_path", journey.measured, "--trainer.accelerator=cpu")
    files = (journey.folder / "predictions.csv", journey.folder / "evaluation" / "images.csv")
    predicted, measured = ([",".join(line.split(",")[:5]) for line in path.read_text().splitlines()] for path in files)
    assert predicted == measured


def test_explain(journey, tmp_path):
    photo = tmp_path / "photo.png"
    Image.effect_noise((50, 40), 60).convert("RGB").save(photo)
    name = load_datamodule(journey.checkpoint).dataset("test").sample_ids[0]
    run_command("explain", "--ckpt_path", journey.checkpoint, "--image", str(photo), "--sample", name)
    assert len(list((journey.folder / "explained").glob("*.png"))) == 2


def test_study(journey, tmp_path):
    arm = {"id": "model", "ckpt_path": journey.checkpoint, "form": FORMS.get(journey.name, "heatmap")}
    consent = tmp_path / "consent.md"
    consent.write_text("Do you take part?")
    study = {
        "id": "birds", "title": "Birds", "task": "agreement", "items": 1, "consent": str(consent),
        "assignment": {"people": 2, "right": 1, "wrong": 1}, "arms": [arm],
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    assert studies.main(["build", "--config", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "study")]) == 0
    assert studies.main(["simulate", str(tmp_path / "study")]) == 0
    answers = ["--database", str(tmp_path / "study" / "simulated.sqlite")]
    assert studies.main(["analyse", str(tmp_path / "study"), *answers]) == 0


def test_resume(journey):
    """The finished run, which is not evaluated again."""
    journey.fit("--ckpt_path", "last", "--test_after_fit=false")
