"""Every row of the page names models and data of the sweep, metrics that exist, and bounds that can be read."""

import numpy as np
import pytest
import yaml

from benchmarks.quanproto_findings import COLUMNS, DATA, PAGE, bounds, filled
from benchmarks.quanproto_maps import PLACES, maps
from protometry.metrics.suite import ENTRIES
from tests.tiny_runs import fit

SWEEP = yaml.safe_load((PAGE.parents[2] / "configs/sweep/quanproto.yaml").read_text("utf-8"))


def test_findings_name_what_exists(tmp_path):
    assert tuple(SWEEP["data"]) == DATA
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.count(" | ") == COLUMNS - 1][1:]
    assert len(rows) > 40
    for row in rows:
        data, keys, first, second, within = (cell.replace("`", "") for cell in row.strip("| ").split(" | ")[2:7])
        assert {*data.split(", ")} <= {*DATA, "all"}
        assert {*keys.split(", ")} <= {*ENTRIES}
        models = [name for name in second.split(", ") if not name.startswith("its ") and not name[0].isdigit()]
        assert {*first.split(", "), *models} <= {*SWEEP["models"]}
        assert bounds(within)[0] <= bounds(within)[1]
        assert " | open (0 of " in filled(row, tmp_path, [0])  # no runs there: never a verdict


@pytest.mark.slow
def test_maps_show_a_twentieth_of_the_image(tmp_path):
    fit(tmp_path / "run", model="ProtoPNet")
    pictures = list(maps(tmp_path / "run/checkpoints/last.ckpt"))
    assert [picture.size for picture in pictures] == [(128, 128)] * len(PLACES)
    for picture in pictures:
        colour = np.asarray(picture, dtype=float)
        bright = (colour[..., 1] > 100).mean()  # yellow and green, on violet
        assert 0 < bright < 0.1
