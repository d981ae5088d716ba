"""A trained model in a folder of its own: ``protometry export runs/quickstart --out model/``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.parser import StrictParser
from protometry.run_folder.layout import BEST, LAST


def main(args: list[str] | None = None) -> None:
    """Export a checkpoint.

    Raises:
        FileExistsError: if there is something already where it is to be written.
        FileNotFoundError: if there is no checkpoint, or its data are not at hand.
    """
    parser = StrictParser(prog="protometry export", description="Write a trained model for use elsewhere.")
    parser.add_argument("run", type=str, help="a checkpoint, or a run folder: its best checkpoint, else the last one")
    parser.add_argument("--out", type=str, default="model", help="the folder to write into")
    formats = "a folder that explains photos, or in it one program that runs without protometry: model.pt2, model.onnx"
    parser.add_argument("--format", type=Literal["folder", "pt2", "onnx"], default="folder", help=formats)
    parser.add_argument("--data_root", type=str, help="the current place of the data, if they have moved")
    parser.add_argument("--allow_classes", type=str, help="packages whose classes the checkpoint may name")
    config = parser.parse_args(args)
    from protometry.evaluation.export.export import export_run
    from protometry.evaluation.export.onnx_and_pt2 import write_program
    from protometry.evaluation.trained_model import TrainedModel

    checkpoint, out = checkpoint_of(Path(config.run)), Path(config.out)
    trained = TrainedModel.of_flags(checkpoint, config.data_root, config.allow_classes)
    if config.format == "folder":
        if result := trained.result(of_equal=True):
            print(f"results on the card: {result.path.parent}")
        export_run(trained, out)
    else:
        out = out / f"model.{config.format}"
        write_program(trained.model().requires_grad_(False), out, config.format)
    size = sum(file.stat().st_size for file in (out, *out.rglob("*")) if file.is_file())
    print(f"{checkpoint}: exported to {out} ({size / 1000:,.0f} kB)")


def checkpoint_of(path: Path) -> Path:
    """The checkpoint that stands for a run."""
    if not path.is_dir():
        return path
    return path / BEST if (path / BEST).is_file() else path / LAST


if __name__ == "__main__":
    from_shell(main)
