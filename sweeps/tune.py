"""Hyper-parameters tuned with Optuna, on validation accuracy, by trials that are runs like any others."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Self
from urllib.parse import quote

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.command_line.messages import counted, requires
from protometry.run_folder.command_line.user_path import expand_paths, user_path
from protometry.run_folder.command_line.yaml_files import read_yaml
from protometry.run_folder.csv_text import csv_text, whole_rows
from protometry.run_folder.layout import BEST, HISTORY, LAST, check_name
from protometry.run_folder.lock import only_process
from protometry.run_folder.schema import check_content
from protometry.run_folder.settings import changed_settings
from protometry.sweeps.run import Interrupts, end, start
from protometry.sweeps.state import LOG, last_line, read_settings
from protometry.sweeps.sweep import (
    OF_THE_SWEEP,
    Name,
    Part,
    Run,
    check_configs,
    check_flags,
    flag_arguments,
    split_arguments,
)

if TYPE_CHECKING:
    import optuna

ACCURACY = "val/general/accuracy"
SECONDS_BETWEEN_LOOKS = 1.0
FULL = re.compile(r"sqlite3.*(?:disk is full|disk I/O error)")
BEFORE_PRUNING = 5  # trials that are never stopped early, as in Optuna's own default
MOST_FAILURES = 3  # at the beginning
LARGEST = 2**53  # whole number that a float holds exactly, as the sampler needs
Bound = Annotated[int | float, Field(ge=-LARGEST, le=LARGEST)]
MOST_SEEDS = 2**31  # each trial adds 1, and the sampler takes 32 bits
OF_THE_TUNING = tuple(name for name in OF_THE_SWEEP if name not in ("seed_everything", "data.fold"))


class Parameter(BaseModel):
    """What is tuned: flags that get one value between two numbers; a whole number if both and ``step`` are."""

    model_config = ConfigDict(extra="forbid")
    flags: Annotated[list[str], BeforeValidator(lambda v: [v] if isinstance(v, str) else v), Field(min_length=1)]
    low: Bound
    high: Bound
    log: bool = False
    step: Annotated[int | float, Field(gt=0, le=LARGEST)] | None = None

    @model_validator(mode="after")
    def _is_range(self) -> Self:
        named = f"of {', '.join(self.flags)}"
        if self.low > self.high:
            raise ValueError(f"`low` {named} is {self.low}, above `high`, {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"`low` {named} is {self.low}, not above 0 as `log` requires")
        if self.log and self.step:
            raise ValueError(f"`step` {named} goes with `log: false` only")
        return self

    def suggest(self, name: str, trial: optuna.Trial) -> int | float:
        """A value for a trial."""
        whole = all(isinstance(value, int) for value in (self.low, self.high, self.step or 1))
        draw: Any = trial.suggest_int if whole else trial.suggest_float
        stepped = {"step": self.step} if self.step else {}
        value: int | float = draw(name, self.low, self.high, log=self.log, **stepped)
        return value


class Pruning(BaseModel):
    """When a trial whose accuracy is below the median of the others' is stopped: from an epoch on, every so many."""

    model_config = ConfigDict(extra="forbid")
    after: Annotated[int, Field(ge=0)] = 20
    every: Annotated[int, Field(ge=1)] = 10


class TuningFile(Part):
    """What the yaml file of a tuning may hold: ``config`` and flags as a part of a sweep has them, and the space."""

    name: str = Field(min_length=1)
    trials: Annotated[int, Field(ge=1)] = 50
    prune: Pruning = Pruning()
    space: Annotated[dict[Name, Parameter], Field(min_length=1)]


def tune(file: str, runs: str = "runs", trials: int | None = None, seed: int = 0, flags: str = "") -> None:
    """Tune hyper-parameters with Optuna's TPE sampler and median pruner, and print the command of the best trial.

    The score of a trial is the validation accuracy of the checkpoint that it would be evaluated by; test images are
    never looked at. Trials are kept in ``optuna.db`` in the folder of the tuning: the same command continues after a
    kill, with the trial that was killed, until there are ``trials``.

    Args:
        file: yaml of the tuning.
        runs: folder of all runs.
        trials: in all; by default what the file says.
        seed: of the sampler.
        flags: further flags of every trial, in quotes, such as where data lie: "--data.root DIR".
    """
    tuning = read_tuning(file, runs, flags)
    wanted = tuning.asked.trials if trials is None else trials
    if wanted < 1:
        raise ValueError(f"Expected argument `trials` to be at least 1, but got {trials}.")
    if not 0 <= seed < MOST_SEEDS:
        raise ValueError(f"Expected argument `seed` to be at least 0 and below 2^31, but got {seed}.")
    settings = tuning.settings()
    with only_process(tuning.folder), _full_disk_said(tuning.folder / "optuna.db"):
        study = _study(tuning, seed)
        _check_settings(study, tuning, settings)
        with Interrupts() as interrupts, TemporaryDirectory(prefix="tuning-") as folder:
            fixed = Path(folder) / "config.yaml"
            fixed.write_text(yaml.safe_dump(settings), "utf-8")
            while not interrupts.count and (done := sum(one.state.is_finished() for one in _trials(study))) < wanted:
                if _try(study, tuning, fixed, interrupts):
                    print(f"{done + 1}/{wanted}  {_progress(study)}", flush=True)
            interrupts.stop()
        _end(study, tuning)


@contextmanager
def _full_disk_said(database: Path) -> Iterator[None]:
    """Where the database finds no room, raise the error of the operating system, which names what to do."""
    try:
        yield
    except Exception as error:  # of SQLite, within those of SQLAlchemy and Optuna
        cause: BaseException | None = error
        while cause is not None and not FULL.search(str(cause)):
            cause = cause.__cause__
        if cause is None:
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(database)) from error


@dataclass(frozen=True)
class Tuning:
    """A tuning and where its trials lie."""

    asked: TuningFile
    runs: str
    further: tuple[str, ...]

    @property
    def folder(self) -> Path:
        """The folder of its trials."""
        return Path(self.runs) / self.asked.name

    def own_flags(self, name: str, values: Mapping[str, Any]) -> list[str]:
        """The flags that set a trial apart, with the given values of what is tuned."""
        tuned = [(flag, values[key]) for key, parameter in self.asked.space.items() for flag in parameter.flags]
        arguments = [argument for flag in tuned for argument in flag_arguments(*flag)]
        return [*arguments, "--experiment", f"{self.asked.name}/{name}"]

    def run(self, name: str, values: Mapping[str, Any], tested: bool = False) -> Run:
        """The run with the given values of what is tuned, evaluated on the test images if asked."""
        arguments = [
            *(argument for path in self.asked.config for argument in ("--config", path)),
            *(argument for flag in self.asked.flags.items() for argument in flag_arguments(*flag)),
            *(*self.further, "--runs", self.runs, "--test_after_fit", str(tested).lower()),
        ]
        return Run(name, self.folder / name, (*arguments, *self.own_flags(name, values)))

    def settings(self) -> dict[str, Any]:
        """The settings of all trials, with the lowest values of what is tuned.

        Raises:
            ValueError: if ``train.py`` would refuse them, or the highest values.
        """
        space = self.asked.space.items()
        low = self.run("the lowest values", {name: one.low for name, one in space})
        high = self.run("the highest values", {name: one.high for name, one in space})
        return read_settings([low, high])[low.name]


def read_tuning(file: str | Path, runs: str = "runs", flags: str = "") -> Tuning:
    """Read the file of a tuning.

    Raises:
        FileNotFoundError: if the file or a config that it names does not exist.
        ValueError: if the file holds something else, or flags that the tuning sets itself.
    """
    content = expand_paths(read_yaml(file))
    check_content(TuningFile, content, file, "See docs/sweeps.md.")
    asked, further = TuningFile.model_validate(content), split_arguments(flags)
    check_name(asked.name, f"`name` in {file}")
    check_configs(asked.config, str(file))
    tuned = [flag for parameter in asked.space.values() for flag in parameter.flags]
    check_flags([*asked.flags, *tuned], str(file), OF_THE_TUNING)
    check_flags(further, "argument `flags`", (*OF_THE_TUNING, *tuned))
    return Tuning(asked, str(user_path(runs)), tuple(further))


def _study(tuning: Tuning, seed: int) -> optuna.Study:
    """The study of a tuning, in which a trial that was under way when it was killed is tried again, in the same run.

    Raises:
        ValueError: without Optuna, if that trial is still being trained, or if ``optuna.db`` is something else.
    """
    try:
        import optuna
        from sqlalchemy.exc import SQLAlchemyError
    except ModuleNotFoundError:
        raise ValueError(requires("tune", "Optuna")) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    database = (tuning.folder / "optuna.db").absolute()
    try:
        study = optuna.create_study(
            storage=f"sqlite:///{quote(str(database))}",  # such as the `?` of a name
            study_name=tuning.asked.name,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(BEFORE_PRUNING, tuning.asked.prune.after, tuning.asked.prune.every),
            load_if_exists=True,
        )
    except (SQLAlchemyError, RuntimeError) as error:  # the latter for the database of another version of Optuna
        reason = " ".join(str(error).splitlines()[:1])
        raise ValueError(
            f"Expected {database} to hold the trials of a tuning, but {reason}. Rename the tuning."
        ) from error
    study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))  # other draws than before a kill
    for trial in study.get_trials(states=(optuna.trial.TrialState.RUNNING,)):
        run = trial.user_attrs.get("run")
        with only_process(tuning.folder / run) if run else nullcontext():  # it may have outlived the tuning
            study.enqueue_trial(trial.params, {"run": run} if run else None)
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return study


def _check_settings(study: optuna.Study, tuning: Tuning, settings: Mapping[str, Any]) -> None:
    """Note with what a tuning begins, and refuse to continue it, or to name the best trial, with anything else.

    Raises:
        ValueError: naming each setting or parameter that has changed.
    """
    space = {name: one.model_dump() for name, one in tuning.asked.space.items()}
    now = json.loads(json.dumps({"settings": settings, "space": space}))
    before = study.user_attrs.get("begun with")
    if before is None:
        study.set_user_attr("begun with", now)
        return
    tuned = [
        name for name in {**before["space"], **now["space"]} if before["space"].get(name) != now["space"].get(name)
    ]
    changed = [*changed_settings(before["settings"], now["settings"]), *(f"space.{name}" for name in tuned)]
    if changed:
        raise ValueError(
            f"Expected {tuning.folder} to continue with the settings that it began with, but got others. "
            f"{'; '.join(changed)}. Restore them, or rename the tuning."
        )


def _trials(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """The trials, of several in the same run the last one."""
    return list({trial.user_attrs.get("run", trial.number): trial for trial in study.trials}.values())


def _try(study: optuna.Study, tuning: Tuning, fixed: Path, interrupts: Interrupts) -> bool:
    """One trial, to its end or until it is pruned; if it fails, the tuning continues.

    Returns:
        Whether it ended; otherwise it was interrupted.

    Raises:
        OSError: if it failed because the disk is full.
        ValueError: if the first trials all failed.
    """
    from optuna.trial import TrialState

    trial = study.ask()
    values = {name: parameter.suggest(name, trial) for name, parameter in tuning.asked.space.items()}
    name = trial.user_attrs.get("run") or f"trial{trial.number:03d}"
    trial.set_user_attr("run", name)
    run = tuning.run(name, values)
    pruned, process = False, start(run, ["--config", str(fixed), *tuning.own_flags(name, values)], jobs=1)
    try:
        while process.poll() is None and not pruned and not interrupts.count:
            time.sleep(SECONDS_BETWEEN_LOOKS)
            for epoch, accuracy in _accuracies(run):
                if epoch not in study.trials[trial.number].intermediate_values:
                    trial.report(accuracy, epoch)
                    pruned = pruned or trial.should_prune()
    finally:
        end({name: process}, interrupts, quiet=pruned)
    if interrupts.count:
        return False
    score = _score(run) if process.returncode == 0 else math.nan
    if pruned:
        study.tell(trial, state=TrialState.PRUNED)
    elif math.isfinite(score):
        study.tell(trial, score)
    else:
        ended = process.returncode == 0
        if os.strerror(errno.ENOSPC) in last_line(run) or shutil.disk_usage(run.folder).free == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.folder))  # the trial is tried again
        trial.set_user_attr("error", "its validation accuracy is not a number" if ended else last_line(run))
        study.tell(trial, state=TrialState.FAIL)
        states = {one.state for one in _trials(study)}
        if states == {TrialState.FAIL} and len(_trials(study)) >= MOST_FAILURES:
            reason = study.trials[trial.number].user_attrs["error"]
            raise ValueError(
                f"Expected trials to end, but the first {MOST_FAILURES} failed: {reason} ({run.folder / LOG})"
            )
    return True


def _accuracies(run: Run) -> list[tuple[int, float]]:
    """Epoch and validation accuracy, from the table of the run."""
    rows = [row for row in whole_rows(run.folder / HISTORY) if row.get(ACCURACY)]
    return [(int(row["epoch"]), float(row[ACCURACY])) for row in rows]


def _score(run: Run) -> float:
    """The accuracy, at its epoch, of the checkpoint that would be evaluated: the best, or the last; NaN without any."""
    from protometry.run_folder.checkpoint_file import read_checkpoint

    best = run.folder / BEST
    checkpoint = read_checkpoint(best if best.is_file() else run.folder / LAST, mmap=True)
    return dict(_accuracies(run)).get(checkpoint["epoch"], math.nan)


def _progress(study: optuna.Study) -> str:
    """The result of the last trial, and the best so far."""
    trial, best = study.trials[-1], _best(study)
    ended = {
        "COMPLETE": f"{100 * (trial.value or 0.0):.2f} %",
        "PRUNED": f"stopped after {counted(len(trial.intermediate_values), 'epoch')}",
        "FAIL": f"failed: {trial.user_attrs.get('error')}",
    }
    so_far = f"  (best {100 * best.value:.2f} %, {best.user_attrs['run']})" if best else ""
    return f"{trial.user_attrs['run']}  {ended[trial.state.name]}{so_far}"


def _best(study: optuna.Study) -> Any:
    from optuna.trial import TrialState

    return study.best_trial if study.get_trials(False, (TrialState.COMPLETE,)) else None


def _end(study: optuna.Study, tuning: Tuning) -> None:
    """Write the table of trials, and print the command of the best one."""
    best, folder = _best(study), tuning.folder
    if best is None:
        raise ValueError(f"Expected a trial to end, but all failed: {study.trials[-1].user_attrs.get('error')}")
    header = ["run", "state", "value", *tuning.asked.space]
    rows = [
        {"run": one.user_attrs.get("run"), "state": one.state.name.lower(), "value": one.value} | one.params
        for one in _trials(study)
    ]
    write_atomic(folder / "trials.csv", csv_text([header, *([row.get(name) for name in header] for row in rows)]))
    _check_settings(study, tuning, tuning.settings())  # configs may have been edited, which the command names
    print(f"\nbest validation accuracy {100 * best.value:.2f} %, {best.user_attrs['run']} in {folder}/trials.csv")
    print(tuning.run("best", best.params, tested=True).command(resume=False))
