"""Every model trains, is measured and comes back from its checkpoint on a third of the kinds of networks, in turn."""

from __future__ import annotations

import math

import pytest
import torch
from lightning import seed_everything

from protometry.callbacks import Interpretability
from protometry.explanations.choice import choose_explainer
from protometry.lightning_modules import load_model
from tests.engine_runs import run_engine
from tests.lightning_modules.bases.test_load import saved
from tests.lightning_modules.registry import MODELS, tiny_birds, tiny_trainer

SIZE = (64, 64)
SWIN = {"embed_dim": 24, "depths": (1, 1), "num_heads": (2, 4), "window_size": 4}
BACKBONES = {
    "ViT with registers": {"name": "timm/test_vit", "init_args": {"reg_tokens": 4}},
    "Swin": {"name": "timm/swin_tiny_patch4_window7_224", "init_args": SWIN},
    "squeeze-and-excite": {"name": "timm/test_efficientnet"},
    "ConvNeXt": {"name": "timm/test_convnext"},
    "traced": {"name": "torchvision/resnet18", "until": "layer2"},
    "finer": {"name": "resnet18", "until": "layer3", "output_stride": 8},
    "own": {"class_path": "tests.lightning_modules.backbones.test_libraries.Patches", "init_args": {"width": 24}},
}
NAMES = ["ProtoPNet", "ProtoPool", "ProtoTree", "Classifier", "ConceptBottleneck", "CEM", "PIPNet", "PosthocCBM", "QPM"]
NAMES += ["LabelFreeCBM", "DeformableProtoPNet", "ProtoViT"]


@pytest.mark.parametrize(
    ("name", "backbone"),
    [(name, key) for row, name in enumerate(NAMES) for column, key in enumerate(BACKBONES) if (row + column) % 3 == 0],
)
def test_from_the_first_step_to_the_last_metric(name, backbone, tmp_path):
    seed_everything(0, verbose=False)
    data = tiny_birds(image_size=SIZE[0])
    model = MODELS[name](num_classes=data.num_classes, image_size=SIZE, backbone=BACKBONES[backbone])
    members = [id(p) for group in model.parameter_groups().values() for p in group]
    assert sorted(members) == sorted(id(p) for p in model.parameters())
    model.plan = model.plan.override({phase.name: {"epochs": 1} for phase in model.plan.phases})
    tiny_trainer(limit_train_batches=1, limit_val_batches=1, default_root_dir=tmp_path).fit(model, datamodule=data)
    assert all(parameter.isfinite().all() for parameter in model.parameters())

    again = load_model(saved(model, tmp_path / "x.ckpt"), allow_classes=["tests"])
    images = torch.rand(2, 3, *SIZE)
    assert torch.equal(again(images).logits, model.eval()(images).logits)

    choose_explainer(None, again)  # PRP, or upsampled maps where relevance cannot pass
    result = run_engine(Interpretability(["quanproto"]), again, data)
    assert not math.isnan(result.metrics["general/accuracy"]["value"])
