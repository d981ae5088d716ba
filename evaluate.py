"""Evaluations of checkpoints, tables and comparisons of what they found, and explained images.

``python evaluate.py run --ckpt_path runs/quickstart/checkpoints/last.ckpt``
``python evaluate.py table runs/cub200/* --published quanproto``
``python evaluate.py compare runs/first runs/second``
``python evaluate.py explain --ckpt_path runs/quickstart/checkpoints/last.ckpt --image photo.jpg``
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from jsonargparse import auto_cli
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only, rank_zero_warn
from PIL.Image import Image

from callbacks import Interpretability, RunCheckpoint
from callbacks.evaluation.hardware import Hardware
from callbacks.evaluation.interface import Interface
from callbacks.evaluation.protocol import describe, refuse_unfit
from callbacks.evaluation.request import EvaluatedSplit, Request
from callbacks.evaluation_mode import evaluation_mode, full_precision
from callbacks.run.command_line import StrictParser, from_shell
from callbacks.run.confusion import log_confusion
from callbacks.run.lock import only_process
from callbacks.run.loggers import log_images, log_table
from callbacks.run.training_record import cut_short, told_training
from checkpoints import class_paths, read_checkpoint, run_folder
from datamodules import load_datamodule
from datamodules.base import ImageDataModule
from datamodules.load import match_data, read_datamodule
from datamodules.photos.one_photo import read_photo
from datamodules.sample import sample_key
from datamodules.transforms.continuity import codec_versions
from explanations import Explainer
from explanations.views import png
from lightning_modules import load_model
from lightning_modules.contract import InterpretableModel
from metrics.functional import Variant
from reports import compare, table
from reports.class_pictures import class_pictures
from reports.concept_pictures import NamedUnits, concept_pictures
from reports.explained_figure import explained_figure
from reports.explained_model import ExplainedModel
from reports.html.evaluation_files import read_evaluation
from reports.html.report import Limits, build_report
from reports.html.single_page import single_page
from reports.html.site import key_of
from reports.intervention_curve import intervention_pictures
from reports.metrics_json import SCHEMA, write_metrics, write_whole
from reports.part_pictures import funnybirds_pictures
from reports.scan import samples_of
from reports.summary import print_summary, suite_table
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
    interface: Interface | None = None,
    report: bool = True,
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
        interface: from explanations to parts, for the suite funnybirds: "ssm" (the default), summed similarity maps;
            "bb", boxes; "bb_reference", boxes with the slips of the released code; "attribution", the maps of
            ``--explainer``.
        report: also write pages to look at, if the suite has metrics that explain.
    """
    engine = Interpretability(
        suite.split(","),
        explainer=explainer,
        top_k=top_k,
        variant=variant,
        seed=seed,
        memory_budget=memory_budget,
        interface=interface,
    )
    request = Request(Path(ckpt_path), engine, split, limit, overwrite, inference, report=report)
    allowed = allow_classes.split(",") if allow_classes else ()
    changes = {"root": data_root} if data_root else {}
    evaluate(request, trainer, changes, allow_classes=allowed, data=Path(data) if data else None)


def report(  # noqa: PLR0913 - every argument is a flag
    ckpt_path: str,
    evaluation: str | None = None,
    explainer: Explainer | None = None,
    output: str | None = None,
    limits: Limits = Limits(),
    size: int = 144,
    data_root: str | None = None,
    allow_classes: str | None = None,
) -> None:
    """Write the pages of an evaluation: images and units explained, classes, errors, metrics.

    Args:
        ckpt_path: the checkpoint file.
        evaluation: folder of the evaluation of this checkpoint; ``evaluation`` in the run folder by default.
        explainer: as in ``run``.
        output: folder of the pages; ``report`` in the folder of the evaluation by default.
        limits: the most pages of each kind.
        size: longer side of the photos in pixels, at most 256.
        data_root: as in ``run``.
        allow_classes: as in ``run``.
    """
    path = Path(ckpt_path)
    folder = Path(evaluation) if evaluation else run_folder(path) / "evaluation"
    files = read_evaluation(folder)
    asked = Request(path, Interpretability()).identity(read_checkpoint(path, mmap=True)["global_step"])
    told = files.result
    if told["other_data"] or any(told[name] != asked[name] for name in ("checkpoint", "step")):
        raise ValueError(
            f"Expected {folder} to be the evaluation of {path}, step {asked['step']}, on the data of its run, but it "
            f"is of {told['checkpoint']}, step {told['step']}. Name its folder with `--evaluation`, or evaluate again."
        )
    subject = _subject(path, explainer, data_root, allow_classes, size)
    print(f"report: {build_report(subject, files, Path(output) if output else folder / 'report', limits)}")


def explain(  # noqa: PLR0913 - every argument is a flag
    ckpt_path: str,
    image: list[str],
    sample: list[str],
    split: EvaluatedSplit = "test",
    explainer: Explainer | None = None,
    output: str | None = None,
    data_root: str | None = None,
    allow_classes: str | None = None,
) -> None:
    """Explain images: a picture and a page for each, with the units that decide, down to the logit.

    Args:
        ckpt_path: the checkpoint file.
        image: image files, seen through the evaluation transform of the data; nothing is cut to a box.
        sample: ids of images of the data.
        split: where the ids are looked up.
        explainer: as in ``run``.
        output: folder of the pictures and pages; ``explained`` in the run folder by default.
        data_root: as in ``run``.
        allow_classes: as in ``run``.
    """
    if not image and not sample:
        raise ValueError("Expected argument `image` or `sample` to name an image, but got none.")
    subject = _subject(Path(ckpt_path), explainer, data_root, allow_classes)
    samples: list[Any] = [read_photo(path, subject.datamodule) for path in image]
    samples += samples_of(subject.datamodule.dataset(split), sample) if sample else []
    folder = Path(output) if output else run_folder(Path(ckpt_path)) / "explained"
    written: list[str] = []
    for explained in subject.explain(samples, "the page"):
        name = re.sub(r"[^\w=-]+", "-", explained.sample_id)[:100].strip("-") or key_of(explained.sample_id)
        name += f"-{key_of(explained.sample_id)}" if name in written else ""
        written.append(name)
        write_whole(folder / f"{name}.png", png(explained_figure(explained, subject)))
        write_whole(folder / f"{name}.html", single_page(explained, subject))
        print(f"{explained.sample_id}: {subject.class_names[explained.predicted]}, see {folder / name}.html and .png")


def _subject(
    ckpt_path: Path, explainer: Explainer | None, data_root: str | None, allow_classes: str | None, size: int = 144
) -> ExplainedModel:
    """The model of a checkpoint with the data of its run."""
    allowed = allow_classes.split(",") if allow_classes else ()
    model: Any = load_model(ckpt_path, allow_classes=allowed)
    data = load_datamodule(ckpt_path, allow_classes=allowed, **({"root": data_root} if data_root else {}))
    names = read_checkpoint(ckpt_path, mmap=True).get("training", {}).get("class_names")
    return ExplainedModel(model, data, explainer, size, names)


def after_fit(trainer: Trainer) -> dict[str, Any] | None:
    """Evaluate the best checkpoint of a finished run with the run's own suite, on the same devices.

    Returns:
        The content of ``metrics.json``; None if it was there already.
    """
    engine = next(c for c in trainer.callbacks if isinstance(c, Interpretability))  # type: ignore[attr-defined]
    checkpoint = next(c for c in trainer.callbacks if isinstance(c, RunCheckpoint))  # type: ignore[attr-defined]
    request = Request(checkpoint.best_or_last(trainer), engine)
    on_cpu = trainer.strategy.root_device.type == "cpu"
    devices = trainer.num_devices if on_cpu else trainer.device_ids
    hardware = Hardware("cpu" if on_cpu else "auto", devices, trainer.num_nodes)
    used = class_paths([trainer.lightning_module.hparams, trainer.datamodule.hparams])  # type: ignore[attr-defined]
    packages = [path.split(".")[0] for path in used]  # imported already
    try:
        return evaluate(request, hardware, {}, trainer.loggers, packages)
    except FileExistsError as done:
        rank_zero_info(str(done))
        return None


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
        result, values, pictures, subject = _measure(request, hardware, data_changes, allow_classes, checkpoint, other)
        engine, names = request.engine, checkpoint.get("training", {}).get("class_names") or []
        log_confusion(loggers, engine.evaluation.confusion if names else None, names, request.split, max(0, step - 1))
        _save(result, values, pictures, folder, loggers)
        if request.report and result["explainer"]:
            _write_pages(subject, folder)
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


@rank_zero_only
def _write_pages(subject: ExplainedModel, folder: Path) -> None:
    with evaluation_mode(cast(LightningModule, subject.model)):
        print(f"report:      {build_report(subject, read_evaluation(folder), folder / 'report')}")


def _measure(
    request: Request,
    hardware: Hardware,
    data_changes: dict[str, Any],
    allow_classes: Sequence[str],
    checkpoint: dict[str, Any],
    other: ImageDataModule | None,
) -> tuple[dict[str, Any], dict[str, Rows], dict[str, Image], ExplainedModel]:
    """The content of ``metrics.json``, of the files of values and of pictures, by name, and what was evaluated."""
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
    named, this_pass = None, request.engine.this_pass
    if (found := this_pass.named_units()) and units.weight is not None:
        named = NamedUnits(*(tensor.to(module.device) for tensor in (*found, units.weight.detach())))
    with evaluation_mode(module):
        pictures |= concept_pictures(evaluation.items, module, dataset, named, tables, classes)
        if (birds := this_pass.setting.birds) and (explainer := this_pass.observer.class_explainer):
            shown = (birds.data, tables, classes, module.device)
            model = cast(InterpretableModel, module)
            pictures |= funnybirds_pictures(evaluation.metrics, explainer, model, *shown)
    explainer = this_pass.observer.explainer
    subject = ExplainedModel(cast(Any, module), datamodule, explainer, class_names=classes)
    return result, values, pictures, subject


def _log(result: dict[str, Any], pictures: dict[str, Image], loggers: Sequence[Logger], step: int) -> None:
    """The same numbers, under keys that begin with the split and as a table by family, and the pictures."""
    if pictures:
        log_images(loggers, "media/evaluation", list(pictures.values()), list(pictures), step)
    log_table(loggers, f"tables/evaluation/{result['split']}", *suite_table(result), step)
    for logger in loggers:
        logger.log_metrics(
            {f"{result['split']}/{key}": entry["value"] for key, entry in result["metrics"].items()}, step
        )
        logger.save()
        logger.finalize("success")


class CommandLine(StrictParser):
    """``table`` and ``compare`` take the runs they read without flags; ``explain`` any number of images."""

    def add_function_arguments(self, function: Any, *args: Any, **options: Any) -> list[str]:
        """Add the arguments of a command."""
        if function is table:
            self.add_argument("runs", nargs="+", type=str, help="run folders, evaluation folders or metrics.json files")
            options["skip"] = {"runs"}
        if function is explain:
            for name, what in (("image", "image files"), ("sample", "ids of images of the data")):
                self.add_argument(f"--{name}", nargs="*", type=str, default=[], help=what)
            options["skip"] = {"image", "sample"}
        options["as_positional"] = function not in (run, explain, report)
        return super().add_function_arguments(function, *args, **options)


def main(args: list[str] | None = None) -> None:
    """Run the command line, from the shell or in process."""
    commands: Any = {"run": run, "table": table, "compare": compare, "explain": explain, "report": report}
    auto_cli(commands, args=args, as_positional=False, parser_class=CommandLine)


if __name__ == "__main__":
    from_shell(main)
