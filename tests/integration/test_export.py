"""Exported models: equal to those of their runs, and complete without the data."""

import json
import shutil

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from protometry import PhotoExplainer, export
from protometry.datamodules import WrappedDatasets
from protometry.datamodules.photos.one_photo import read_photo
from protometry.evaluation.__main__ import main
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.export.model_card import model_card
from protometry.evaluation.pages import Answer
from protometry.evaluation.trained_model import TrainedModel
from protometry.run_folder.model_folder import WEIGHTS
from protometry.scripts import evaluate
from tests.lightning_modules.registry import MODELS, tiny_birds
from tests.tiny_runs import run_command
from tests.untrained import saved

ALLOWED = ["--allow_classes", "tests"]


@pytest.fixture
def photo(tmp_path):
    file = tmp_path / "photo.png"
    Image.effect_noise((50, 40), 60).convert("RGB").save(file)
    return file


def explained(path, photo, folder):
    """What is written of a photo: name of the file -> content."""
    run_command("explain", "--ckpt_path", str(path), "--image", str(photo), "--output", str(folder), *ALLOWED)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_run_is_exported_and_explained_without_its_data(run_copy, photo, tmp_path, monkeypatch):
    model, checkpoint = tmp_path / "new" / "model", run_copy / "checkpoints" / "best.ckpt"
    expected = explained(checkpoint, photo, tmp_path / "expected")
    assert b"It is unlike the training images" in expected["photo-png.json"]
    main([str(run_copy), "--out", str(model), *ALLOWED])
    run = TrainedModel(checkpoint, allow_classes=["tests"])
    state, weights = run.checkpoint["state_dict"], load_file(model / WEIGHTS)
    described = json.loads((model / "model.json").read_text())
    assert {**described["state"]} == {name: value for name, value in state.items() if name not in weights}
    for name, value in weights.items():
        assert value.dtype == state[name].dtype
        assert torch.equal(value, state[name]), name
    assert described["class_names"] == run.class_names
    assert described["accuracy"] is None
    photos = {each["photo"] for each in described["sources"]}
    assert photos == {file.name for file in (model / "units").iterdir()}
    assert len(photos) == len({each["sample_id"] for each in described["sources"]})
    predict = ["predict", "--image", str(photo), "--trainer.accelerator=cpu", *ALLOWED]
    evaluate.main([*predict, "--ckpt_path", str(checkpoint), "--output", str(tmp_path / "expected.csv")])
    shutil.rmtree(run_copy)
    monkeypatch.setattr("protometry.datamodules.SketchBirds.setup", None)
    assert explained(model, photo, tmp_path / "actual") == expected
    evaluate.main([*predict, "--ckpt_path", str(model)])
    assert (tmp_path / "new/predictions.csv").read_bytes() == (tmp_path / "expected.csv").read_bytes()
    for bad, said in (
        (["explain", "--sample", "test/00001"], "exported model, which explains photos of yours only"),
        (["explain", "--image", str(photo), "--explainer", "GradCAM"], r"`explainer` to be prp\(.*but got grad_cam"),
        (["predict"], "exported model, which explains photos of yours only"),
        (["run"], "is an exported model, which has no data"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=said):
            evaluate.main([*bad, "--ckpt_path", str(model), *ALLOWED])
    with pytest.raises(FileExistsError, match="a new or an empty folder"):
        main([str(run_copy), "--out", str(model)])


def written(folder, **changes):
    (folder / "model.json").write_text(json.dumps(json.loads((folder / "model.json").read_text()) | changes))


def without_photos(model):
    for each in (model / "units").iterdir():
        each.write_bytes(b"")


DAMAGES = [
    (lambda model, _: (model / WEIGHTS).write_bytes((model / WEIGHTS).read_bytes()[:-8]), "to hold weights"),
    (lambda model, _: without_photos(model), "photo of unit"),
    (lambda model, d: written(model, sources=[d["sources"][0] | {"photo": "../../secret.png"}]), r"sources.0.photo"),
    (lambda model, d: written(model, model=d["model"] | {"class_path": "os.System"}), "name classes of"),
    (lambda model, d: written(model, sources=d["sources"][:-1]), "the active units, 16 units, each once, but got 15"),
    (lambda model, d: written(model, model=huge(d["model"])), r"tensors of \(8000000000, 8\)"),
]


def huge(model):
    return model | {"init_args": model["init_args"] | {"prototypes_per_class": 10**9}}


def test_a_damaged_folder_is_refused(photo, tmp_path):
    whole = tmp_path / "whole"
    main([str(saved("ProtoPNet", tiny_birds(), tmp_path / "x.ckpt")), "--out", str(whole)])
    for number, (damage, said) in enumerate(DAMAGES):
        model = shutil.copytree(whole, tmp_path / f"{number}")
        damage(model, json.loads((model / "model.json").read_text()))
        with pytest.raises(ValueError, match=said):
            explained(model, photo, tmp_path / "actual")


def test_names_are_no_markup_on_the_model_card():
    """Code spans hold no headings, links or mentions; their fences are longer than what the names hold."""
    model = MODELS["ProtoPNet"](num_classes=2, image_size=(32, 32)).eval()
    names = ["wren\n\n## Results\n\n[98 %](https://a.example) @owner", "a ``` b", "RESULTS"]
    facts = {"class_names": names, "image_size": (32, 32), "model": {"init_args": {}}, "version": None}
    card = model_card(model, facts, {}, "birds\n# <img src=x>", None)
    assert "\nClasses: `wren ## Results [98 %](https://a.example) @owner`, ```` a ``` b ````, `RESULTS`.\n" in card
    assert card.count("\n## Results") == card.count("\nExported without an evaluation.") == 1
    assert "\n# ProtoPNet on `birds # <img src=x>`\n" in card


def test_a_model_that_was_not_trained_by_a_run(photo, tmp_path):
    """Data in memory have no files; the explanation equals the one by the model at hand."""
    drawn = tiny_birds().dataset("train")
    items = [
        ((drawn[k]["image"] * 255).round().byte().movedim(0, 2).numpy(), int(drawn[k]["label"])) for k in range(16)
    ]
    data = WrappedDatasets.from_datasets(items, items, items, classes=[f"kind {k}" for k in range(8)], image_size=32)
    model = MODELS["ProtoPNet"](num_classes=8, image_size=(32, 32)).eval()
    export(model, data, tmp_path / "model")
    answer = PhotoExplainer(tmp_path / "model")(photo)
    explained = ExplainedModel(model, data)
    expected = Answer(explained.explain([read_photo(photo, data)], classes=1)[0], explained)
    assert answer.json() == expected.json()
    assert answer.page() == expected.page()
    assert answer.prediction.startswith("kind ")
