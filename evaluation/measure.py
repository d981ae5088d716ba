"""The measurement of a request: its engine on a trained model and its data."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, cast

import torch
from lightning import seed_everything

from protometry.callbacks.evaluation.interpretability import Interpretability
from protometry.callbacks.forward.evaluation_mode import evaluation_mode, full_precision
from protometry.evaluation.hardware import Hardware
from protometry.evaluation.protocol import refuse_unfit
from protometry.evaluation.request import Request
from protometry.evaluation.trained_model import TrainedModel
from protometry.evaluation.trainer import quiet_trainer


@dataclass(frozen=True)
class Measured:
    """What was measured, and for how long; the numbers are in the engine of the request."""

    model: Any
    datamodule: Any
    dataset: Any
    seconds: float


def measure(request: Request, hardware: Hardware) -> Measured:
    """Run the engine of a request.

    Raises:
        ValueError: if the data do not fit the model or the request.
    """
    seed_everything(request.engine.seed, verbose=False)
    trained = request.trained
    module, datamodule = trained.model(request.inference), request.other or trained.data()
    datamodule.configure_loaders(split=request.split, limit=request.limit)
    refuse_unfit(request, module.num_classes, datamodule)
    trainer = quiet_trainer(hardware, trained.run_folder, request.engine)
    request.engine.keep_scores = request.scores
    start = time.perf_counter()
    with full_precision(trainer.strategy.root_device):
        trainer.test(module, datamodule, verbose=False)
    seconds = time.perf_counter() - start
    return Measured(module, datamodule, cast(Any, datamodule.test_dataloader().dataset), seconds)


def applicable(trained: TrainedModel, engine: Interpretability, split: str) -> tuple[list[str], dict[str, str]]:
    """The part of a suite that applies to a model on the data of its run, as in an evaluation.

    Returns:
        Keys that apply, and the reason by key for those that do not.
    """
    module, datamodule = trained.model(), trained.data()
    with evaluation_mode(module), torch.inference_mode():
        skipped = engine.decide(module, datamodule, split, engine.suite)
    return list(engine.this_pass.metrics), skipped
