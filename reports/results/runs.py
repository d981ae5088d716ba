"""The evaluations of runs, found from the names of their folders or files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reports.results.metrics_json import Result, read_content, read_metrics


def collect(paths: Sequence[str | Path]) -> list[Result]:
    """Read the evaluations of runs.

    Args:
        paths: run folders, their ``evaluation`` folders, or ``metrics.json`` files. A run folder stands for
            ``evaluation/metrics.json``; further evaluations of a run are named by their own folder.

    Returns:
        One result per path, in their order.

    Raises:
        FileNotFoundError: if a path holds no evaluation.
        ValueError: if there is no path, one is given twice, or a file is not strict JSON of this schema.
    """
    if not paths:
        raise ValueError("Expected argument `runs` to name at least one run, but got none.")
    results = [read(path) for path in paths]
    seen: set[Path] = set()
    for result in results:
        if result.path.resolve() in seen:
            raise ValueError(f"Expected argument `runs` to name every evaluation once, but got {result.path} twice.")
        seen.add(result.path.resolve())
    return results


def read(path: str | Path) -> Result:
    """Read one evaluation.

    Args:
        path: as for :func:`collect`.

    Returns:
        The result.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if the file is not strict JSON of this schema.
    """
    return read_metrics(_locate(Path(path)))


def _locate(path: Path) -> Path:
    if path.is_file():
        return path
    for file in (path / "evaluation" / "metrics.json", path / "metrics.json"):
        if file.is_file():
            _refuse_outdated(file)
            return file
    raise FileNotFoundError(
        f"Expected {path} to be an evaluated run, its `evaluation` folder or a metrics.json, but there is no such "
        "file. Run `evaluate.py run --ckpt_path <run>/checkpoints/last.ckpt` first."
    )


def _refuse_outdated(file: Path) -> None:
    """A folder stands for its first evaluation, unless the run went on and the checkpoint was evaluated again."""

    def told(path: Path) -> tuple[str | None, int]:
        content = read_content(path)
        return None if content["other_data"] else content["checkpoint"], content["step"]

    try:
        checkpoint, step = told(file)
        others = {path: told(path) for path in sorted(file.parent.glob("*/metrics.json"))}
    except ValueError:
        return  # reading says what is wrong
    newer = [path for path, (name, at) in others.items() if name is not None and name == checkpoint and at > step]
    if newer:
        raise ValueError(
            f"Expected {file} to be of the last evaluated step of {checkpoint}, but it is of step {step}, and "
            f"{newer[-1]} of a later one. Name the metrics.json you mean."
        )
