"""A trained model to look at, without a training: ``protometry demo``."""

from __future__ import annotations

import shutil
import webbrowser
from pathlib import Path

from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.parser import StrictParser
from protometry.run_folder.command_line.user_path import shown, user_path
from protometry.run_folder.layout import EVALUATION, LAST, REPORT

RUN = Path(__file__).parent / "trained_quickstart"  # the quick start of the README, with seed 0
SUITE = ["general", "compactness", "alignment/on_object"]
IMAGES, PAGES = 100, {"images": 6, "units": 24, "classes": 3, "errors": 10}  # few, for an answer in seconds


def demo(out: str = "protometry-demo", show: bool = True) -> Path:
    """Evaluate a trained ProtoPNet on drawn birds, and open its pages in a browser.

    Args:
        out: folder of the run; where it has been made before, its pages are opened again.
        show: whether to open them.

    Returns:
        The first page.

    Raises:
        FileExistsError: if the folder holds something else.
    """
    folder = user_path(out)
    page = folder / EVALUATION / REPORT / "index.html"
    if not page.is_file():
        if folder.exists() and any(folder.iterdir()):
            raise FileExistsError(f"Expected {folder} to be a new folder, but it holds files. Choose another `out`.")
        try:
            _make(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # was new or empty
            raise
    print(f"a whole evaluation: protometry evaluate run --ckpt_path {shown(folder / LAST)}")
    if show:
        webbrowser.open(page.resolve().as_uri())
    return page


def _make(folder: Path) -> None:
    """Copy the run, and evaluate it."""
    from protometry.callbacks import Interpretability
    from protometry.evaluation.evaluate import evaluate
    from protometry.evaluation.hardware import Hardware
    from protometry.evaluation.limits import Limits
    from protometry.evaluation.pages import build_report
    from protometry.evaluation.request import Request
    from protometry.evaluation.trained_model import TrainedModel

    shutil.copytree(RUN, folder, dirs_exist_ok=True)
    trained = TrainedModel(folder / LAST)
    evaluate(Request(trained, Interpretability(SUITE), limit=IMAGES), Hardware())
    explained, files = trained.evaluated(folder / EVALUATION)
    print(f"report:      {build_report(explained, files, folder / EVALUATION / REPORT, Limits(**PAGES))}")


def main(args: list[str] | None = None) -> None:
    """Run the command line."""
    parser = StrictParser(prog="protometry demo", description="Look at a trained model, without a training.")
    parser.add_argument("--out", type=str, default="protometry-demo", help="folder of its run")
    parser.add_argument("--show", type=bool, default=True, help="open the pages in a browser")
    demo(**vars(parser.parse_args(args)))


if __name__ == "__main__":
    from_shell(main)
