"""The evaluations of runs, found by the names of their folders or files, and which of them represents its run."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from protometry.evaluation.results.differences import differing, short, short_name
from protometry.evaluation.results.metrics_json import Result, read_metrics
from protometry.run_folder.command_line.messages import counted, program
from protometry.run_folder.command_line.user_path import user_path
from protometry.run_folder.layout import EVALUATION, METRICS

NOT_READ = "not read, to be named by their own folders"
FOLDERS = (EVALUATION, "checkpoints")  # of a run
OF_A_RUN = (*FOLDERS, METRICS)  # the last is in the folder of an evaluation
SHOWN = 5  # other evaluations of a run in a line, and what sets one of them apart


def collect(paths: Sequence[str | Path]) -> list[Result]:
    """Read the evaluations of runs.

    Args:
        paths: run folders, folders of runs, folders of evaluations, or ``metrics.json`` files. A run folder stands for
            the first of :func:`evaluations`; others are named by their own folder. A folder of runs, or a pattern that
            the shell has left as it is, stands for all runs in it.

    Returns:
        One result per run or file, in their order; within a folder, sorted by name.

    Raises:
        FileNotFoundError: if a path holds no evaluation.
        ValueError: if there is no path, one is given twice, or a file is not strict JSON of this schema.
    """
    if not paths:
        raise ValueError("Expected argument `runs` to name at least one run, but got none.")
    results = [read(path) for named in paths for path in _runs_in(user_path(named))]
    read_paths: set[Path] = set()
    for result in results:
        if result.path.resolve() in read_paths:
            raise ValueError(
                f"Expected argument `runs` to name every evaluation once, but got {result.path} twice (a run folder "
                "stands for one of its evaluations)."
            )
        read_paths.add(result.path.resolve())
    return results


def _runs_in(path: Path) -> list[Path]:
    """The runs of a folder or pattern; of anything else, itself."""
    inside = path / "*" if path.is_dir() and not any((path / name).exists() for name in OF_A_RUN) else path
    folders = [
        Path(each) for each in sorted(glob(str(inside))) if any((Path(each) / name).is_dir() for name in FOLDERS)
    ]
    return folders or [path]


def read(path: str | Path) -> Result:
    """Read one evaluation.

    Returns:
        The result; where a run folder was named, with the other evaluations that it holds.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if a file is not strict JSON of this schema.
    """
    path = user_path(path)
    if path.is_file():
        return read_metrics(path)
    results = evaluations(path)
    if results and not results[0].other_data:
        return results[0].model_copy(update={"others": tuple(results[1:])})
    if (path / METRICS).is_file():
        return read_metrics(path / METRICS)
    raise FileNotFoundError(
        f"Expected {path} to be an evaluated run, an evaluation or a metrics.json, but {_why(path)}"
    )


def evaluations(run: Path) -> list[Result]:
    """All evaluations of a run, first the one that stands for it.

    That is the newest one of the whole test split, the checkpoint that the training chose (the best, or the last of a
    run without) and the explainer of the model or of the run's first evaluation. Next are those with another explainer,
    then those of another checkpoint, of a part or of the validation split, and at the end those on other data than the
    run's.

    Raises:
        ValueError: if a file is not strict JSON of this schema.
    """
    main = run / EVALUATION
    files = [file for file in (main / METRICS, *sorted(main.glob(f"*/{METRICS}"))) if file.is_file()]
    results = [read_metrics(file) for file in files]
    usual = {None, *(_asked(result) for result in results if result.path.parent == main)}
    return sorted(results, key=lambda result: _precedence(result, usual), reverse=True)


def _asked(result: Result) -> str | None:
    """The explainer that was asked for, in the config of the run or with ``--explainer``."""
    asked: str | None = result.protocol.get("asked_explainer")
    return asked


def _precedence(result: Result, usual: Collection[str | None]) -> tuple[Any, ...]:
    whole = result.split == "test" and result.limit is None
    choice = {"last": 1, "best": 2}.get(Path(result.checkpoint).stem, 0)
    newest = result.timing["ended"], result.path.stat().st_mtime_ns
    return not result.other_data, whole, choice, _asked(result) in usual, *newest


def _why(path: Path) -> str:
    """Why a path holds no evaluation that can be read, and what to do."""
    from protometry.run_folder.lock import LOCK  # with Lightning, which tables do without

    if not path.exists():
        return "there is no such file or folder."
    if foreign := evaluations(path):
        return f"it was evaluated on other data only. Name that evaluation: {foreign[0].path.parent}."
    for lock in (path / LOCK, *sorted(path.glob(f"evaluation/{LOCK}")), *sorted(path.glob(f"evaluation/*/{LOCK}"))):
        if lock.is_file():
            return f"{lock.read_text() or 'a process'} is at work in {lock.parent}, or was stopped there. Wait for it."
    if any(path.glob("*/evaluation")):
        return f"it is a folder of runs. Name one of them, such as {min(path.glob('*/evaluation')).parent}."
    checkpoint = next((f for name in ("best", "last") if (f := path / "checkpoints" / f"{name}.ckpt").is_file()), None)
    file = checkpoint or "<run>/checkpoints/last.ckpt"
    return f"there is none. Run `{program('evaluate')} run --ckpt_path {file}` first."


def read_from(*results: Result) -> str:
    """The folders that evaluations of equal :attr:`Result.source` were read from, as seen from here."""
    common, here = Path(os.path.commonpath([result.run.absolute() for result in results])), Path.cwd()
    near = common.relative_to(here) if common.is_relative_to(here) else common
    return (near / ("*" if len(results) > 1 else "") / results[0].source).as_posix()


def passed_over(result: Result) -> str:
    """The other evaluations of a run, on a line: their folders, and what sets them apart from the one that was read.

    That is in what they differ, and how many metrics they have that it has not.
    """
    texts = []
    for other in result.others[:SHOWN]:
        apart = differing([{**each.conditions, "seed": each.seed} for each in (result, other)])
        differs = [f"{short_name(path)} {short(value)}" for path, (_, value) in apart.items()]
        more = [f"{len(differs) - SHOWN} more"] if len(differs) > SHOWN else []
        further = len(other.metrics.keys() - result.metrics.keys())
        more += [counted(further, "further metric")] if further else []
        texts.append(", ".join([other.source, *differs[:SHOWN], *more]))
    return "; ".join([*texts, *([f"{len(result.others) - SHOWN} more"] if len(result.others) > SHOWN else [])])
