"""The commands of the README, of ``docs/`` and of the headers of configs, run as printed on small stand-ins.

The commands about the study ``studies/birds`` are run in a clean clone, with models that are trained as printed.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from unittest import mock

import pytest
import torch
import torchvision
from PIL import Image

import protometry.datamodules.__main__
import protometry.evaluation.__main__
import protometry.evaluation.audit
import protometry.studies.__main__
import protometry.sweeps.__main__
from protometry.scripts import evaluate, train
from tests.cub_tree import make_cub
from tests.pages import DOCS
from tests.tiny_runs import ROOT, fit_learning

MAIN = {"train.py": train.main, "evaluate.py": evaluate.main, "studies": protometry.studies.__main__.main}
MAIN |= {"datamodules": protometry.datamodules.__main__.main, "sweeps": protometry.sweeps.__main__.main}
MAIN |= {"export": protometry.evaluation.__main__.main, "audit": protometry.evaluation.audit.main}
YAML = re.compile(r"^```yaml\n(?P<text># (?P<name>\S+\.yaml):.*?)^```", re.DOTALL | re.MULTILINE)
RUNS = {  # a small model for every run folder that a page names
    "ProtoPNet": "quickstart first birds/seed0 cub200/protopnet-mobilenet results/protopnet-seed0",
    "Classifier": "second birds/seed1 classifier/0 pipnet/0 sketch_birds/classifier hive/cub-classifier "
    "results/pipnet-seed0",
    "ConceptBottleneck": "my_run concepts/sketch_birds_bottleneck",
    "PosthocCBM": "concepts/cub_posthoc qpm/0",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with everything that the pages name."""
    place = tmp_path_factory.mktemp("place")
    (place / "configs").symlink_to(ROOT / "configs")
    shutil.copy(ROOT / "configs/study/consent.md", place)
    for model, names in RUNS.items():
        trained = place / "trained" / model
        with mock.patch("protometry.evaluation.evaluate.build_report"):
            fit_learning(trained, "--test_after_fit=true", "--data.train_size=96", "--data.test_size=20", model=model)
        for name in names.split():
            shutil.copytree(trained, place / "runs" / name)
    done = place / "runs/quickstart"
    checkpoint = done / json.loads((done / "evaluation/metrics.json").read_text())["checkpoint"]
    again = ["--overwrite=true", "--maps=true", "--report=false", "--trainer.accelerator=cpu"]
    MAIN["evaluate.py"](["run", "--ckpt_path", str(checkpoint), *again])
    for name in ("PHOTO", "OTHER_PHOTO"):
        Image.effect_noise((50, 40), 60).convert("RGB").save(place / name, "png")
    for name in ("DIR", "CUB"):
        make_cub(place / name, classes=10)
    torch.save(torchvision.models.mobilenet_v2().state_dict(), place / "FILE")
    write_files(DOCS / "folds_and_seeds.md", place)
    MAIN["export"]([str(place / "runs/quickstart"), "--out", str(place / "model")])
    return place


def write_files(page: Path, place: Path) -> None:
    """Write the yaml files that a page shows."""
    for file in YAML.finditer(page.read_text("utf-8")):
        (place / file["name"]).write_text(file["text"], "utf-8")
