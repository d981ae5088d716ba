"""The way of a user with a backbone that is not one of ours, from the config to the pages."""

from __future__ import annotations

import json

import pytest

from protometry.scripts import evaluate
from tests.lightning_modules.backbones.test_libraries import PATCHES
from tests.tiny_runs import fit, run_evaluation

WAYS = {
    PATCHES: f"{{class_path: {PATCHES}, init_args: {{width: 24}}}}",
    "timm/test_resnet": "{name: timm/test_resnet, until: layer2}",
    "timm/test_vit": "{name: timm/test_vit}",
}


@pytest.mark.parametrize("name", WAYS)
def test_train_evaluate_resume_and_predict(name, tmp_path):
    backbone = f"--model.backbone={WAYS[name]}"
    fit(tmp_path / "run", backbone, model="ProtoPNet")
    run_evaluation(tmp_path / "run", "--suite=quanproto", "--report", "true")
    result = json.loads((tmp_path / "run/evaluation/metrics.json").read_text("utf-8"))
    assert result["protocol"]["backbone"] == name
    assert result["metrics"]["general/accuracy"]["value"] is not None
    assert result["explainer"] == ("attn_lrp" if "vit" in name else "prp")
    fit(tmp_path / "run", backbone, "--ckpt_path=last", model="ProtoPNet")
    checkpoint = str(tmp_path / "run/checkpoints/last.ckpt")
    evaluate.main(["predict", "--ckpt_path", checkpoint, "--trainer.accelerator=cpu", "--allow_classes=tests"])
