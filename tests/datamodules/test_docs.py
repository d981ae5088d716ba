"""The data set in the guide is one that works."""

import re
from pathlib import Path

import numpy as np

from datamodules.photos.data_module import PhotoDataModule
from datamodules.photos.dataset import PhotoTable
from datamodules.photos.files import locate
from datamodules.photos.verify import ImageFile
from tests.photo_trees import photo

GUIDE = Path(__file__).parents[2] / "docs/add_a_data_set.md"


def test_the_example_of_the_guide(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    names = {kind.__name__: kind for kind in (ImageFile, PhotoDataModule, PhotoTable)}
    names |= {"locate": locate, "np": np, "__name__": "fungi"}
    exec(code, names)
    rows = [(f"{name}_{i}.png", name) for name in ("bolete", "amanita") for i in range(8)]
    for number, (path, _) in enumerate(rows):
        photo(tmp_path / "fungi" / path, number)
    (tmp_path / "fungi/labels.txt").write_text("\n".join(" ".join(row) for row in rows))
    data = names["Fungi"](str(tmp_path), image_size=16)
    data.prepare_data()
    assert (data.num_classes, len(data.dataset("test"))) == (2, 5)
    assert data.dataset("train")[0]["image"].shape == (3, 16, 16)
