"""Evaluations of checkpoints, tables and comparisons of what they found, and explained images.

``python evaluate.py run --ckpt_path runs/quickstart/checkpoints/last.ckpt``
``python evaluate.py table runs/cub200/* --published quanproto``
``python evaluate.py compare runs/first runs/second``
``python evaluate.py explain --ckpt_path runs/quickstart/checkpoints/last.ckpt --image photo.jpg``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from jsonargparse import auto_cli
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only, rank_zero_warn
from PIL.Image import Image

import reports
from callbacks import Interpretability, RunCheckpoint
from callbacks.evaluation.interface import Interface
from callbacks.forward.evaluation_mode import evaluation_mode
from callbacks.run.confusion import log_confusion
from callbacks.run.loggers import log_evaluation
from callbacks.run.training_record import told_training, where_cut_short
from datamodules import load_datamodule
from datamodules.base import ImageDataModule
from datamodules.load import match_data, read_datamodule
from datamodules.photos.one_photo import read_photo
from datamodules.transforms.continuity import codec_versions
from evaluation.hardware import Hardware
from evaluation.measure import measure
from evaluation.request import EvaluatedSplit, Request
from explanations import Explainer
from lightning_modules import load_model
from metrics.functional import Variant
from reports import table
from reports.explained_model import ExplainedModel
from reports.html.comparison import build_comparison, comparison_folder
from reports.html.evaluation_files import EvaluationFiles, read_evaluation
from reports.html.report import Limits, build_report
from reports.html.standalone_page import write_explained
from reports.pictures.evaluation import evaluation_pictures, write_pictures
from reports.results.metrics_json import SCHEMA, write_metrics
from reports.results.runs import read
from reports.results.summary import print_summary, suite_table
from reports.results.values_csv import Rows, by_kind, write_all_values
from reports.scan import samples_of
from run_folder import class_paths, folder_of_run, read_checkpoint
from run_folder.command_line import StrictParser, from_shell
from run_folder.lock import only_process


def run(  # noqa: PLR0913 - every argument is a flag
    ckpt_path: str,
    suite: str = "quanproto",
    split: EvaluatedSplit = "test",
    limit: int | None = None,
    seed: int = 0,
    explainer: Explainer | None = None,
    variant: Variant = "paper",
    top_k: int = 5,
    memory_budget: float | None = None,
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
        memory_budget: GiB for one forward, which sets how many images it takes; by default 0.68 on a CPU, 8 elsewhere.
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
    folder = Path(evaluation) if evaluation else folder_of_run(path) / "evaluation"
    subject, files = _evaluated(folder, path, explainer, data_root, allow_classes, size)
    print(f"report: {build_report(subject, files, Path(output) if output else folder / 'report', limits)}")


def compare(  # noqa: PLR0913 - every argument is a flag
    run: str,
    other: str,
    across: list[str] = [],  # noqa: B006  (the command line shows it as the default)
    common: bool = False,
    draws: int = 10_000,
    seed: int = 0,
    report: bool = True,
    images: int = 40,
    output: str | None = None,
    explainer: Explainer | None = None,
    data_root: str | None = None,
    allow_classes: str | None = None,
) -> None:
    """Print the paired comparison of two runs on the same images, and write pages with both side by side.

    Args:
        run: run folder, its `evaluation` folder, or a metrics.json file.
        other: the run to compare with it.
        across: conditions in which the runs may differ although their numbers then mean different things.
        common: compare on the images both have, if they do not have the same.
        draws: of the test.
        seed: of these draws.
        report: also write pages, for which both checkpoints are loaded and shown the images once more.
        images: the most with a page; those on which the models disagree come first.
        output: folder of the pages; by default a folder in ``compared`` of the first run, named after the other.
        explainer: of both, as in ``run``.
        data_root: as in ``run``.
        allow_classes: as in ``run``.
    """
    compared = reports.compare(run, other, across, common, draws, seed)
    if not report:
        return
    try:
        evaluated = [_evaluated(r.path.parent, None, explainer, data_root, allow_classes) for r in compared.results]
    except (FileNotFoundError, ValueError) as error:
        print(f"\nno pages: {error}")
        return
    folder = Path(output) if output else comparison_folder(*compared.results)
    print(f"\npages: {build_comparison(evaluated, compared, folder, images)}")


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
    folder = Path(output) if output else folder_of_run(Path(ckpt_path)) / "explained"
    print("\n".join(write_explained(subject, samples, folder)))


def _evaluated(
    folder: Path,
    ckpt_path: Path | None,
    explainer: Explainer | None,
    data_root: str | None,
    allow_classes: str | None,
    size: int = 144,
) -> tuple[ExplainedModel, EvaluationFiles]:
    """The model of an evaluation, by default that of its run, with the data of the run, and what was found."""
    files = read_evaluation(folder)
    told = files.result
    path = ckpt_path or read(folder).run / told["checkpoint"]
    asked = Request(path, Interpretability()).identity(read_checkpoint(path, mmap=True)["global_step"])
    if told["other_data"] or any(told[name] != asked[name] for name in ("checkpoint", "step")):
        raise ValueError(
            f"Expected {folder} to be the evaluation of {path}, step {asked['step']}, on the data of its run, but it "
            f"is of {told['checkpoint']}, step {told['step']}, on {'other' if told['other_data'] else 'these'} data. "
            "Evaluate the checkpoint again, or name the folder of its evaluation."
        )
    return _subject(path, explainer, data_root, allow_classes, size, told["protocol"].get("inference")), files


def _subject(
    ckpt_path: Path,
    explainer: Explainer | None,
    data_root: str | None,
    allow_classes: str | None,
    size: int = 144,
    inference: str | None = None,
) -> ExplainedModel:
    """The model of a checkpoint with the data of its run."""
    allowed = allow_classes.split(",") if allow_classes else ()
    model: Any = load_model(ckpt_path, allow_classes=allowed, **({"inference": inference} if inference else {}))
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
    used = class_paths([trainer.lightning_module.hparams, trainer.datamodule.hparams])  # type: ignore[attr-defined]
    packages = [path.split(".")[0] for path in used]  # imported already
    try:
        return evaluate(request, Hardware.of(trainer), {}, trainer.loggers, packages)
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
    if told := where_cut_short(told_training(request.ckpt_path, checkpoint)):
        rank_zero_warn(f"{told}. The result is marked as incomplete.")
    step, trained = checkpoint["global_step"], checkpoint["hyper_parameters"]
    names = checkpoint.get("training", {}).get("class_names")  # older checkpoints do not name them
    if request.inference is None:
        request = replace(request, inference=trained.get("inference"))
    other = None
    if data is not None:
        other = read_datamodule(data, trained["image_size"], **data_changes)
        known = names or load_datamodule(request.ckpt_path, allow_classes=allow_classes).class_names
        request = replace(request, other_data=match_data(other, known, request.split, data))
    folder = request.folder(step, trained)
    with only_process(folder):
        if request.folder(step, trained) != folder:
            raise FileExistsError(f"Expected {folder} to be free, but another result now lies there. Evaluate again.")
        result, values, pictures, subject = _measure(request, hardware, data_changes, allow_classes, checkpoint, other)
        confusion = request.engine.evaluation.confusion if names else None
        log_confusion(loggers, confusion, names or [], request.split, max(0, step - 1))
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
    write_pictures(pictures, folder)
    numbers = {key: entry["value"] for key, entry in result["metrics"].items()}
    step = max(0, result["step"] - 1)  # next to the validation of the epoch that ended there
    log_evaluation(loggers, result["split"], numbers, suite_table(result), pictures, step)
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
    seed_everything(request.engine.seed, verbose=False)
    changes = {} if request.inference is None else {"inference": request.inference}
    module = load_model(request.ckpt_path, allow_classes=allow_classes, **changes)
    datamodule = other or load_datamodule(request.ckpt_path, allow_classes=allow_classes, **data_changes)
    content = measure(request, hardware, module, datamodule, checkpoint, codec_versions())
    dataset, evaluation = cast(Any, datamodule.test_dataloader().dataset), request.engine.evaluation
    classes = checkpoint.get("training", {}).get("class_names") or datamodule.class_names
    names = {"classes": classes, "concepts": datamodule.tables.concept_names}
    values = by_kind(evaluation.images, evaluation.items, dataset.sample_ids, names)
    this_pass = request.engine.this_pass
    subject = ExplainedModel(cast(Any, module), datamodule, this_pass.observer.explainer, class_names=classes)
    birds, explainer = this_pass.setting.birds, this_pass.observer.class_explainer
    parts = (birds.data, explainer) if birds and explainer else None
    with evaluation_mode(module):
        pictures = evaluation_pictures(subject, evaluation, dataset, this_pass.named_units(), parts)
    return {"schema": SCHEMA, **content}, values, pictures, subject


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
