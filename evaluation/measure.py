"""One evaluation from the loaded model to the content of ``metrics.json``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from callbacks.forward.evaluation_mode import full_precision
from callbacks.run.training_record import told_training
from evaluation.hardware import Hardware
from evaluation.protocol import describe, refuse_unfit
from evaluation.request import Request


def measure(
    request: Request,
    hardware: Hardware,
    module: Any,
    datamodule: Any,
    checkpoint: Mapping[str, Any],
    codecs: dict[str, str],
) -> dict[str, Any]:
    """Run the engine of a request, which then holds the values of images and items.

    Args:
        request: what to evaluate.
        hardware: where.
        module: the model of the checkpoint.
        datamodule: of the images.
        checkpoint: its content.
        codecs: versions of what the continuity view depends on.

    Returns:
        What ``metrics.json`` holds, without its schema.

    Raises:
        ValueError: if the data do not fit the model or the request.
    """
    datamodule.configure_loaders(split=request.split, limit=request.limit)
    refuse_unfit(request, module.num_classes, datamodule)
    trainer = hardware.trainer(request.engine, request.run_folder)
    start = time.perf_counter()
    with full_precision(trainer.strategy.root_device):
        trainer.test(module, datamodule, verbose=False)
    seconds = time.perf_counter() - start
    images, evaluation = len(datamodule.test_dataloader().dataset), request.engine.evaluation
    return {
        **request.identity(checkpoint["global_step"]),
        **describe(request, checkpoint, datamodule, codecs),
        "training": told_training(request.ckpt_path, checkpoint),
        "metrics": evaluation.metrics,
        "skipped": evaluation.skipped,
        "timing": {"seconds": seconds, "images": images, "images_per_second": images / seconds},
    }
