"""Units removed from a trained model: ``protometry edit runs/quickstart --remove 3,17 --forbid background``.

The last layer is fitted to the units that are left, in a run of its own, and both models are compared image by image.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from protometry.evaluation.__main__ import checkpoint_of
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.messages import counted
from protometry.run_folder.command_line.parser import StrictParser

if TYPE_CHECKING:
    from protometry.evaluation.trained_model import TrainedModel
    from protometry.lightning_modules.contract import SourceTable
    from protometry.lightning_modules.phases import Phase

REASONS = ("background", "border", "duplicate", "shortcut")
PHASE = "edit"  # the only one of the new run, unless the run added its last phase to the preset


def reasons_of(model: Any, datamodule: Any) -> dict[str, list[int]]:
    """Active units that were projected onto patches that a person might not want a decision to rest on.

    Args:
        model: in evaluation mode.
        datamodule: of the data that it was trained on.

    Returns:
        ``background``, units whose patch shows nothing of the object (only where the data have masks); ``border``,
        units whose patch lies at the border of the image; ``duplicate``, units that share a patch with an earlier one;
        ``shortcut``, units whose patch sees the planted stamp (only where one was planted): in the receptive field of
        the cell, or in the cell where every cell sees the whole image. None of them where units have no patches.
    """
    table = model.units()
    if (source := table.source) is None:
        return {}
    active = table.active.cpu() & source.found.cpu()
    rows, columns = model.geometry.grid
    at_border = (source.row == 0) | (source.row == rows - 1) | (source.col == 0) | (source.col == columns - 1)
    twins = {unit for group in source.duplicates() for unit in group[1:]}
    found = {
        "border": (at_border.cpu() & active).nonzero().flatten().tolist(),
        "duplicate": [unit for unit in sorted(twins) if active[unit]],
    }
    if datamodule.stamp is not None:
        found["shortcut"] = _seeing_stamp(active.nonzero().flatten().tolist(), model, source, datamodule)
    if datamodule.capabilities("projection").object_mask is not True:
        return found
    dataset = datamodule.dataset("projection")
    index = {name: place for place, name in enumerate(dataset.sample_ids)}
    background = []
    for unit in active.nonzero().flatten().tolist():
        x0, y0, x1, y1 = source.box[unit].tolist()
        mask = dataset[index[source.sample_id[unit]]]["object_mask"]
        if not mask[y0 : y1 + 1, x0 : x1 + 1].any():
            background.append(unit)
    return {"background": background} | found


def _seeing_stamp(units: list[int], model: Any, source: SourceTable, datamodule: Any) -> list[int]:
    """Those of the units whose patch sees the stamp of its image."""
    stamped, geometry = set(datamodule.shown("projection").stamped.tolist()), model.geometry
    size: Literal["cell", "receptive_field"] = "cell" if geometry.sees_everything() else "receptive_field"
    (height, width), side = geometry.image, datamodule.stamp.side(geometry.image)
    seeing = []
    for unit in units:
        _, _, x1, y1 = geometry.cell_box(int(source.row[unit]), int(source.col[unit]), size)
        if int(source.sample_key[unit]) in stamped and x1 >= width - side and y1 >= height - side:
            seeing.append(unit)
    return seeing


def edited_phases(model: Any, units: Sequence[int], epochs: int | None = None) -> dict[str, Any]:
    """Changes to the preset of a model that leave one phase: units are pruned, and the last layer is fitted again.

    Where no phase trains the last layer and the backbone stays as it is, the last phase is trained again instead.

    Args:
        model: the trained model.
        units: their numbers.
        epochs: of the phase; by default as many as it had, or 1 where the last layer is solved.

    Raises:
        ValueError: if the model has no such phase, or its plan added others than the last phase.
    """
    from protometry.callbacks.phases.pruning import Prunable

    phases = model.phases().phases
    training = [phase for phase in phases if any(phase.trainable.values())]  # others only measure
    last = next((phase for phase in reversed(training) if "head" in phase.trainable), training[-1])
    if "head" not in last.trainable and not (isinstance(model, Prunable) and "backbone" not in last.trainable):
        raise ValueError(
            f"Expected a phase of {type(model).__name__} to train its last layer, group `head`, which is fitted again "
            f"without the units, but got {model.phases().names}."
        )
    preset = type(model).presets[model.hparams["preset"]].names
    added = [name for name in model.phases().names if name not in preset]  # which stay in the run's config
    if added not in ([], [last.name]):
        raise ValueError(f"Expected no phase but the last to be added to the preset {preset}, but got {added}.")
    return dict.fromkeys(preset) | {(added or [PHASE])[0]: _phase(last, model, units, epochs)}


def _phase(last: Phase, model: Any, units: Sequence[int], epochs: int | None) -> dict[str, Any]:
    """The last phase of a plan, with the last layer alone if it trains that."""
    from protometry.lightning_modules.phases import FIT_HEAD

    solved = FIT_HEAD in last.on_enter
    projected = ["project"] if model.units().source is not None else []  # finds the same patches
    kept = ("losses", "optimizer", "scheduler", "head")
    groups = {"head"} & last.trainable.keys() or last.trainable.keys()
    return {name: value for name, value in asdict(last).items() if name in kept} | {
        "epochs": 1 if solved else epochs or last.length,
        "trainable": {name: value for name, value in last.trainable.items() if name in groups},
        "weight_decay": {name: value for name, value in last.weight_decay.items() if name in groups},
        "bn": "eval",
        "on_enter": [*projected, "prune_units", *([FIT_HEAD] if solved else [])],
        "prune": list(units),
        "selectable": True,
    }


def command_of(trained: TrainedModel, phases: dict[str, Any], experiment: str) -> list[str]:
    """The training, as arguments of ``train.py``."""
    run, settings = trained.run_folder, trained.checkpoint["hyper_parameters"]
    command = ["fit", "--config", str(run / "config.yaml"), "--model.init_from", str(trained.path)]
    command += ["--model.phases", json.dumps(phases), "--model.epoch_scale", "1"]
    if (settings.get("backbone") or {}).get("weights"):
        command += ["--model.backbone.weights", "null"]
    if root := trained.data_changes.get("root"):
        command += ["--data.root", str(root)]
    return [*command, "--runs", str(run.parent), "--experiment", experiment, "--test_after_fit", "true"]


def main(args: list[str] | None = None) -> None:
    """Edit a model, or list the units that one might want to remove.

    Raises:
        FileNotFoundError: if the checkpoint has no evaluation to compare with.
        ValueError: if a unit or a reason is unknown.
    """
    parser = StrictParser(
        prog="protometry edit",
        description="Remove units from a trained model, fit its last layer to the others in a new run, and compare. "
        "Without --remove and --forbid, only list units that one might want to remove.",
    )
    parser.add_argument("run", type=str, help="a checkpoint, or a run folder: its best checkpoint, else the last one")
    parser.add_argument("--remove", type=str, default="", help="numbers of units, separated by commas")
    reasons = f"reasons to remove units, among {', '.join(REASONS)}, separated by commas"
    parser.add_argument("--forbid", type=str, default="", help=reasons)
    parser.add_argument("--experiment", type=str, help="folder of the new run beside the first; NAME-edited by default")
    parser.add_argument("--epochs", type=int, help="of a last layer that is trained; by default as in the run")
    parser.add_argument("--data_root", type=str, help="the current place of the data, if they have moved")
    parser.add_argument("--allow_classes", type=str, help="packages whose classes the checkpoint may name")
    config = parser.parse_args(args)
    from protometry.evaluation.trained_model import TrainedModel

    checkpoint = checkpoint_of(Path(config.run))
    trained = TrainedModel.of_flags(checkpoint, config.data_root, config.allow_classes)
    model = trained.model()
    found = reasons_of(model, trained.data())
    for reason, units in found.items():
        print(f"{reason}: {counted(len(units), 'unit')}{': ' if units else ''}{', '.join(map(str, units))}")
    units = _chosen(config.remove, config.forbid, found, len(model.units().active))
    if not units:
        print("Nothing is removed. Choose units with --remove, or reasons with --forbid.")
        return
    trained.chosen_evaluation()  # without one, there would be nothing to compare with in the end
    experiment = config.experiment or f"{trained.run_folder.name}-edited"
    command = command_of(trained, edited_phases(model, units, config.epochs), experiment)
    comparison = ["compare", str(trained.run_folder), str(trained.run_folder.parent / experiment)]
    for flag in ("data_root", "allow_classes"):
        comparison += [f"--{flag}", config[flag]] if config[flag] else []
    for arguments in (["train", *command], ["evaluate", *comparison]):
        print(f"\nprotometry {shlex.join(arguments)}\n", flush=True)
        done = subprocess.run([sys.executable, "-m", "protometry", *arguments], check=False)  # which may launch others
        if done.returncode:
            sys.exit(done.returncode)


def _chosen(remove: str, forbid: str, found: dict[str, list[int]], units: int) -> list[int]:
    """The units to remove, in ascending order."""
    asked = [reason.strip() for reason in forbid.split(",") if reason.strip()]
    if unknown := [reason for reason in asked if reason not in found]:
        raise ValueError(
            f"Expected argument `forbid` to name some of {', '.join(found) or 'no reasons'}, which is what is known of "
            f"the units of this model, but got {unknown[0]!r}."
        )
    names = [name.strip() for name in remove.split(",") if name.strip()]
    if wrong := [name for name in names if not name.isdecimal() or int(name) >= units]:
        raise ValueError(
            f"Expected argument `remove` to be numbers of the units 0 to {units - 1}, such as 3,17, but got "
            f"{wrong[0]!r}."
        )
    return sorted({int(name) for name in names} | {unit for reason in asked for unit in found[reason]})


if __name__ == "__main__":
    from_shell(main)
