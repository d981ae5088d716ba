"""Embeddings of words and training images by towers of open_clip, for models whose concepts are words.

``protometry words words.txt --tower ViT-B-16 --weights openai --config configs/data/cub200.yaml --data.root DIR
--data.image_size 224 --out words.npz``
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from protometry.datamodules.base import ImageDataModule
from protometry.lightning_modules.label_free_cbm import read_words
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.messages import requires
from protometry.run_folder.command_line.parser import StrictParser

_BATCH = 256  # words at once


def main(args: list[str] | None = None) -> None:
    """Write a file of embeddings.

    Raises:
        FileNotFoundError: if the words or the weights are missing.
        ValueError: for an unknown tower, or images of another size than its.
    """
    parser = StrictParser(prog="protometry words", description="Embed words and training images for LabelFreeCBM.")
    parser.add_argument("words", type=str, help="a text file with a concept on every line")
    parser.add_argument("--tower", type=str, required=True, help="a network of open_clip, such as ViT-B-16")
    parser.add_argument("--weights", type=str, required=True, help="its weights: a file, or a name such as openai")
    parser.add_argument("--out", type=str, default="words.npz", help="the file to write")
    parser.add_argument("--config", action="config", help="yaml with the key `data`, such as configs/data/cub200.yaml")
    parser.add_subclass_arguments(ImageDataModule, "data", required=True, help="data module and its arguments")
    config = parser.parse_args(args)
    names = read_words(config.words)
    towers, tokenizer = _towers(config.tower, config.weights)
    data = (getattr(parser, "instantiate", None) or parser.instantiate_classes)(config).data
    arrays = embed(names, towers, tokenizer, data)
    np.savez(Path(config.out), **arrays)
    print(f"{config.out}: {len(names)} words, {len(arrays['images'])} images, {arrays['text'].shape[1]} numbers each")


def _towers(name: str, weights: str) -> tuple[Any, Any]:
    try:
        import open_clip
    except ImportError as error:
        raise ValueError(requires("text", "open_clip")) from error
    try:
        return open_clip.create_model(name, pretrained=weights).eval(), open_clip.get_tokenizer(name)
    except (RuntimeError, OSError) as error:
        raise ValueError(f"Expected arguments `tower` and `weights` to be known to open_clip, but {error}") from error


@torch.inference_mode()
def embed(names: list[str], towers: Any, tokenizer: Any, data: Any) -> dict[str, Any]:
    """The arrays of :class:`~protometry.callbacks.phases.words.WordEmbeddings`.

    Images pass the evaluation transform of the data and the normalisation of the tower. If a matrix P leads from the
    tokens of the image tower to the common space, ``vectors`` are the words in the space of the tokens, t P^T, for a
    backbone whose cells are these tokens.

    Args:
        names: words.
        towers: with ``encode_text``, ``encode_image`` and ``visual``, as open_clip's.
        tokenizer: from a list of strings to what ``encode_text`` takes.
        data: data module.

    Raises:
        ValueError: for images of another size than the tower's.
    """
    visual, size = towers.visual, _pair(towers.visual.image_size)
    if tuple(data.image_size) != size:
        raise ValueError(
            f"Expected images of {size} pixels for this tower, but got {tuple(data.image_size)}. Pass "
            f"`--data.image_size {size[0]}`."
        )
    mean, std = (torch.tensor(values)[:, None, None] for values in (visual.image_mean, visual.image_std))
    images, loader = [], data.projection_dataloader()
    for batch in loader:
        images.append(towers.encode_image((batch["image"] - mean) / std).float())
    text, classes = (_texts(some, towers, tokenizer) for some in (names, data.class_names))
    arrays = {"text": text, "images": torch.cat(images), "class_text": classes}
    if isinstance(projection := getattr(visual, "proj", None), nn.Parameter):
        arrays["vectors"] = text @ projection.T
    strings = {"concepts": names, "classes": data.class_names, "sample_ids": loader.dataset.sample_ids}
    return {name: values.numpy() for name, values in arrays.items()} | {
        name: np.array(values) for name, values in strings.items()
    }


def _texts(names: list[str], towers: Any, tokenizer: Any) -> Tensor:
    starts = range(0, len(names), _BATCH)
    return torch.cat([towers.encode_text(tokenizer(names[start : start + _BATCH])).float() for start in starts])


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


if __name__ == "__main__":
    from_shell(main)
