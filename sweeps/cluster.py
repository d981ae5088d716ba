"""The same sweep for a cluster: a SLURM array, or agents of Weights & Biases. Each element trains runs of ``only``."""

from __future__ import annotations

import shlex
import warnings

import yaml

from protometry.sweeps.state import read_settings
from protometry.sweeps.sweep import Sweep, groups, read_sweep

LONGEST_ARRAY = 1001  # SLURM's own MaxArraySize


def slurm(file: str, runs: str = "runs", flags: str = "") -> None:
    """Print a script for ``sbatch`` with an element of an array for each run.

    Runs that need each other share an element, one after the other. What was killed continues, and what is done stays,
    when the script is submitted again.

    Args:
        file: yaml of the sweep.
        runs: folder of all runs.
        flags: further flags of every run, in quotes.
    """
    sweep = read_sweep(file, runs, flags)
    read_settings(sweep.runs.values())  # refuses wrong flags
    elements = _elements(sweep)
    if len(elements) > LONGEST_ARRAY:
        warnings.warn(
            f"{len(elements):,} elements: SLURM accepts {LONGEST_ARRAY:,} in an array unless a cluster allows more "
            "(`scontrol show config | grep MaxArraySize`). Split the sweep into several files.",
            stacklevel=2,
        )
    lines = [
        "#!/bin/bash",
        f"#SBATCH --job-name={sweep.name.replace('/', '-')}",
        f"#SBATCH --array=0-{len(elements) - 1}",
        "#SBATCH --ntasks=1",
        "#SBATCH --output=slurm-%A_%a.log",
        "# Add what your cluster asks for, such as --partition, --time, --cpus-per-task and --gres=gpu:1.",
        f"only=({' '.join(map(shlex.quote, elements))})",
        f'{shlex.join(_command(sweep, runs, flags))} --only "${{only[$SLURM_ARRAY_TASK_ID]}}"',
    ]
    print("\n".join(lines))


def wandb(file: str, runs: str = "runs", flags: str = "") -> None:
    """Print a file for ``wandb sweep``, whose agents train a run each.

    Args:
        file: yaml of the sweep.
        runs: folder of all runs.
        flags: further flags of every run, in quotes.
    """
    sweep = read_sweep(file, runs, flags)
    read_settings(sweep.runs.values())  # refuses wrong flags
    content = {
        "name": sweep.name,
        "method": "grid",
        "parameters": {"only": {"values": _elements(sweep)}},
        "command": ["${env}", *_command(sweep, runs, flags), "${args}"],
    }
    print(yaml.safe_dump(content, sort_keys=False).rstrip())


def _elements(sweep: Sweep) -> list[str]:
    return [",".join(names) for names in groups(sweep.runs)]


def _command(sweep: Sweep, runs: str, flags: str) -> list[str]:
    given = {"--runs": runs if runs != "runs" else "", "--flags": flags}
    options = [f"{name}={value}" for name, value in given.items() if value]
    return ["protometry", "sweeps", "run", str(sweep.file), *options]
