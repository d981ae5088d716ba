"""A trained model to try in a browser: ``protometry app runs/quickstart``."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from protometry.evaluation.__main__ import checkpoint_of
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.first_look import check_checkpoint, is_model_folder
from protometry.run_folder.command_line.messages import requires
from protometry.run_folder.command_line.parser import StrictParser
from protometry.run_folder.command_line.serving import listening
from protometry.run_folder.command_line.user_path import user_path

PROGRAMS = (".onnx", ".pt2")


def main(args: list[str] | None = None) -> None:
    """Open a model in the browser.

    Raises:
        FileNotFoundError: if there is no such model, or the data of a run are not at hand.
        ValueError: if the model cannot explain, the port is in use, or Gradio is not installed.
    """
    parser = StrictParser(prog="protometry app", description="Try a trained model in the browser.")
    parser.add_argument("model", type=str, help="a run folder, a checkpoint, or a folder of `protometry export`")
    parser.add_argument("--port", type=int, default=7860, help="of the page, at this machine only")
    parser.add_argument("--show", type=bool, default=True, help="open the page in a browser")
    parser.add_argument("--data_root", type=str, help="the current place of the data, if they have moved")
    parser.add_argument("--allow_classes", type=str, help="packages whose classes the model may name")
    config = parser.parse_args(args)
    if find_spec("gradio") is None:
        raise ValueError(requires("app", "Gradio"))
    listening("127.0.0.1", config.port).close()
    path = path_of(config.model)
    from protometry.evaluation.app.explorer import open_explorer

    explorer = open_explorer(path, config.data_root, config.allow_classes)
    from protometry.evaluation.app.interface import launch

    launch(explorer, config.port, config.show)


def path_of(model: str) -> str | Path:
    """The checkpoint, or the folder of an exported model, that a command line names.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is a program, which cannot explain.
    """
    if is_model_folder(model):
        return model
    folder = user_path(model)
    if program := next((file for file in (folder, *folder.glob("model.*")) if file.suffix in PROGRAMS), None):
        raise ValueError(
            f"Expected a run, a checkpoint or the folder of `protometry export`, but {program} is a program that "
            "predicts and does not explain. Export its run again with `--format folder`."
        )
    check_checkpoint(path := checkpoint_of(folder), "model")
    return path


if __name__ == "__main__":
    from_shell(main)
