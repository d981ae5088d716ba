"""Exported models: equal to those of their runs, and complete without the data."""

import subprocess
import sys

import pytest
import torch

from protometry.evaluation.__main__ import main
from protometry.lightning_modules import load_model
from tests.integration.test_export import explained
from tests.lightning_modules.registry import MODELS, tiny_birds
from tests.untrained import saved

WITHOUT_US = """
import sys
sys.modules["protometry"] = None  # as if it were not installed
import torch
for path in sys.argv[1:]:
    images, expected = torch.load(f"{path}/expected.pt")
    outputs = torch.export.load(f"{path}/model.pt2").module()(images)
    assert list(outputs) == ["logits", "probabilities", "scores", "maps"], outputs.keys()
    assert all(torch.equal(*pair) for pair in zip(outputs.values(), expected, strict=True)), path
"""


def test_programs_give_equal_outputs_without_the_package(tmp_path):
    """To the last bit, in batches of another size than at the export."""
    for name in MODELS:
        folder, checkpoint = tmp_path / name, saved(name, tiny_birds(), tmp_path / "x.ckpt")
        main([str(checkpoint), "--out", str(folder), "--format", "pt2"])
        model, images = load_model(checkpoint), torch.rand(7, 3, 32, 32)
        with torch.no_grad():
            output = model(images)
        expected = [output.logits, model.probabilities(output.logits), output.scores, output.maps]
        torch.save([images, expected], folder / "expected.pt")
    with pytest.raises(FileExistsError, match="not to be there yet"):
        main([str(checkpoint), "--out", str(folder), "--format", "pt2"])
    folders = [str(tmp_path / name) for name in MODELS]
    ended = subprocess.run([sys.executable, "-c", WITHOUT_US, *folders], capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", [name for name in MODELS if " " not in name])
def test_onnx_gives_equal_outputs(name, tmp_path):
    """In batches of another size than at the export."""
    from onnxruntime import InferenceSession

    checkpoint = saved(name, tiny_birds(), tmp_path / "x.ckpt")
    main([str(checkpoint), "--out", str(tmp_path), "--format", "onnx"])
    images = torch.rand(7, 3, 32, 32)
    outputs = InferenceSession(tmp_path / "model.onnx").run(["logits", "scores"], {"images": images.numpy()})
    expected = load_model(checkpoint)(images)
    for actual, output in zip(outputs, (expected.logits, expected.scores), strict=True):
        torch.testing.assert_close(torch.from_numpy(actual), output.detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_explained_as_from_its_run(name, photo, tmp_path):
    checkpoint, model = saved(name, tiny_birds(), tmp_path / "x.ckpt"), tmp_path / "model"
    main([str(checkpoint), "--out", str(model)])
    loaded, images = load_model(model), torch.rand(2, 3, 32, 32)
    assert torch.equal(loaded(images).logits, load_model(checkpoint)(images).logits)
    assert loaded.plan == load_model(checkpoint).plan
    assert explained(model, photo, tmp_path / "actual") == explained(checkpoint, photo, tmp_path / "expected")
