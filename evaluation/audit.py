"""Whether the explanations of a trained model hold, in a dozen sentences: ``protometry audit runs/quickstart``."""

from __future__ import annotations

from pathlib import Path
from textwrap import fill

from protometry.evaluation.__main__ import checkpoint_of
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.parser import StrictParser

IMAGES = 200
MARKS = {"clear": "+", "worse": "!", "unclear": "~", "": " "}


def main(args: list[str] | None = None) -> None:
    """Measure what an audit reports, and write its pages.

    Raises:
        FileNotFoundError: if there is no checkpoint.
    """
    parser = StrictParser(
        prog="protometry audit",
        description="Check the explanations of a trained model against their controls, and write a page of findings.",
    )
    parser.add_argument("run", type=str, help="a checkpoint, or a run folder: its best checkpoint, else the last one")
    parser.add_argument("--images", type=int, default=IMAGES, help="of the test split, drawn by class")
    parser.add_argument("--foreign", type=str, help="yaml file of other photos whose patches replace the prototypes")
    parser.add_argument("--accelerator", type=str, default="auto", help="to run on, as for lightning.Trainer")
    parser.add_argument("--data_root", type=str, help="the current place of the data, if they have moved")
    parser.add_argument("--allow_classes", type=str, help="packages whose classes the checkpoint may name")
    config = parser.parse_args(args)
    from protometry.callbacks import Interpretability
    from protometry.datamodules.load import read_datamodule
    from protometry.evaluation.evaluate import evaluate
    from protometry.evaluation.hardware import Hardware
    from protometry.evaluation.pages import VERDICTS, findings, read_evaluation
    from protometry.evaluation.request import Request
    from protometry.evaluation.trained_model import TrainedModel

    checkpoint, hardware = checkpoint_of(Path(config.run)), Hardware(config.accelerator)
    trained = TrainedModel.of_flags(checkpoint, config.data_root, config.allow_classes)
    engine = Interpretability("audit")
    if config.foreign:
        photos = read_datamodule(Path(config.foreign), trained.checkpoint["hyper_parameters"]["image_size"])
        engine.foreign = (config.foreign, photos)
    request = Request(trained, engine, limit=config.images, report=True)
    folder = request.done() or evaluate(request, hardware)[1]
    print()
    for finding in findings(read_evaluation(folder)):
        verdict = f"{VERDICTS[finding.verdict].capitalize()}." if finding.verdict else ""
        text = f"{finding.text} {verdict}"
        print(fill(text, 100, initial_indent=f" {MARKS[finding.verdict]} ", subsequent_indent="   "))


if __name__ == "__main__":
    from_shell(main)
