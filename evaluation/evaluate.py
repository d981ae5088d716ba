"""From a request to ``metrics.json``, the neighbouring files, the loggers and the printed table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning import Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only, rank_zero_warn

from protometry.callbacks import Interpretability, RunCheckpoint
from protometry.callbacks.evaluation.unit_maps import remove_maps, unit_maps
from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.run.loggers import log_evaluation
from protometry.callbacks.run.training_record import unfinished_schedule
from protometry.callbacks.trainer_parts import callbacks_of, datamodule_of
from protometry.datamodules.load import read_datamodule
from protometry.evaluation.findings import Findings, findings_of
from protometry.evaluation.hardware import Hardware
from protometry.evaluation.measure import measure
from protometry.evaluation.pages import build_report, read_evaluation
from protometry.evaluation.request import Request
from protometry.evaluation.results.metrics_json import read_content, write_metrics
from protometry.evaluation.results.runs import evaluations
from protometry.evaluation.tables.summary import print_summary, suite_table
from protometry.evaluation.trained_model import TrainedModel
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.command_line.messages import program
from protometry.run_folder.command_line.stop_signals import SIGNALS
from protometry.run_folder.command_line.user_path import shown
from protometry.run_folder.layout import METRICS, REPORT, run_of_evaluation
from protometry.run_folder.trusted_classes import foreign_packages


def evaluate(
    request: Request,
    hardware: Hardware,
    loggers: Sequence[Logger] = (),
    data: Path | None = None,
    foreign: str | None = None,
) -> tuple[dict[str, Any], Path]:
    """Run one evaluation, write ``metrics.json`` and print the table.

    Args:
        request: the checkpoint, and what to measure.
        hardware: to run on.
        loggers: that get the results, too.
        data: a yaml file of other data to evaluate on.
        foreign: a yaml file of photos whose patches prototypes are exchanged with.

    Returns:
        The content of ``metrics.json``, and the folder it lies in.

    Raises:
        FileNotFoundError: if the checkpoint is missing.
        FileExistsError: if the result exists.
        ValueError: if the checkpoint is foreign or does not fit the data, or another process is already evaluating it.
    """
    trained = request.trained
    if note := unfinished_schedule(trained.training):
        rank_zero_warn(f"{note}. The result is marked as incomplete.")
    if request.inference is None:
        request = replace(request, inference=trained.checkpoint["hyper_parameters"].get("inference"))
    if data is not None:
        request = request.on(data)
    if foreign is not None:
        request.engine.foreign = (foreign, read_datamodule(Path(foreign), trained.image_size))
    with request.reserved() as folder:
        with unit_maps(request.engine, folder if request.maps else None) as maps:
            findings = findings_of(request, measure(request, hardware))
            if maps:
                maps.finish(findings.index)
        _save(findings, folder, loggers, request)
        if request.report:
            _write_pages(findings, folder, trained.path)
    return findings.result, folder


def after_fit(trainer: Trainer) -> tuple[dict[str, Any], Path]:
    """Evaluate the best checkpoint of a finished run with the run's own suite, on the same devices, and write pages.

    Returns:
        The content of ``metrics.json`` and its folder; if this evaluation already exists, the content and folder
        of the evaluation that stands for it.
    """
    (engine,), (checkpoint,) = callbacks_of(trainer, Interpretability), callbacks_of(trainer, RunCheckpoint)
    arguments = [trainer.lightning_module.hparams, datamodule_of(trainer).hparams]
    packages = foreign_packages(arguments)  # imported already
    trained = TrainedModel(checkpoint.best_or_last(trainer), allow_classes=packages)
    try:
        return evaluate(Request(trained, engine, report=True), _hardware(trainer), trainer.loggers)
    except FileExistsError as done:
        rank_zero_info(str(done))
        folder = trained.chosen_evaluation()
        return read_content(folder / METRICS), folder


def _hardware(trainer: Trainer) -> Hardware:
    """The hardware that a trainer runs on."""
    on_cpu = trainer.strategy.root_device.type == "cpu"
    devices = trainer.num_devices if on_cpu else trainer.device_ids
    bar = trainer.progress_bar_callback is not None
    return Hardware("cpu" if on_cpu else "auto", devices, trainer.num_nodes, bar)


@rank_zero_only
def _save(findings: Findings, folder: Path, loggers: Sequence[Logger], request: Request) -> None:
    """Write and print a result; ``metrics.json`` comes last, so its presence means a complete evaluation."""
    for earlier in folder.glob("scores.*"):
        earlier.unlink()
    if not request.maps:
        remove_maps(folder)
    for name, content in findings.files.items():
        write_atomic(folder / name, content)
    numbers = {key: entry["value"] for key, entry in findings.result["metrics"].items()}
    step = max(0, findings.result["step"] - 1)  # next to the validation of the epoch that ended there
    log_evaluation(loggers, findings.result["split"], numbers, suite_table(findings.result), findings.pictures, step)
    write_metrics(findings.result, folder)
    print_summary(findings.result, folder)
    _say_which_is_read(folder)


def _say_which_is_read(folder: Path) -> None:
    """A line where an evaluation stands for its run from now on, although another has more metrics."""
    first, *others = evaluations(run_of_evaluation(folder))
    whole = [other for other in others if other.split == "test" and other.limit is None and not other.other_data]
    fullest = max(whole, key=lambda other: len(other.metrics), default=first)
    if first.path.parent == folder and len(fullest.metrics) > len(first.metrics):
        print(
            f"tables, comparisons and exports now read this evaluation ({len(first.metrics)} metrics); name "
            f"{shown(fullest.path.parent)} for an earlier one ({len(fullest.metrics)} metrics)"
        )


@rank_zero_only
def _write_pages(findings: Findings, folder: Path, checkpoint: Path) -> None:
    if not findings.result["explainer"]:
        how = f"{program('evaluate')} report --ckpt_path {shown(checkpoint)}"
        print(f"no pages: the suite needs no explanations; `{how}` writes them")
        return
    if findings.no_pages:
        print(f"no pages: {findings.no_pages}")
        return
    how = f"{program('evaluate')} report --ckpt_path {shown(checkpoint)} --evaluation {shown(folder)}"
    SIGNALS.go_on = lambda: f"{shown(folder / METRICS)} is complete. Write its pages with `{how}`."
    try:
        with evaluation_mode(findings.explained.model):  # type: ignore[arg-type]
            pages = build_report(findings.explained, read_evaluation(folder), folder / REPORT)
            print(f"report:      {shown(pages)}")
    except OSError as error:
        if error.errno is None:  # one of ours, which says what to do
            raise
        raise OSError(
            f"Could not write the pages of the report ({error}); {folder / METRICS} is complete. Once this is fixed, "
            f"write them with `{how}`."
        ) from error
