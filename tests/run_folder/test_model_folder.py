"""Descriptions of exported models, as strangers may write them: refused with one line, quickly and in little memory."""

import json
import os

import pytest
import torch
from safetensors.torch import save

from protometry.run_folder.model_folder import (
    EMBEDDINGS,
    WEIGHTS,
    read_description,
    read_embeddings,
    read_exported,
    write_exported,
)

SOURCE = {"unit": 0, "photo": "0.png", "box": [0, 0, 3, 3], "crop": None, "sample_id": "a", "class_name": "b"}
FACTS = {
    **{"version": None, "decision_threshold": None, "geometry": "stretch", "variant": "paper", "crop": "none"},
    "model": {"class_path": "package.Model", "init_args": {"num_classes": 2, "image_size": [8, 16]}},
    **{"class_names": ["wren", "jay"], "image_size": [8, 16], "concept_names": [], "part_names": []},
    **{"explainer": "upsample", "accuracy": None},
    "sources": [SOURCE | {"part": None, "origin": "in", "stale": False}],
}


@pytest.fixture
def folder(tmp_path):
    write_exported(tmp_path, {"weight": torch.zeros(2)}, FACTS)
    return tmp_path


def nested(depth):
    return {"deeper": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("class_names",), ["wren", "jay", "owl"], "`model.init_args.num_classes` is 2 and the number of .* 3"),
        (("model", "init_args", "num_classes"), 10**8, "is 100000000 and the number of `class_names` 2"),
        (("image_size",), [8, 8], r"image_size` is \[8, 16\] and `image_size` \[8, 8\]"),
        (("image_size",), [0, 16], "image_size.0"),
        (("image_size",), [50_000, 16], "image_size.0"),
        (("class_names", 0), "a" * 100_000, r"class_names.0`: string should have at most .{,99}\. Export"),
        (("class_names", 0), "\ud800", "surrogates not allowed"),
        (("class_names", 0), "\x1b]0;owned\x07", "class_names.0`: string should match pattern"),
        (("class_names", 0), "\u202ereversed", "class_names.0`: string should match pattern"),
        (("model", "class_path"), "protometry" + ".a" * 5000, "class_path`: string should have at most"),
        (("model", "init_args", "backbone"), nested(100), "describe a model"),
        (("sources", 0, "box"), [0, 0, 3, 8], "a box of unit 0, 0 0 3 8, is none in an image of 8x16"),
        (("sources", 0, "parts"), [[3, 0, 2, 0]], "a box of unit 0, 3 0 2 0"),
        (("sources", 0, "parts"), [[0, 0, 1, 1]] * 101, "sources.0.parts"),
        (("crop",), "odd", "crop"),
        (("version",), "1" * 32_000_000, "bytes are more than 32,000,000"),
    ],
)
def test_a_description_that_contradicts_itself_or_exceeds_its_bounds(folder, place, value, said):
    content = json.loads((folder / "model.json").read_text())
    where = content
    for key in place[:-1]:
        where = where[key]
    where[place[-1]] = value
    (folder / "model.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=said):
        read_description(folder)


def test_a_pipe_is_not_read(folder):
    assert read_exported(folder)["state_dict"].keys() == {"weight"}
    for name in (WEIGHTS, "model.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with pytest.raises(ValueError, match=r"a pipe or a device\. Export the model again"):
            read_exported(folder)


def test_weights_that_were_not_fetched(folder):
    (folder / WEIGHTS).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n")
    with pytest.raises(ValueError, match="is a Git LFS pointer in place of the weights; `git lfs pull`"):
        read_exported(folder)


@pytest.mark.parametrize("tensors", [
    {"other": torch.ones(2, 3)}, {"embeddings": torch.ones(2, 3, 1)}, {"embeddings": torch.tensor([[torch.nan]])},
    {"embeddings": torch.ones(2, 3, dtype=torch.int64)}, {"embeddings": torch.ones(0, 3)},
    {"embeddings": torch.ones(1001, 3)},
])  # fmt: skip
def test_embeddings_that_cannot_be_compared_with_a_photo(folder, tensors):
    assert read_embeddings(folder) is None  # as in the folders of earlier versions
    (folder / EMBEDDINGS).write_bytes(save(tensors))
    with pytest.raises(ValueError, match=r"to hold finite `embeddings` .* of up to 1000 images, but got .* Export"):
        read_embeddings(folder)
    (folder / EMBEDDINGS).write_bytes(b"")
    with pytest.raises(ValueError, match="to hold embeddings, but it is empty"):
        read_embeddings(folder)
