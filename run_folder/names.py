"""Names of runs, which are folders below the folder of all runs."""

from __future__ import annotations

from pathlib import PurePath


def run_name(model: str, data: str, fold: int | None, seed: int) -> str:
    """The folder of a run without a name.

    Args:
        model: import path of the model class.
        data: import path of the data module class.
        fold: fold of the data, if any.
        seed: seed of the run.

    Example:
        >>> run_name("protometry.lightning_modules.ProtoPNet", "protometry.datamodules.Cub200", 2, 0)
        'cub200/protopnet-fold2-seed0'
    """
    parts = [model.rsplit(".", 1)[-1].lower(), *([f"fold{fold}"] if fold is not None else []), f"seed{seed}"]
    return f"{data.rsplit('.', 1)[-1].lower()}/{'-'.join(parts)}"


def check_name(experiment: str, where: str = "argument `experiment`") -> str:
    """The name of a run, which must be a separate folder below the folder of all runs.

    Args:
        experiment: such as ``quickstart`` or ``cub200/protopnet-fold0``.
        where: it was given, for the error.

    Raises:
        ValueError: if the name is empty, absolute, leads out of the folder of all runs or cannot be printed.
    """
    path = PurePath(experiment)
    if (
        not experiment.strip()
        or not path.parts
        or path.is_absolute()
        or ".." in path.parts
        or not experiment.isprintable()
    ):
        raise ValueError(
            f"Expected {where} to name a folder below `--runs`, but got {experiment!r}. To store runs "
            "elsewhere, pass `--runs DIR`."
        )
    return experiment
