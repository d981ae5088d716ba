"""The record of a training that its checkpoints carry: what decides the weights, and how far the schedule got.

An evaluation copies it into ``metrics.json``. What a checkpoint says elsewhere (arguments of model and data) is not
repeated here.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping

from protometry.callbacks.phases.pruning import Prunable
from protometry.callbacks.trainer_parts import callbacks_of, datamodule_of, model_of
from protometry.lightning_modules.contract import FitsHead, InterpretableModel, Projectable
from protometry.lightning_modules.phases import FIT_HEAD, Phase, PhasePlan
from protometry.run_folder.checkpoint_file import read_checkpoint
from protometry.run_folder.layout import folder_of_run

# hyper-parameters that are facts of the data, or no arguments of the model
NO_ARGUMENTS = {"num_classes", "num_concepts", "image_size", "_class_path", "_instantiator"}
OF_A_PLAN = {"preset", "phases", "epoch_scale", "class_weights"}  # says nothing of weights that were not trained here
ROOT = Path(__file__).resolve().parents[2]


def training_record(trainer: Trainer, module: LightningModule, earlier: Mapping[str, Any] | None) -> dict[str, Any]:
    """Plain data about the training of the weights as they are now.

    It continues the ``earlier`` record, of the checkpoint that the run continues from.

    Returns:
        ``settings``, a list with further entries where a run continued under others; the resolved ``phases``;
        ``epochs`` of each phase so far; the ``phase`` under way; whether the schedule is ``complete``; whether the
        prototypes are ``projected`` (None for a model without); and ``class_names``.
    """
    plan, loop = model_of(module).phases(), trainer.fit_loop
    done = cast(Any, loop.epoch_progress.current).processed
    settings = [] if earlier is None else earlier.get("settings", [{}])
    now = _settings(trainer)
    return {
        "settings": settings if settings[-1:] == [now] else [*settings, now],
        "phases": {phase.name: _plain(phase) for phase in plan.phases},
        "epochs": trained(plan, done),
        "phase": plan.phases[plan.locate(max(0, done - 1))[0]].name,
        "complete": done >= plan.total_epochs and trainer.is_last_batch,
        "projected": projected(plan, done) if isinstance(module, Projectable) else None,
        "class_names": list(datamodule_of(trainer).class_names),
    }


def recorded_training(path: Path, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """What ``metrics.json`` says of the training of the weights in a checkpoint.

    How far the schedule got is a property of the run: for the best checkpoint, the last one next to it says so.

    Returns:
        The arguments of the model as ``model``; the settings, ``phases``, ``epochs``, ``phase``, ``complete`` (None if
        unknown) and ``projected`` of :func:`training_record`; a checkpoint without a record lacks them all.
    """
    without = NO_ARGUMENTS | (OF_A_PLAN if checkpoint.get("released") else set())
    arguments = {name: value for name, value in checkpoint["hyper_parameters"].items() if name not in without}
    if weights := (arguments.get("backbone") or {}).get("weights"):
        arguments["backbone"] = {**arguments["backbone"], "weights": Path(weights).name}  # wherever the file lay
    if start := arguments.pop("init_from", None):
        arguments["init_from"] = f"{folder_of_run(Path(start)).name}/{Path(start).name}"
    record = checkpoint.get("training")
    if record is None:
        return {"model": arguments}
    arguments.pop("phases", None)  # resolved in the plan
    of_run = {name: record[name] for name in ("epochs", "phase", "complete")}
    if path.stem == "best":
        last = _record_of(path.with_name("last.ckpt"))
        of_run = {name: last[name] for name in of_run} if last else of_run | {"complete": None}
    settings = settings_of(record)
    return {"model": arguments, "phases": record["phases"], **settings, **of_run, "projected": record["projected"]}


def _record_of(path: Path) -> dict[str, Any] | None:
    try:
        return read_checkpoint(path, mmap=True).get("training")
    except (FileNotFoundError, ValueError):
        return None


def trained(plan: PhasePlan, epochs: int) -> dict[str, int]:
    """Epochs of every phase that has begun.

    Example:
        >>> head = {"trainable": {"head": 1e-4}, "losses": {}}
        >>> trained(PhasePlan((Phase("warm", 2, **head), Phase("last", 3, **head))), 3)
        {'warm': 2, 'last': 1}
    """
    epochs_by_phase = {}
    for phase in plan.phases:
        if epochs < 1:
            break
        epochs_by_phase[phase.name] = min(epochs, phase.length)
        epochs -= phase.length
    return epochs_by_phase


def projected(plan: PhasePlan, epochs: int) -> bool:
    """Whether prototypes are patches of training images: projected, and nothing trained since that moves them."""
    lasted, state = trained(plan, epochs), False
    for phase in plan.phases[: len(lasted)]:
        state = (state or _projects(phase.on_enter)) and not phase.moves_prototypes
        state |= lasted[phase.name] == phase.length and _projects(phase.on_exit)
    return state


def how_made(model: InterpretableModel, record: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the plan did to the weights of a checkpoint, besides training them.

    Returns:
        ``pruned``: whether units are inactive by pruning, rather than by a last layer that gives them no weight or, in
        a pool of shared prototypes, by having no class; ``last_layer``: "solved" if it is as ``fit_head`` left it, else
        "trained", and None for models that cannot have it solved.
    """
    could = isinstance(model, Prunable) or any(name.startswith("prune") for name in getattr(model, "actions", ()))
    prunes = could if record is None else any(action.startswith("prune") for action in _actions(record))
    solved = record is not None and FIT_HEAD in record["phases"][record["phase"]]["on_enter"] and record["epochs"]
    layer = "solved" if solved else "trained"
    return {
        "pruned": prunes and not bool(model.units().active.all()),
        "last_layer": layer if isinstance(model, FitsHead) else None,
    }


def _actions(record: Mapping[str, Any]) -> list[str]:
    """Those that ran, in order."""
    actions: list[str] = []
    for name, lasted in record["epochs"].items():
        phase = record["phases"][name]
        over = name != record["phase"] or record["complete"] or lasted == phase["epochs"]
        actions += [*phase["on_enter"], *(phase["on_exit"] if over else ())]
    return actions


def _projects(actions: Sequence[str]) -> bool:
    return any(action.startswith("project") for action in actions)


def unfinished_schedule(record: Mapping[str, Any]) -> str | None:
    """Where a schedule was cut short, as a sentence without its full stop.

    Returns:
        None for a complete schedule, or if the record does not say.
    """
    if record.get("complete") is not False:
        return None
    phase, epochs, phases = record["phase"], record["epochs"], record["phases"]
    planned = [name for name in phases if name not in epochs]
    left = f", before {', '.join(planned)}" if planned else ""
    vectors = {False: "; its prototypes are not projected", True: "; its prototypes are projected", None: ""}
    return (
        f"The schedule was cut short in phase {phase}, after {epochs.get(phase, 0)} of its {phases[phase]['epochs']} "
        f"epochs{left}{vectors[record['projected']]}"
    )


@cache
def code_version() -> dict[str, Any]:
    """Version of the package, and in a repository of its own the commit and whether files differ from it.

    Read once: later changes are not in the code that runs.
    """
    try:
        package = version("protometry")
    except PackageNotFoundError:
        package = None
    commit, dirty = None, None
    if (ROOT / ".git").exists():  # not a repository that an installed package happens to lie in
        commit = _git("rev-parse", "HEAD")
        dirty = None if commit is None else bool(_git("status", "--porcelain", "--untracked-files=no"))
    return {"version": package, "commit": commit, "dirty": dirty}


def _git(*args: str) -> str | None:
    try:
        return subprocess.run(
            ["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def settings_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a training; a setting that changed when the run was resumed is the list of its values."""
    every: list[dict[str, Any]] = record["settings"]
    values = {name: [each.get(name, "unknown") for each in every] for name in every[-1]}
    return {name: series[0] if all(v == series[0] for v in series) else series for name, series in values.items()}


def _settings(trainer: Trainer) -> dict[str, Any]:
    return {
        "batch_size": datamodule_of(trainer).batch_size,
        "devices": trainer.world_size,
        "accumulate_grad_batches": trainer.accumulate_grad_batches,
        "precision": str(trainer.precision),
        "gradient_clip_val": trainer.gradient_clip_val,
        "gradient_clip_algorithm": trainer.gradient_clip_algorithm and str(trainer.gradient_clip_algorithm.value),
        "limit_train_batches": trainer.limit_train_batches,
        "early_stopping": [
            {name: getattr(each, name) for name in ("monitor", "mode", "patience", "min_delta", "stopping_threshold")}
            for each in callbacks_of(trainer, EarlyStopping)
        ],
        "code": code_version(),
    }


def _plain(phase: Phase) -> dict[str, Any]:
    fields = asdict(phase)
    del fields["name"], fields["ended_after"]  # the outcome is under ``epochs``
    if not fields["prune"]:
        del fields["prune"]
    return fields
