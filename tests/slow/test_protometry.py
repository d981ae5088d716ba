"""The wheel, among modules of others."""

import os
import shutil
import subprocess
import sys

from tests.test_protometry import ROOT


def test_a_wheel_trains_among_modules_of_others(tmp_path):
    """Site-packages gets ``protometry`` alone. The processes of a run find it as the first one does."""
    source, site, place = tmp_path / "source", tmp_path / "site", tmp_path / "place"
    skipped = shutil.ignore_patterns(".*", "tests", "docs", "runs", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=skipped, symlinks=True)
    build = "import setuptools.build_meta as backend; print(backend.build_wheel('..'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, check=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site]
    subprocess.run([*install, *tmp_path.glob("*.whl")], check=True)
    assert {path.name.partition("-")[0] for path in site.iterdir()} == {"bin", "protometry"}
    for name in ("metrics.py", "callbacks/__init__.py", "reports.py", "train.py", "evaluate/__init__.py"):
        for folder in (site, place):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("raise SystemExit('of others')")

    def end(*arguments):
        command = [sys.executable, site / "bin" / "protometry", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(site)}
        result = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    tiny = "--data.preset tiny --data.image_size 32 --trainer.max_epochs 1 --test_after_fit false"
    two = "--trainer.accelerator cpu --trainer.devices 2 --trainer.strategy ddp"
    end("train", "fit", "--config", "configs/quickstart.yaml", *tiny.split(), *two.split())
    assert "class_path: protometry.datamodules.SketchBirds" in (place / "runs/quickstart/config.yaml").read_text()
    said = end("evaluate", "run", "--ckpt_path", "runs/quickstart/checkpoints/last.ckpt", "--suite", "general")
    assert "general/accuracy" in said
