"""The curves of an evaluation: what is counted is right, the tables and the picture are made."""

from dataclasses import asdict, replace

import pytest
from PIL import Image

from benchmarks import scale
from benchmarks.scale_figure import HEIGHT, WIDTH
from benchmarks.timing import in_fresh_process

TINY = scale.Setting(units=16, pixels=32, images=4)


@pytest.mark.slow
def test_ten_times_more_images_need_no_more_memory():
    """Holding the pixels of the further images would take more than the peak may grow by."""
    few, many = (in_fresh_process("scale", "peak_of", asdict(scale.Setting(images=n, top_k=1))) for n in (32, 320))
    assert many - few < (320 - 32) * 3 * 56**2 * 4 / 2**20


@pytest.mark.slow
def test_the_tables_are_printed_and_drawn(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(scale.AXES, "units", replace(scale.AXES["units"], usual=TINY, values=(8, 16)))
    for name, value in (("USUAL", TINY), ("SHARED", TINY), ("PROCESSES", (1, 2)), ("FEW", 8), ("MANY", 16)):
        monkeypatch.setattr(scale, name, value)
    # the test above starts processes
    monkeypatch.setattr(scale, "in_fresh_process", lambda _, name, fields: getattr(scale, name)(fields))
    arguments = ["--tables", "units", "processes", "suites", "--repeats", "1"]
    scale.main([*arguments, "--figure", str(tmp_path / "scale.png")])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    table = {row[0]: row[1:] for row in rows if row[0] in ("8", "16", "1", "2", *scale.SUITES)}
    assert len(table) == 6
    assert float(table["16"][0].split()[0]) > 0
    assert table["1"][2:] == ["0.0", "0.0"]
    assert all(float(sent) > 0 for sent in table["2"][2:])
    with Image.open(tmp_path / "scale.png") as picture:
        assert picture.size == (2 * WIDTH, 2 * HEIGHT)
