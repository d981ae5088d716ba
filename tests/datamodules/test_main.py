"""``protometry datamodules``: what it checks, and what it refuses."""

import json

import pytest

from protometry.datamodules.__main__ import main
from tests.photo_trees import cut, make_folders


def check_cub(root, *flags):
    data = ["--data=protometry.datamodules.Cub200", f"--data.root={root}", "--data.image_size=32"]
    return main(["check", *data, *flags])


def test_check(cub_tree, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    check_cub(cub_tree())
    folder = tmp_path / "runs/check/cub200"
    assert sorted(path.name for path in folder.iterdir()) == ["check.json", "contact_sheet.png"]
    assert json.loads((folder / "check.json").read_text())["splits"]["test"]["checked"] == 8
    assert capsys.readouterr().out.startswith("Cub200: 24 images")  # progress goes to stderr
    check_cub(cub_tree("again"))
    assert "runs/check/cub200-2/check.json" in capsys.readouterr().out


def test_wrong_data(cub_tree, tmp_path):
    root = cub_tree()
    cut(root / "CUB_200_2011/images/002.Bird_1/photo_3.jpg")
    with pytest.raises(ValueError, match=r"Expected .*photo_3\.jpg"):
        check_cub(root, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_folder_that_cannot_be_made_stops_before_the_work(cub_tree, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("protometry.datamodules.__main__.check_data", lambda *_: pytest.fail("the work has begun"))
    (tmp_path / "runs").touch()
    with pytest.raises(OSError, match="runs"):
        check_cub(cub_tree())
    with pytest.raises(ValueError, match="`limit` to be at least 1, but got 0"):
        check_cub(cub_tree("again"), "--limit", "0")


def test_config_file(cub_tree, tmp_path):
    (tmp_path / "data.yaml").write_text(
        f"data:\n  class_path: Cub200\n  init_args:\n    root: {cub_tree()}\n    image_size: 32\n"
    )
    out = tmp_path / "out"
    main(["check", "--config", str(tmp_path / "data.yaml"), "--limit", "3", "--out", str(out)])
    assert json.loads((out / "check.json").read_text())["splits"]["test"]["checked"] == 3


def test_the_config_of_a_run_is_checked_as_it_trains(tmp_path):
    """Another data set takes over what the config says of splits, and ``fit`` refuses it just so."""
    data = "data: {class_path: Cub200, init_args: {scheme: official}}"
    (tmp_path / "run.yaml").write_text(f"model: {{class_path: x.Y}}\ntrainer: {{accelerator: cpu}}\n{data}")
    root = make_folders(tmp_path / "a")
    flags = [f"--config={tmp_path / 'run.yaml'}", "--data=ImageFolder", f"--data.root={root}"]
    with pytest.raises(ValueError, match="`scheme` to be 'cv70', as a has no official split"):
        main(["check", *flags, f"--out={tmp_path / 'out'}"])
    main(["check", *flags, f"--out={tmp_path / 'out'}", "--data.scheme=cv70", "--data.image_size=16"])


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        (
            "# python train.py fit --config a.yaml --config b.yaml\n# More.\ndata: {init_args: {root: x}}",
            [],
            "error: FILE: Expected `data` to name a subclass of ImageDataModule, but got settings without a "
            "`class_path`. They go behind a config that has it: `python train.py fit --config a.yaml --config b.yaml`.",
        ),
        ("data: {root: x}", [], "Put `--data CLASS` or a config that has it in front, or add it"),
        ("limit: 3", ["--data.root=x"], "without a `class_path`. Put `--data CLASS` or a config that has it in front."),
        ("data: {class_path: ImageDataModule}", [], "but ImageDataModule is abstract"),
    ],
)
def test_settings_of_no_class(text, flags, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/b.yaml").write_text(text)
    with pytest.raises(SystemExit):
        main(["check", "--config", "in/b.yaml", *flags])
    assert said.replace("FILE", "in/b.yaml") in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["data:\n\troot: x\n", "a: &a [1]\nb: &a [2]\n", "a: !!python/none x", "a: 1\n---\nb: 2\n"]
)
def test_a_config_that_is_no_yaml(text, tmp_path, capsys):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(SystemExit):
        main(["check", "--config", str(tmp_path / "a.yaml")])
    assert f"in {tmp_path / 'a.yaml'}, line" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("flags", [[], ["check"], ["tidy"]])
def test_wrong_command_lines(flags, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(flags)
    _, error = capsys.readouterr().err.splitlines()  # after a tip where to look
    assert error.startswith("error: ")
