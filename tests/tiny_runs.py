"""Runs that take a second: ProtoPNet on a few small SketchBirds, five epochs in four phases.

``fit`` trains in process; what a test compares are checkpoints (``state``, ``differences``) and ``metrics.csv``.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from lightning import Callback

from protometry.callbacks import ExplanationMedia, read_checkpoint
from protometry.callbacks.run.training_curves import TrainingCurves
from protometry.datamodules import SketchBirds
from protometry.lightning_modules import ProtoPNet
from protometry.scripts import evaluate, train
from tests.words_file import ANY, WORDS, words_file

NOISY = "tests.tiny_runs.NoisyProtoPNet"
ROOT = Path(__file__).resolve().parents[1]
DATA = {"preset": "tiny", "image_size": 32, "train_size": 48, "val_size": 16, "test_size": 33, "batch_size": 12}
STEPWISE = "optimizer: {name: AdamW, key: joint}, scheduler: {name: OneCycleLR, per: step}"
PHASES = (  # warm, joint, last with a projection, joint again with the parked optimiser
    f"warm: {{epochs: 1}}, joint: {{epochs: 2, {STEPWISE}}}, last: {{epochs: 1}}, joint2: {{epochs: 1, {STEPWISE}}}, "
    "last2: null"
)
MODEL = {"prototypes_per_class": 2, "prototype_channels": 16, "preset": "original", "phases": f"{{{PHASES}}}"}
PIPNET = {  # two views of every image, one epoch in each of five phases; the last one shrinks and cuts
    "num_features": 16,
    "preset": "original",
    "phases": "{pretrain: {epochs: 1}, head: {epochs: 1}, partial: {epochs: 1}, full: {epochs: 1}, full_from_30: null}",
}
PROTOPOOL = {  # five epochs in three phases
    "num_prototypes": 12,
    "slots_per_class": 2,
    "prototype_channels": 16,
    "gumbel_epochs": 3,
    "preset": "original",
    "phases": "{warm: {epochs: 1}, joint: {epochs: 2}, last: {epochs: 2}}",
}
DEFORMABLE = {  # five epochs in four phases
    "prototypes_per_class": 2,
    "hidden": 8,
    "phases": "{joint: {epochs: 2}, settle: {epochs: 1}}",
}
PROTOVIT = {  # five epochs in four phases
    "prototypes_per_class": 2,
    "preset": "original",
    "phases": "{warm: {epochs: 1}, joint: {epochs: 2}, slots: {epochs: 1}, last: {epochs: 1}}",
}
PROTOTREE = {  # four epochs in three phases, with projections, then pruning
    "depth": 4,
    "prototype_channels": 8,
    "preset": "sketch",
    "phases": "{warm: {epochs: 1}, joint: {epochs: 2}, settle: {epochs: 1}}",
}
TESNET = {  # and ST-ProtoPNet: five epochs in three phases
    "prototypes_per_class": 2,
    "prototype_channels": 16,
    "preset": "original",
    "phases": "{warm: {epochs: 1}, joint: {epochs: 2}, last: {epochs: 2}}",
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Classifier": {"phases": "{train: {epochs: 4}}"},
    "BagNet": {"backbone": "{name: bagnet9, width: 16}", "phases": "{train: {epochs: 4}}"},
    "CEM": {"embedding_size": 4, "label_noise": 0.2, "phases": "{joint: {epochs: 4}}"},
    "IntCEM": {"embedding_size": 4, "phases": "{joint: {epochs: 4}}"},
    "ConceptBottleneck": {"label_noise": 0.2, "phases": "{concepts: {epochs: 2}, labels: {epochs: 2}}"},
    "LabelFreeCBM": {"words": WORDS, "embeddings": words_file(), **ANY},
    "DeformableProtoPNet": DEFORMABLE,
    "PIPNet": PIPNET,
    "PosthocCBM": {"preset": "hybrid", "phases": "{residual: {epochs: 2}}", "positives": 10, "negatives": 10},
    "ProtoPool": PROTOPOOL,
    "ProtoTree": PROTOTREE,
    "ProtoViT": PROTOVIT,
    "QPM": {"num_features": 12, "features_per_class": 3, "phases": "{dense: {epochs: 2}, finetune: {epochs: 2}}"},
    "STProtoPNet": TESNET,
    "TesNet": TESNET,
}
EPOCHS, STEPS_PER_EPOCH = 5, 4
LEARNING: dict[str, list[str]] = {  # for models that are right more often than by guessing, projected where they end
    "BagNet": ["--model.phases.train.epochs=8", "--model.phases.train.trainable={backbone: 6.0e-3, head: 6.0e-3}"],
    "PIPNet": ["--model.phases.pretrain.epochs=2", "--model.phases.full.epochs=3"],
    "ProtoPool": ["--model.phases.joint.epochs=5"],
    "ProtoPNet": ["--model.phases.joint.epochs=6", "--model.phases.joint2=null"],
    "STProtoPNet": ["--model.phases.joint.epochs=6"],
    "TesNet": ["--model.phases.joint.epochs=6"],
}


def fit_args(folder: Path, *more: str, model: str = NOISY, data: str = "SketchBirds") -> list[str]:
    """The command line of a tiny run in ``folder``."""
    args = ["fit", "--runs", str(folder.parent), "--experiment", folder.name]
    args += ["--model", model]
    args += ["--data", data]
    if data.endswith(("SketchBirds", "MyBirds")):
        args += [f"--data.{name}={value}" for name, value in DATA.items()]
    args += [f"--model.{name}={value}" for name, value in ARGUMENTS.get(model, MODEL).items()]
    args += ["--trainer.accelerator=cpu", "--trainer.logger=protometry.callbacks.RunCSVLogger"]
    args += [f"--explanations.{name}=1" for name in ("images", "top_k", "units")]  # a picture of each kind is enough
    return [*args, *more]


def only(command: str, script: Any = train) -> Any:
    """``train.py``, or another script, with a single command: the parsers of others would take a third of its start."""
    return mock.patch.dict(script.COMMANDS, {command: script.COMMANDS[command]}, clear=True)


def only_fit() -> Any:
    """``train.py`` with the command that trains."""
    return only("fit")


def fit(folder: Path, *more: str, drawn: bool = False, **kinds: str) -> train.TrainCLI:
    """Train a tiny run in process; pictures of its curves and explanations would take half of the time."""
    return run_training(fit_args(folder, *more, **kinds), drawn)


def run_training(arguments: list[str], drawn: bool = False) -> train.TrainCLI:
    """A command of ``train.py`` in process, with or without these pictures."""
    shows = mock.patch.object(ExplanationMedia, "_show")
    curves = mock.patch.object(TrainingCurves, "_draw")
    with only(arguments[0]), nullcontext() if drawn else shows, nullcontext() if drawn else curves:
        return train.main(arguments)


def fit_learning(folder: Path, *more: str, model: str, weights: Path | None = None, drawn: bool = False) -> None:
    """Train a model on more images, on the backbone of a trained black box if its checkpoint is given."""
    started = [f"--model.backbone={{name: sketch, weights: {weights}}}"] if weights and model != "BagNet" else []
    data = ["--data.train_size=320", "--data.batch_size=32"]
    fit(folder, *data, *started, *LEARNING.get(model, []), *more, model=model, drawn=drawn)


def run_evaluation(folder: Path, *more: str, checkpoint: str = "last") -> None:
    """``evaluate.py run`` in process, by default without pages."""
    path = folder / "checkpoints" / f"{checkpoint}.ckpt"
    more = more if "--report" in more else (*more, "--report", "false")
    run_command("run", "--ckpt_path", str(path), "--trainer.accelerator=cpu", "--allow_classes=tests", *more)


def run_command(command: str, *more: str) -> None:
    """A command of ``evaluate.py`` in process."""
    with only(command, evaluate):
        evaluate.main([command, *more])


def start(*args: str, script: str = "train.py", **options: Any) -> subprocess.Popen[str]:
    """A command line in a process of its own, with one thread, as the tests themselves."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_MODE": "offline", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / script), *args]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, **options)


def as_launched(rank: int, world_size: int) -> Any:
    """The environment in which Lightning finds itself started by a launcher."""
    return mock.patch.dict(os.environ, LOCAL_RANK=str(rank), NODE_RANK="0", WORLD_SIZE=str(world_size))


def last(folder: Path, name: str = "last") -> dict[str, Any]:
    """A checkpoint of a run, the last one by default."""
    return read_checkpoint(folder / "checkpoints" / f"{name}.ckpt")


def state(folder: Path, name: str = "last") -> dict[str, Any]:
    """Everything in a checkpoint that decides how a run continues."""
    checkpoint = last(folder, name)
    keys = ("state_dict", "optimizer_states", "lr_schedulers", "callbacks", "epoch", "global_step")
    return {key: checkpoint[key] for key in keys}


def differences(first: Any, second: Any, path: str = "") -> list[str]:
    """Where two checkpoints differ, bit for bit."""
    if type(first) is not type(second):
        return [path]
    if isinstance(first, torch.Tensor):
        same = first.dtype == second.dtype and first.shape == second.shape
        return [] if same and first.numpy().tobytes() == second.numpy().tobytes() else [path]
    if isinstance(first, dict):
        if first.keys() != second.keys():
            return [path]
        return [result for key in first for result in differences(first[key], second[key], f"{path}/{key}")]
    if isinstance(first, list | tuple):
        if len(first) != len(second):
            return [path]
        pairs = zip(first, second, strict=True)
        return [result for index, pair in enumerate(pairs) for result in differences(*pair, f"{path}/{index}")]
    return [] if first == second else [path]


class MyBirds(SketchBirds):
    """A data set that lies outside the project."""


class NoisyProtoPNet(ProtoPNet):
    """A model that lies outside the project and draws from every generator in every training step."""

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> torch.Tensor:
        noise = torch.rand(()) + random.random() + float(np.random.rand())
        return super().training_step(batch | {"image": batch["image"] * (1 + 0.1 * noise)}, batch_idx)


class StopError(Exception):
    """Ends a run as a crash would."""


class StopAt(Callback):
    """Crashes in one hook.

    Args:
        step: the ``global_step`` to crash at.
        hook: the hook to crash in.
    """

    def __init__(self, step: int, hook: str = "on_train_batch_start") -> None:
        self.step = step
        setattr(self, hook, self._stop)

    def _stop(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == self.step and not trainer.sanity_checking:
            raise StopError


class Slow(Callback):
    """Makes an epoch last longer than it takes to notice what it prints; changes nothing else."""

    def on_train_batch_start(self, *args: Any) -> None:
        time.sleep(0.3)


SLOWLY = "--trainer.callbacks+=tests.tiny_runs.Slow"


def stop_at(step: int, hook: str = "on_train_batch_start") -> list[str]:
    """Arguments that make a run crash."""
    name = "--trainer.callbacks+=tests.tiny_runs.StopAt"
    return [name, f"--trainer.callbacks.step={step}", f"--trainer.callbacks.hook={hook}"]
