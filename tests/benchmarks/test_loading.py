"""The benchmark of loading: bare work makes the same pixels as the data module, and the table is printed."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from protometry.datamodules import Cub200
from protometry.datamodules.funnybirds.part_maps import label_codes
from protometry.datamodules.photos.files import decode_image
from tests.exports import export
from tests.funnybirds_tree import make_funnybirds, read_funnybirds, sketch_birds

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "loading.py"


@pytest.fixture(scope="module")
def loading():
    spec = importlib.util.spec_from_file_location("loading_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("crop", ["none", "box"])
@pytest.mark.parametrize("pixels", [20, 32, 48])
def test_bare_makes_the_same_pixels(loading, tmp_path, crop, pixels):
    export("cub", sketch_birds(size=32), tmp_path / "cub")
    data = Cub200(str(tmp_path / "cub"), fold=None, concept_selection="all", crop=crop, image_size=pixels)
    dataset = data.dataset("test")
    for index in range(4):
        image, mask = loading.bare(dataset, pixels)(index)
        np.testing.assert_array_equal(image, (dataset[index]["image"].permute(1, 2, 0) * 255).round().numpy())
        assert mask.shape == (pixels, pixels)


def test_part_maps_count_in_evaluation_only(loading, tmp_path):
    data = read_funnybirds(make_funnybirds(tmp_path / "birds"), augmentation="none")
    image, part_map = loading.bare(data.dataset("test"), 32)(0)
    np.testing.assert_array_equal(label_codes(part_map), data.dataset("test")[0]["label_map"].numpy())
    np.testing.assert_array_equal(
        image, decode_image(data.dataset("test").table.files[data.dataset("test").rows[0]].path)
    )
    assert len(loading.bare(data.dataset("train"), 32)(0)) == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_rates(loading, workers):
    works = [loading.Work(lambda index: None, 7), loading.Work(lambda index: sum(range(300_000)), 7)]
    rates = loading.wall_rates(works, 40, 4, 3, 1) if workers else loading.cpu_rates(works, 40, 4, 3)
    assert rates[0] > rates[1] > 0


@pytest.mark.slow
def test_the_table_is_printed(loading, tmp_path, monkeypatch, capsys):
    sizes = ["--images", "4", "--batch", "2", "--repeats", "1"]
    monkeypatch.setattr("sys.argv", ["loading.py", *sizes, "--data", "Nico", "Cub200"])
    monkeypatch.setattr(loading, "DATA", tmp_path)
    monkeypatch.setenv("PROTOMETRY_CACHE", str(tmp_path / "cache"))
    loading.main()
    printed = capsys.readouterr().out.splitlines()
    rows = [line.strip("| ").split(" | ") for line in printed if line.startswith(("| Cub", "| Nico"))]
    names = ["Cub200, concept_selection all", "Cub200, concept_selection all, crop box", "Nico"]
    assert [row[0] for row in rows] == names * 2
    assert all(row[1].startswith("export of SketchBirds") for row in rows)
    assert all(float(cell) > 0 for row in rows for cell in row[3:])
