"""The single command of the installed package: ``protometry train fit --config configs/quickstart.yaml``.

Other modules and packages may also be called ``metrics`` or ``evaluate``, in the working folder, on ``PYTHONPATH`` or
next to ours. Scripts are therefore run from their files, with our folder first on the path.
"""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
COMMANDS = {
    "train": ("train any model on any data set", "train.py"),
    "evaluate": ("evaluate, compare and explain trained models", "evaluate.py"),
    "datamodules": ("verify a data root, or write SketchBirds as another data set", "datamodules/__main__.py"),
    "studies": ("plan, build, serve, simulate and analyse human studies", "studies/__main__.py"),
    "sweeps": ("train and evaluate many runs from one file", "sweeps/__main__.py"),
}
ROOMS = (
    *("callbacks", "datamodules", "evaluation", "explanations", "lightning_modules"),
    *("metrics", "reports", "run_folder", "studies", "sweeps"),
)


def main() -> None:
    """Run the command that the first argument names."""
    command, *arguments = sys.argv[1:] or ["--help"]
    if command in ("-h", "--help"):
        print("usage: protometry COMMAND ...\n")
        print("\n".join(f"  {name:<12} {about}" for name, (about, _) in COMMANDS.items()))
        print(f"\n`protometry COMMAND --help` explains a command. Configs are in {ROOT / 'configs'}.")
        return
    if command not in COMMANDS:
        _end(f"Expected one of the commands {', '.join(COMMANDS)}, but got {command!r}.")
    sys.path.insert(0, str(ROOT))
    for name in ROOMS:
        spec = find_spec(name)
        origin = None if spec is None else spec.origin
        if origin != str(ROOT / name / "__init__.py"):
            _end(f"Expected `import {name}` to find {ROOT / name}, but it finds {origin}: uninstall or rename that.")
    sys.argv = [str(ROOT / COMMANDS[command][1]), *map(config_of_ours, arguments)]
    runpy.run_path(sys.argv[0], run_name="__main__")


def config_of_ours(argument: str) -> str:
    """A path such as ``configs/quickstart.yaml``, also after ``--config=``, in our folder if not in this one."""
    flag, equals, path = argument.rpartition("=")
    ours = path.startswith("configs/") and not Path(path).exists() and (ROOT / path).is_file()
    return f"{flag}{equals}{ROOT / path}" if ours else argument


def _end(error: str) -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
