"""Towers of open_clip, small and with random weights: the file of embeddings, and words in the space of the tokens."""

import json

import numpy as np
import pytest
import torch

from protometry.evaluation import embed_concepts as words
from tests.lightning_modules.registry import tiny_birds

open_clip = pytest.importorskip("open_clip")
VISION = {"image_size": 32, "layers": 1, "width": 64, "head_width": 16, "patch_size": 16}
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}


@pytest.fixture
def tower(tmp_path):
    """Name and file of weights."""
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "tiny-tower.json").write_text(json.dumps({"embed_dim": 24, "vision_cfg": VISION, "text_cfg": TEXT}))
    open_clip.add_model_config(folder)
    torch.manual_seed(0)
    torch.save(open_clip.create_model("tiny-tower", pretrained=None).state_dict(), tmp_path / "tower.pt")
    return ["--tower=tiny-tower", f"--weights={tmp_path / 'tower.pt'}"]


def arguments(tmp_path, size):
    (tmp_path / "words.txt").write_text("a red wing\na long tail\n")
    (tmp_path / "data.yaml").write_text("data: {class_path: SketchBirds, init_args: {preset: tiny, train_size: 8}}\n")
    data = [f"--config={tmp_path / 'data.yaml'}", f"--data.image_size={size}"]
    return [str(tmp_path / "words.txt"), f"--out={tmp_path / 'words.npz'}", *data]


def test_the_file_holds_what_the_towers_say(tower, tmp_path, capsys):
    words.main([*arguments(tmp_path, 32), *tower])
    assert capsys.readouterr().out.endswith("2 words, 8 images, 24 numbers each\n")
    file = dict(np.load(tmp_path / "words.npz"))
    towers = open_clip.create_model("tiny-tower", pretrained=str(tmp_path / "tower.pt")).eval()
    data = tiny_birds(train_size=8)
    assert (file["concepts"].tolist(), file["classes"].tolist()) == (["a red wing", "a long tail"], data.class_names)
    assert file["sample_ids"].tolist() == data.dataset("projection").sample_ids
    image = data.dataset("projection")[5]["image"]
    mean, std = (torch.tensor(x)[:, None, None] for x in (towers.visual.image_mean, towers.visual.image_std))
    with torch.no_grad():
        expected = towers.encode_image(((image - mean) / std)[None])[0]
        text = towers.encode_text(open_clip.get_tokenizer("tiny-tower")(["a long tail"]))[0]
        tokens = torch.rand(7, 64)
        projected = tokens @ towers.visual.proj
    np.testing.assert_allclose(file["images"][5], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(file["text"][1], text, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tokens @ file["vectors"][1], projected @ text, rtol=1e-3, atol=1e-4)


def test_images_of_another_size_are_refused(tower, tmp_path):
    with pytest.raises(
        ValueError, match=r"images of \(32, 32\) pixels .* but got \(40, 40\). Pass `--data.image_size 32"
    ):
        words.main([*arguments(tmp_path, 40), *tower])


def test_an_unknown_tower_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"to be known to open_clip, but .*no-tower"):
        words.main([*arguments(tmp_path, 32), "--tower=no-tower", "--weights=x"])
