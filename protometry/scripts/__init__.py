"""The command of the installed package: ``protometry train fit --config configs/quickstart.yaml``."""

from __future__ import annotations

import runpy
import sys
from importlib.metadata import version
from pathlib import Path

from protometry.run_folder.command_line.ending import expect_signals, seldom_collect
from protometry.run_folder.command_line.messages import did_you_mean
from protometry.run_folder.command_line.stop_signals import SIGNALS

ROOT = Path(__file__).resolve().parents[1]  # of the package
COMMANDS = {
    "demo": ("look at a trained model, without a training", "protometry.evaluation.demo"),
    "train": ("train any model on any data set", "protometry.scripts.train"),
    "evaluate": ("evaluate, compare and explain trained models", "protometry.scripts.evaluate"),
    "audit": ("check the explanations of a trained model against their controls", "protometry.evaluation.audit"),
    "app": ("try a trained model in the browser", "protometry.evaluation.app"),
    "edit": ("remove units from a trained model, and compare", "protometry.evaluation.edit"),
    "export": ("write a trained model for use elsewhere", "protometry.evaluation"),
    "serve": ("explain photos that arrive over HTTP", "protometry.evaluation.service"),
    "push": ("upload a trained model to the Hugging Face hub", "protometry.evaluation.export.push"),
    "datamodules": ("verify a data root", "protometry.datamodules"),
    "words": ("embed words and images for models whose concepts are words", "protometry.evaluation.embed_concepts"),
    "backbones": ("list networks to build a model on", "protometry.lightning_modules.backbones"),
    "studies": ("plan, build, serve, simulate and analyse human studies", "protometry.studies"),
    "sweeps": ("train and evaluate many runs from one file", "protometry.sweeps"),
}


def main() -> None:
    """Run the command that the first argument names, as ``python -m`` would, and so do the processes it launches."""
    command, *arguments = sys.argv[1:] or ["--help"]
    if command in ("-h", "--help"):
        print("usage: protometry COMMAND ...\n")
        print("\n".join(f"  {name:<12} {about}" for name, (about, _) in COMMANDS.items()))
        print(f"\n`protometry COMMAND --help` explains a command. Configs are in {ROOT / 'configs'}.")
        return
    if command in ("-V", "--version"):
        print(f"protometry {version('protometry')}")
        return
    if command not in COMMANDS:
        known = ", ".join(COMMANDS)
        near = did_you_mean(command, COMMANDS)
        print(f"error: Expected one of the commands {known}, but got {command!r}.{near}", file=sys.stderr)
        sys.exit(2)
    expect_signals()
    seldom_collect()
    sys.argv[1:] = map(config_of_ours, arguments)
    try:
        runpy.run_module(COMMANDS[command][1], run_name="__main__", alter_sys=True)
    finally:
        SIGNALS.rest()


def config_of_ours(argument: str) -> str:
    """A path such as ``configs/quickstart.yaml``, also after ``--config=``, in the package if not in this folder."""
    flag, equals, path = argument.rpartition("=")
    ours = path.startswith("configs/") and not Path(path).exists() and (ROOT / path).is_file()
    return f"{flag}{equals}{ROOT / path}" if ours else argument
