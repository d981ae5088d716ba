"""A first look at a command line: help and refusals before torch and Lightning are imported, which takes seconds.

Arguments that pass are parsed again by the parser that knows all types.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from glob import glob
from pathlib import Path
from types import FunctionType
from typing import Any, get_args, get_type_hints

from jsonargparse import ArgumentParser, auto_parser

from protometry.run_folder.command_line.ending import expect_signals, seldom_collect
from protometry.run_folder.command_line.messages import write_any_text
from protometry.run_folder.command_line.parser import StrictParser
from protometry.run_folder.command_line.user_path import expand_paths
from protometry.run_folder.command_line.yaml_files import read_yaml
from protometry.run_folder.free_folder import refuse_taken
from protometry.run_folder.layout import check_name

MODEL_FILE = "model.json"  # of the folder of an exported model
HUB = "hf:/"  # how addresses of models on the Hugging Face hub begin
PATHS = ("runs", "run", "other", "evaluation", "data")  # arguments that name what a command reads, some by a pattern


class FirstLook(StrictParser):
    """Takes any value for an argument whose type is imported under ``TYPE_CHECKING`` only."""

    def add_function_arguments(self, function: Any, *args: Any, **options: Any) -> list[str]:
        """Add the arguments of a command."""
        light = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
        light.__doc__, light.__module__, light.__annotations__ = function.__doc__, function.__module__, _types(function)
        added: list[str] = super().add_function_arguments(light, *args, **options)
        return added

    def format_help(self, *args: Any, **options: Any) -> str:
        """The help, without the types that are not known yet."""
        text: str = super().format_help(*args, **options)
        return re.sub(r"type:\s+(null\s+\|\s+)?Any(\s+\|\s+null)?,\s+", "", text)


def look_at(commands: Mapping[str, Callable[..., object]], parser_class: type[FirstLook]) -> None:
    """Answer a request for help; end with one line for an unknown flag, a value of a wrong type or a missing file.

    Args:
        commands: by name.
        parser_class: of these commands.
    """
    expect_signals()
    write_any_text()
    arguments = sys.argv[1:]
    hints = [hint for command in commands.values() for hint in _types(command).items()]
    nested = tuple(f"--{name}." for name, kind in hints if Any in (kind, *get_args(kind)))
    if any(argument.startswith((*nested, "--print_config")) for argument in arguments):
        return  # only the types know
    parser = auto_parser(dict(commands), as_positional=False, parser_class=parser_class)
    config = parser.parse_args(arguments)
    given = config[config.subcommand]
    checkpoint = given.get("ckpt_path")
    if config.subcommand in ("explain", "predict") and checkpoint and is_model_folder(checkpoint):
        checkpoint = None
    _look_for(parser, checkpoint, {name: given.get(name) or [] for name in PATHS})


def look_at_names(commands: Mapping[str, str]) -> None:
    """Do the same for commands whose flags are not known yet.

    Args:
        commands: name of each command, and what it does.
    """
    expect_signals()
    write_any_text()
    seldom_collect()  # in the imports that follow
    command, *arguments = sys.argv[1:] or ["--help"]
    if command.startswith("-") and command not in ("-h", "--help"):
        if any(argument in commands for argument in arguments):
            return  # a config of several commands
        command = ""
    parser = StrictParser(description="`COMMAND --help` lists its flags; a --config file can set any of them.")
    known = parser.add_subcommands(required=True)
    for name, about in commands.items():
        known.add_subcommand(name, StrictParser(), help=about)
    if not command:
        parser.error(f"Expected one of the commands {', '.join(commands)} before the flags, but got {sys.argv[1]}.")
    if command not in commands:
        parser.parse_args([command])
    given = _given(parser, arguments)
    _look_for(parser, None if given["ckpt_path"] == "last" else given["ckpt_path"])
    asks = any(word in ("-h", "--help") or word.startswith("--print_config") for word in arguments)
    if command == "fit" and given["experiment"] and given["runs"] and not asks:
        try:
            refuse_taken(Path(given["runs"]) / check_name(given["experiment"]), given["ckpt_path"])
        except (OSError, ValueError) as error:
            parser.error(str(error))


def _given(parser: ArgumentParser, arguments: Sequence[str]) -> dict[str, Any]:
    """Where a run lies and which checkpoint it resumes from; later flags and configs win. None for what is no text."""
    given: dict[str, Any] = {"ckpt_path": None, "experiment": None, "runs": "runs"}
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        value, name = value if equals else following, flag.removeprefix("--")
        if flag in ("-c", "--config") and value.endswith((".yaml", ".yml", ".json")):
            content = _look_at_config(parser, expand_paths({"config": value})["config"])
            given |= {key: said for key in given if isinstance(content, dict) and (said := content.get(key))}
        elif flag.startswith("--") and name in given:
            given[name] = expand_paths({name: value})[name]
    return {name: said if isinstance(said, str) else None for name, said in given.items()}


def _look_at_config(parser: ArgumentParser, file: str) -> Any:
    """The content of a config, which must be a readable file."""
    try:
        return read_yaml(file)
    except FileNotFoundError:
        parser.error(f"Expected argument `config` to be a file, but {file} does not exist.")
    except (OSError, ValueError) as error:
        parser.error(str(error))


def is_model_folder(path: str | Path) -> bool:
    """Whether a path is the folder of an exported model, perhaps on the hub."""
    return str(path).startswith(HUB) or (Path(path) / MODEL_FILE).is_file()


def check_checkpoint(path: str | Path, argument: str = "ckpt_path") -> None:
    """Refuse a checkpoint that is not a file, naming the argument that names it.

    Raises:
        FileNotFoundError: see above.
    """
    if is_model_folder(path):
        raise FileNotFoundError(
            f"Expected argument `{argument}` to be a checkpoint file, but {path} is an exported model, which has no "
            "data and no training to continue. Name a checkpoint of its run."
        )
    if not Path(path).is_file():
        named = f"is a folder; name a file, such as {path}/checkpoints/last.ckpt"
        problem = named if Path(path).is_dir() else "does not exist"
        raise FileNotFoundError(f"Expected argument `{argument}` to be a checkpoint file, but {path} {problem}.")


def _look_for(parser: ArgumentParser, checkpoint: str | None, named: Mapping[str, str | list[str]] = {}) -> None:
    try:
        for name, paths in named.items():
            for path in [paths] if isinstance(paths, str) else paths:
                if not Path(path).exists() and not glob(path):
                    parser.error(f"Expected argument `{name}` to be a file or folder, but {path} does not exist.")
        if checkpoint:
            check_checkpoint(checkpoint)
    except OSError as error:
        parser.error(str(error))


class _Imported(dict[str, Any]):
    """Names that are imported, and ``Any`` for all others."""

    def __missing__(self, name: str) -> Any:
        return Any


def _types(function: Callable[..., object]) -> dict[str, Any]:
    return get_type_hints(function, localns=_Imported(vars(builtins) | vars(sys.modules[function.__module__])))
