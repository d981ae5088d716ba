"""Evaluations of checkpoints, and tables and comparisons of what they found.

``python evaluate.py run --ckpt_path runs/quickstart/checkpoints/last.ckpt``
``python evaluate.py table runs/cub200/* --published quanproto``
``python evaluate.py compare runs/first runs/second``
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jsonargparse import auto_cli
from lightning import Trainer, seed_everything
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only, rank_zero_warn
from PIL.Image import Image

from callbacks import Interpretability, RunCheckpoint
from callbacks.evaluation.hardware import Hardware
from callbacks.evaluation.protocol import describe, refuse_unfit
from callbacks.evaluation.request import EvaluatedSplit, Request
from callbacks.evaluation_mode import evaluation_mode, full_precision
from callbacks.run.command_line import StrictParser, from_shell
from callbacks.run.lock import only_process
from callbacks.run.loggers import log_images
from callbacks.run.training_record import cut_short, told_training
from checkpoints import class_paths, read_checkpoint
from datamodules import load_datamodule
from datamodules.base import ImageDataModule
from datamodules.load import match_data, read_datamodule
from datamodules.sample import sample_key
from datamodules.transforms.continuity import codec_versions
from explanations import Explainer
from explanations.views import png
from lightning_modules import load_model
from metrics.functional import Variant
from reports import compare, table
from reports.class_pictures import class_pictures
from reports.concept_pictures import NamedUnits, concept_pictures
from reports.intervention_curve import intervention_pictures
from reports.metrics_json import SCHEMA, write_metrics, write_whole
from reports.summary import print_summary
from reports.values_csv import Rows, by_item, write_all_values


def run(  # noqa: PLR0913 - every argument is a flag
    ckpt_path: str,
    suite: str = "quanproto",
    split: EvaluatedSplit = "test",
    limit: int | None = None,
    seed: int = 0,
    explainer: Explainer | None = None,
    variant: Variant = "paper",
    top_k: int = 5,
    memory_budget: float = 1.0,
    overwrite: bool = False,
    trainer: Hardware = Hardware(),
    data_root: str | None = None,
    inference: str | None = None,
    allow_classes: str | None = None,
    data: str | None = None,
) -> None:
    """Evaluate one checkpoint; the run folder it lies in says everything else.

    Args:
        ckpt_path: the checkpoint file.
        suite: "quanproto", "all", metric families or single keys, separated by commas.
        split: "test" or "val".
        limit: number of images; all by default. They are drawn by class: each gives one before any gives a second, and
            beyond that its share; hashes of sample ids decide which.
        seed: seed of perturbations.
        explainer: what makes the saliency, such as ``explanations.GradCAM``; by default PRP where it supports the
            model, else upsampled maps.
        variant: "paper", or "quanproto" for what the published tables of Schlinge et al. (2025) used.
        top_k: units looked at per image.
        memory_budget: GiB for the activations of one forward; sets how many images it takes.
        overwrite: replace an earlier result of the same evaluation.
        trainer: hardware to run on.
        data_root: where the data lies now, if it has moved since training; with ``--data``, its root.
        inference: of a ProtoTree: "distributed", "sample_max" or "greedy"; by default that of the run.
        allow_classes: packages, separated by commas, whose classes the checkpoint may name besides those of this
            project; importing one runs its code.
        data: evaluate on other data than the run's: a yaml file as in configs/data. Classes are matched by name, and
            images of classes that the model does not know are left out. A folder without parts is evaluated as a whole.
    """
    engine = Interpretability(
        suite.split(","), explainer=explainer, top_k=top_k, variant=variant, seed=seed, memory_budget=memory_budget
    )
    request = Request(Path(ckpt_path), engine, split, limit, overwrite, inference)
    allowed = allow_classes.split(",") if allow_classes else ()
    changes = {"root": data_root} if data_root else {}
    evaluate(request, trainer, changes, allow_classes=allowed, data=Path(data) if data else None)


def after_fit(trainer: Trainer) -> None:
    """Evaluate the best checkpoint of a finished run with the run's own suite, on the same devices."""
    engine = next(c for c in trainer.callbacks if isinstance(c, Interpretability))  # type: ignore[attr-defined]
    checkpoint = next(c for c in trainer.callbacks if isinstance(c, RunCheckpoint))  # type: ignore[attr-defined]
    request = Request(checkpoint.best_or_last(trainer), engine)
    on_cpu = trainer.strategy.root_device.type == "cpu"
    devices = trainer.num_devices if on_cpu else trainer.device_ids
    hardware = Hardware("cpu" if on_cpu else "auto", devices, trainer.num_nodes)
    used = class_paths([trainer.lightning_module.hparams, trainer.datamodule.hparams])  # type: ignore[attr-defined]
    packages = [path.split(".")[0] for path in used]  # imported already
    try:
        evaluate(request, hardware, {}, trainer.loggers, packages)
    except FileExistsError as done:
        rank_zero_info(str(done))


def evaluate(
    request: Request,
    hardware: Hardware,
    data_changes: dict[str, Any],
    loggers: Sequence[Logger] = (),
    allow_classes: Sequence[str] = (),
    data: Path | None = None,
) -> dict[str, Any]:
    """Run one evaluation, write ``metrics.json`` and print the table.

    Args:
        request: what to evaluate.
        hardware: where.
        data_changes: arguments of the data module that differ from training or from ``data``, such as ``root``.
        loggers: receive the same numbers, under keys that begin with the split.
        allow_classes: packages whose classes the checkpoint may name besides those of this project.
        data: config of other data than the run's.

    Returns:
        The content of ``metrics.json``.

    Raises:
        FileNotFoundError: if the checkpoint is missing.
        FileExistsError: if the result exists.
        ValueError: if the checkpoint is foreign or does not fit the data, or another process evaluates it already.
    """
    checkpoint = read_checkpoint(request.ckpt_path, mmap=True)
    if told := cut_short(told_training(request.ckpt_path, checkpoint)):
        rank_zero_warn(f"{told}. The result is marked as incomplete.")
    step, trained = checkpoint["global_step"], checkpoint["hyper_parameters"]
    if request.inference is None:
        request = replace(request, inference=trained.get("inference"))
    other = None
    if data is not None:
        names = checkpoint.get("training", {}).get("class_names")
        if names is None:  # a checkpoint from before they were recorded
            names = load_datamodule(request.ckpt_path, allow_classes=allow_classes).class_names
        other = read_datamodule(data, trained["image_size"], **data_changes)
        request = replace(request, other_data=match_data(other, names, request.split, data))
    folder = request.folder(step, trained)
    with only_process(folder):
        if request.folder(step, trained) != folder:
            raise FileExistsError(f"Expected {folder} to be free, but another result now lies there. Evaluate again.")
        result, values, pictures = _measure(request, hardware, data_changes, allow_classes, checkpoint, other)
        _save(result, values, pictures, folder, loggers)
    return result


@rank_zero_only
def _save(
    result: dict[str, Any],
    values: dict[str, Rows],
    pictures: dict[str, Image],
    folder: Path,
    loggers: Sequence[Logger],
) -> None:
    """Write and print a result; ``metrics.json`` comes last: where it is, the evaluation is whole."""
    write_all_values(values, folder)
    for name, picture in pictures.items():
        write_whole(folder / f"{name}.png", png(picture))
    _log(result, pictures, loggers, max(0, result["step"] - 1))  # next to the validation of the epoch that ended there
    write_metrics(result, folder)
    print_summary(result, folder)


def _measure(
    request: Request,
    hardware: Hardware,
    data_changes: dict[str, Any],
    allow_classes: Sequence[str],
    checkpoint: dict[str, Any],
    other: ImageDataModule | None,
) -> tuple[dict[str, Any], dict[str, Rows], dict[str, Image]]:
    """The content of ``metrics.json``, and of the files of values and of pictures, by name."""
    step = checkpoint["global_step"]
    seed_everything(request.engine.seed, verbose=False)
    changes = {} if request.inference is None else {"inference": request.inference}
    module = load_model(request.ckpt_path, allow_classes=allow_classes, **changes)
    datamodule = other or load_datamodule(request.ckpt_path, allow_classes=allow_classes, **data_changes)
    datamodule.configure_loaders(split=request.split, limit=request.limit)
    refuse_unfit(request, module.num_classes, datamodule)
    trainer = hardware.trainer(request.engine, request.run_folder)
    start = time.perf_counter()
    with full_precision(trainer.strategy.root_device):
        trainer.test(module, datamodule, verbose=False)
    seconds = time.perf_counter() - start
    names = datamodule.test_dataloader().dataset.sample_ids  # type: ignore[attr-defined]
    evaluation = request.engine.evaluation
    result = {"schema": SCHEMA, **request.identity(step), **describe(request, checkpoint, datamodule, codec_versions())}
    result |= {"training": told_training(request.ckpt_path, checkpoint)}
    result |= {"metrics": evaluation.metrics, "skipped": evaluation.skipped}
    result["timing"] = {"seconds": seconds, "images": len(names), "images_per_second": len(names) / seconds}
    by_key = {sample_key(name): name for name in names}
    values: dict[str, Rows] = {"images": dict(sorted((by_key[key], row) for key, row in evaluation.images.items()))}
    classes = checkpoint.get("training", {}).get("class_names") or datamodule.class_names
    known = {"classes": classes, "concepts": datamodule.tables.concept_names}
    values |= {name: by_item(rows, known.get(name)) for name, rows in evaluation.items.items()}
    units, tables, dataset = module.units(), datamodule.tables, datamodule.test_dataloader().dataset
    pictures = class_pictures(evaluation.metrics, units, tables, classes) | intervention_pictures(evaluation.metrics)
    named = None
    if (found := request.engine.this_pass.named_units()) and units.weight is not None:
        named = NamedUnits(*(tensor.to(module.device) for tensor in (*found, units.weight.detach())))
    with evaluation_mode(module):
        pictures |= concept_pictures(evaluation.items, module, dataset, named, tables, classes)
    return result, values, pictures


def _log(result: dict[str, Any], pictures: dict[str, Image], loggers: Sequence[Logger], step: int) -> None:
    """The same numbers, under keys that begin with the split, and the pictures."""
    if pictures:
        log_images(loggers, "media/evaluation", list(pictures.values()), list(pictures), step)
    for logger in loggers:
        logger.log_metrics(
            {f"{result['split']}/{key}": entry["value"] for key, entry in result["metrics"].items()}, step
        )
        logger.save()
        logger.finalize("success")


class CommandLine(StrictParser):
    """``run`` takes flags only; ``table`` and ``compare`` take the runs they read without flags."""

    def add_function_arguments(self, function: Any, *args: Any, **options: Any) -> list[str]:
        """Add the arguments of a command."""
        if function is table:
            self.add_argument("runs", nargs="+", type=str, help="run folders, evaluation folders or metrics.json files")
            options["skip"] = {"runs"}
        options["as_positional"] = function is not run
        return super().add_function_arguments(function, *args, **options)


def main(args: list[str] | None = None) -> None:
    """Run the command line, from the shell or in process."""
    auto_cli({"run": run, "table": table, "compare": compare}, args=args, as_positional=False, parser_class=CommandLine)


if __name__ == "__main__":
    from_shell(main)
