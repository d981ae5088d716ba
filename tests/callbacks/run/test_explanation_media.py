"""What is shown of an image while a model is trained."""

from types import SimpleNamespace

import pytest
import torch

from protometry.callbacks.run import explanation_media
from protometry.callbacks.run.explanation_media import ExplanationMedia, evidence
from protometry.datamodules import SketchBirds
from protometry.explanations.decision import decide
from tests.lightning_modules.registry import MODELS


@pytest.mark.parametrize("name", ["ProtoPNet", "ProtoPool", "ConceptBottleneck"])
def test_the_units_are_those_above_the_mean_over_classes(name):
    torch.manual_seed(5)
    model, image = MODELS[name](num_classes=4, image_size=(32, 32)).eval(), torch.rand(3, 32, 32)
    result = evidence(model, image, top_k=3)
    with torch.no_grad():
        output = model(image[None])
    every = decide(model, output, output.logits.argmax(dim=1), most=3).contributions[0]
    assert result.contributions == pytest.approx(every.topk(3).values.tolist(), rel=1e-4)
    assert result.contributions == pytest.approx(every[result.units].tolist(), rel=1e-4)
    result.contributions[:] = [3.0, 2.0, 2.5]
    assert result.by_place([0, 1, 1]) == [[1, 2], [0]]  # 4.5 at the second place
    assert result.by_place([0, 0, -1]) == [[0, 1], [2]]


@pytest.mark.parametrize("name", ["ConceptBottleneck", "BagNet", "ProtoPNet"])
def test_units_have_the_names_of_what_they_stand_for(name, monkeypatch):
    data = SketchBirds("tiny", image_size=32, train_size=16, val_size=16)
    data.setup("fit")
    model = MODELS[name](num_classes=data.num_classes, num_concepts=data.num_concepts, image_size=(32, 32))
    numbers = [f"prototype {unit}" for unit in range(len(model.units().active))]
    names = {"ConceptBottleneck": data.tables.concept_names, "BagNet": data.class_names}.get(name, numbers)
    captions = []
    monkeypatch.setattr(explanation_media, "unit_tile", lambda view, *lines: captions.append(lines[0]))
    monkeypatch.setattr(explanation_media, "_publish", lambda *_: None)
    media, trainer = ExplanationMedia(images=1, top_k=2, units=3), SimpleNamespace(datamodule=data, callbacks=[])
    media._show_images(trainer, model)
    assert {caption.split(": contribution")[0].split(" + ")[0] for caption in captions} <= set(names)
    trainer.current_epoch = 0
    media._show_units(trainer, model)
    assert captions[-1] == names[-1] + (f" · {data.class_names[-1]}" if name == "ProtoPNet" else "")
