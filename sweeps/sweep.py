"""The file of a sweep: which configs are combined, and with which flags each run is trained."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from protometry.run_folder.command_line.messages import did_you_mean
from protometry.run_folder.command_line.user_path import expand_paths, user_path
from protometry.run_folder.command_line.yaml_files import read_yaml
from protometry.run_folder.layout import check_name
from protometry.run_folder.schema import check_content
from protometry.scripts import config_of_ours

ROOT = Path(__file__).resolve().parents[1]
NAME = r"^[A-Za-z0-9][\w.+-]*$"  # part of the name of a folder
PLACEHOLDER = re.compile(r"{([A-Za-z0-9][\w.+-]*)}")  # of the folder of another run
OF_THE_SWEEP = ("runs", "experiment", "seed_everything", "data.fold", "test_after_fit", "ckpt_path", "config")
Name = Annotated[str, Field(pattern=NAME)]


def _listed(value: Any) -> Any:
    """A part of a sweep may be a file, or files, without flags."""
    return {"config": value} if isinstance(value, str | list) else value


def _files(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Part(BaseModel):
    """A model or data set: config files, later ones overriding earlier ones, and flags that override both."""

    model_config = ConfigDict(extra="allow")
    config: Annotated[list[str], BeforeValidator(_files), Field(min_length=1)]

    @property
    def flags(self) -> dict[str, Any]:
        """By name, without dashes."""
        return self.model_extra or {}


Parts = dict[Name, Annotated[Part, BeforeValidator(_listed)]]


class SweepFile(BaseModel):
    """What the yaml file of a sweep may hold."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1)
    models: Annotated[Parts, Field(min_length=1)]
    data: Parts = {}
    folds: list[Annotated[int, Field(ge=0)]] = []
    seeds: list[Annotated[int, Field(ge=0)]] = [0]
    flags: dict[str, Any] = {}


@dataclass(frozen=True)
class Run:
    """One training of a sweep; in ``needs``, the runs whose folders its flags name, and which are trained before."""

    name: str
    folder: Path
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()

    def fit_arguments(self, resume: bool) -> list[str]:
        """The arguments ``train.py`` gets to start or resume it."""
        return ["fit", *self.arguments, *(["--ckpt_path", "last"] if resume else [])]

    def command(self, resume: bool) -> str:
        """The same as a line for a shell."""
        program = ["python", "train.py"] if Path.cwd() == ROOT else ["protometry", "train"]
        return shlex.join([*program, *self.fit_arguments(resume)])


@dataclass(frozen=True)
class Sweep:
    """All runs of a file, in the order of its lists."""

    name: str
    file: Path
    runs: dict[str, Run]


def read_sweep(file: str | Path, runs: str | Path = "runs", flags: str = "") -> Sweep:
    """Read the file of a sweep.

    Every combination of a model, a data set, a fold and a seed is a run; lists that the file lacks are no part of its
    name. In a flag, ``{model}``, with the name of another model of the file, stands for the folder of the run with that
    model and the same data, fold and seed, which is then trained before.

    Raises:
        FileNotFoundError: if the file or a config that it names does not exist.
        ValueError: if the file holds something else, flags that the sweep sets itself, or runs that need each other or
            a model that is not there.
    """
    content = expand_paths(read_yaml(file))
    check_content(SweepFile, content, file, "See docs/sweeps.md.")
    asked = SweepFile.model_validate(content)
    _check(asked, file, further := split_arguments(flags))
    by_name: dict[str, Run] = {}
    folder = (runs := user_path(runs)) / asked.name
    nothing: list[None] = [None]
    for data, fold, seed, model in product(asked.data or nothing, asked.folds or nothing, asked.seeds, asked.models):
        ends = [data, None if fold is None else f"fold{fold}", f"seed{seed}" if "seeds" in content else None]
        end = "".join(f"-{each}" for each in ends if each is not None)
        others = {name: folder / f"{name}{end}" for name in asked.models if name != model}
        parts = [asked.models[model], *([asked.data[data]] if data else [])]
        merged = {**asked.flags, **{key: value for part in parts for key, value in part.flags.items()}}
        own = [argument for flag in merged.items() for argument in flag_arguments(*flag)]
        filled = list(_with_folders(own, others))
        if unknown := PLACEHOLDER.search(" ".join(filled)):
            near = did_you_mean(unknown[1], others)
            raise ValueError(
                f"Expected {unknown[0]} in {file} to name a model that {model} can need, but got none.{near}"
            )
        run = Run(
            f"{model}{end}",
            folder / f"{model}{end}",
            (
                *(argument for part in parts for path in part.config for argument in ("--config", path)),
                *filled,
                *further,
                *([] if fold is None else ["--data.fold", str(fold)]),
                *("--seed_everything", str(seed), "--runs", str(runs), "--experiment", f"{asked.name}/{model}{end}"),
                *("--test_after_fit", "true"),
            ),
            tuple(f"{name}{end}" for name in others if f"{{{name}}}" in json.dumps(merged)),
        )
        if run.name in by_name:
            raise ValueError(f"Expected {file} to name every run once, but {run.name} stands for two. Rename a model.")
        by_name[run.name] = run
    return Sweep(asked.name, Path(file), _in_order(by_name, file))


def groups(runs: dict[str, Run]) -> list[list[str]]:
    """Names of runs that need each other, directly or through others, in their order: each list can run on its own."""
    root = {name: name for name in runs}
    for run in runs.values():  # after all that it needs
        for other in run.needs:
            root = {name: root[run.name] if first == root[other] else first for name, first in root.items()}
    return [[name for name in runs if root[name] == first] for first in dict.fromkeys(root.values())]


def check_configs(paths: Sequence[str], where: str) -> None:
    """Refuse config files that do not exist."""
    for path in paths:
        if not Path(config_of_ours(path)).is_file():
            raise FileNotFoundError(f"Expected `config` of {where} to be a file, but got {path}.")


def check_flags(names: Iterable[str], where: str, own: Sequence[str]) -> None:
    """Refuse flags that are set for every run."""
    for name in names:
        if name.split("=")[0].removeprefix("--") in own:
            raise ValueError(f"Expected {where} to leave out `{name.split('=')[0]}`, which is set for every run.")


def flag_arguments(flag: str, value: Any) -> list[str]:
    """A flag of the command line; mappings and lists as JSON, which is yaml too."""
    text, name = value if isinstance(value, str) else json.dumps(value), f"--{flag.removeprefix('--')}"
    return [f"{name}={text}"] if text.startswith("-") else [name, text]


def split_arguments(flags: str) -> list[str]:
    """Further flags, as a shell splits them.

    Raises:
        ValueError: if a quote is not closed.
    """
    try:
        return shlex.split(flags)
    except ValueError as error:
        reason = str(error).lower()
        raise ValueError(f"Expected argument `flags` to be words of a shell, but got {flags!r}: {reason}.") from None


def _check(asked: SweepFile, file: str | Path, further: list[str]) -> None:
    check_name(asked.name, f"`name` in {file}")
    parts = {**asked.models, **asked.data}
    for name, part in parts.items():
        check_configs(part.config, f"{name} in {file}")
        check_flags(part.flags, f"{name} in {file}", OF_THE_SWEEP)
    check_flags(asked.flags, f"`flags` in {file}", OF_THE_SWEEP)
    check_flags(further, "argument `flags`", OF_THE_SWEEP)
    for key in ("folds", "seeds"):
        if len(set(values := getattr(asked, key))) < len(values) or (key == "seeds" and not values):
            raise ValueError(f"Expected `{key}` in {file} to be different numbers, but got {values}.")


def _with_folders(arguments: Iterable[str], others: dict[str, Path]) -> Iterator[str]:
    """Arguments in which the names of other models stand for the folders of their runs."""
    for argument in arguments:
        for name, folder in others.items():
            argument = argument.replace(f"{{{name}}}", str(folder))
        yield argument


def _in_order(runs: dict[str, Run], file: str | Path) -> dict[str, Run]:
    """Every run after those that it needs."""
    ordered: dict[str, Run] = {}
    while left := [run for name, run in runs.items() if name not in ordered]:
        ready = [run for run in left if all(name in ordered for name in run.needs)]
        if not ready:
            raise ValueError(f"Expected no two models in {file} to need each other, but {left[0].name} needs itself.")
        ordered |= {run.name: run for run in ready}
    return ordered
