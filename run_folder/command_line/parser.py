"""Parsers of command lines: what they refuse, and how their errors read."""

from __future__ import annotations

import ast
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn

import yaml
from jsonargparse import ArgumentParser, Namespace

from protometry.run_folder.command_line.former_names import current_name
from protometry.run_folder.command_line.messages import did_you_mean, on_one_line, program
from protometry.run_folder.command_line.user_path import expand_paths
from protometry.run_folder.command_line.yaml_files import load_yaml

WITH_CLASSES = tuple(
    f"protometry.{name}" for name in ("callbacks", "datamodules", "explanations", "lightning_modules")
)  # that yaml files and flags name
READING: ContextVar[tuple[str, Path]] = ContextVar("config file being read: its name as given, and its path")
# what the parser says of settings of a class that nothing has named
ABSTRACT = re.compile(r"Expected a path but (\S+)\.(\w+) either not accessible or invalid.*but is abstract")
WITHOUT_CLASS = re.compile(
    r'Parser key "([\w.]+)": (?:Not a valid subclass of (\w+).*|Expected an instantiatable class, but [\w.]*?(\w+) is )'
)
# what the parser says of a union besides why its members do not fit
AROUND_A_UNION = re.compile(
    r"Does not validate against any|Subtypes: |Errors:$|Given value|Expected a <class 'NoneType'>"
)


class StrictParser(ArgumentParser):
    """A parser that accepts only finite numbers, expands ``~``, and reports errors in one line with the file."""

    theclass: type | None = None  # whose arguments these are

    def __init__(self, *args: Any, prog: str | None = None, **options: Any) -> None:
        started = program(Path(sys.argv[0]).stem).removeprefix("python ")
        super().__init__(*args, prog=prog or started, **options)

    def add_class_arguments(self, theclass: type, *args: Any, **options: Any) -> list[str]:
        """Add the arguments of a class, which may have a way to merge its phases."""
        self.theclass = theclass
        added: list[str] = super().add_class_arguments(theclass, *args, **options)
        return added

    def parse_args(self, args: Any = None, namespace: Any = None, **options: Any) -> Namespace:  # type: ignore[override]
        """Parse a command line.

        Returns:
            The settings, all of whose numbers are finite, with home folders for ``~``.
        """
        given = sys.argv[1:] if args is None else args
        if isinstance(given, list):
            if odd := [argument for argument in given if not _is_utf8(str(argument))]:
                self.error(f"Expected arguments in UTF-8, but got {odd[0]!a}. Rename that file or folder.")
            given = [current_name(self._merged(_as_yaml(argument), namespace)) for argument in given]
        config: Namespace = expand_paths(super().parse_args(given, namespace, **options))
        if not_finite := [f"{value} as `{key}`" for key, value in _not_finite(config)]:
            self.error(f"Expected finite numbers only, but got {', '.join(not_finite)}.")
        return config

    def parse_object(self, cfg_obj: Any, namespace: Any = None, **options: Any) -> Namespace:
        """Parse the arguments of a class, whose phases are merged into the earlier ones, like phases given by flags."""
        if isinstance(cfg_obj, Namespace | dict) and isinstance(phases := cfg_obj.get("phases"), dict):
            cfg_obj["phases"] = self._merged_phases(namespace, phases)
        config: Namespace = expand_paths(super().parse_object(cfg_obj, namespace, **options))
        return config

    def _merged(self, word: str, earlier: Namespace | None) -> str:
        """A flag of one field of a phase, in the form the parser understands: all settings of phases so far."""
        flag, given, text = word.partition("=")
        argument, *path = flag.removeprefix("--").split(".")
        if argument != "phases" or not path or not given:
            return word
        said = None if text == "None" else load_yaml(text)  # the parser's own way to pass on `null`
        for name in reversed(path[1:]):
            said = {name: said}
        return f"--phases={_flow(self._merged_phases(earlier, {path[0]: said}))}"

    def _merged_phases(self, earlier: Namespace | None, later: dict[str, Any]) -> Any:
        """Settings of phases over all earlier ones."""
        phases = earlier.get("phases") if earlier else None
        so_far = json.loads(json.dumps(phases or {}, default=Namespace.as_dict))
        merge = getattr(self.theclass, "merged_phases", None)
        return merge(so_far, later) if merge else later

    def parse_path(self, cfg_path: Any, *args: Any, **options: Any) -> Namespace:
        """Parse a config file, which errors then name."""
        token = READING.set((str(cfg_path), Path(cfg_path).absolute()))  # the parser works in its folder
        try:
            config: Namespace = super().parse_path(cfg_path, *args, **options)
            return config
        except (ValueError, yaml.YAMLError) as error:
            unreadable = isinstance(error, UnicodeDecodeError)
            self.error(f"Expected a text file in UTF-8, but {error}." if unreadable else str(error))
        finally:
            READING.reset(token)

    def print_usage(self, *args: Any) -> None:
        """Nothing: a list of all options would hide the error."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """End with one line, in the shell; for a parser within a parser, raise it."""
        lines = [line.strip().removeprefix("- ") for line in message.splitlines()]
        text = " ".join([line for line in lines if line and not AROUND_A_UNION.match(line)] or lines)
        text = re.sub("^Unexpected config: ?", "Expected settings as `key: value`, but got only ", text)
        text = text.replace("Expected a <class 'list'>", "Expected a list, such as '[one, two]'")
        head, required, keys = text.partition("arguments are required: ")
        text = head + required + re.sub(r"\b\w+\.", "", keys)  # without the name of the command
        file, path = READING.get(("", None))
        if "Given value: {'class_path'" not in message:
            text = WITHOUT_CLASS.sub(lambda found: _without_class(found, path), text)
        text = ABSTRACT.sub(_without_methods, text)
        if file:
            text = text.replace('"<unicode string>"', file)
            text = text if file in text else f"{file}: {text}"
        if near := "" if "Did you mean" in text else _suggestion(text):  # the error of a parser within this one
            text = f"{text.rstrip('.')}.{near}"
        super().error(on_one_line(text), ex)


def _without_methods(found: re.Match[str]) -> str:
    """The error about a class that lacks methods, by their names."""
    kind = getattr(sys.modules.get(found[1]), found[2], None)
    missing = ", ".join(f"`{name}`" for name in sorted(getattr(kind, "__abstractmethods__", ())))
    return f"Expected {found[1]}.{found[2]} to define {missing}, but it does not" if missing else found[0]


def _without_class(found: re.Match[str], config: Path | None) -> str:
    """The error about settings of a class that nothing names; the first line of our configs says what goes in front."""
    key, kind = found[1], found[2] or found[3]
    text = f"Expected `{key}` to name a subclass of {kind}, but got settings without a `class_path`."
    first = config.read_text("utf-8").partition("\n")[0] if config else ""
    if first.startswith("# python "):
        return f"{text} They go behind a config that has it: `{first.removeprefix('# ')}`."
    return f"{text} Put `--{key} CLASS` or a config that has it in front{', or add it there' if config else ''}."


def _suggestion(text: str) -> str:
    """The name that was probably meant, for an error about a choice or one of our classes."""
    if choice := re.search(
        r"(?:Literal\[(?P<known>.*?)\].*Got value: |invalid choice: )(?P<name>\S+)(?P<rest>.*)", text
    ):
        known = re.findall(r"'([^']+)'", choice["known"] or choice["rest"])
        return did_you_mean(choice["name"].strip("'"), known)
    if path := re.search(r"has no attribute '(\w+)'|dot import path string: (\S+)", text):
        ours = (sys.modules[name] for name in WITH_CLASSES if name in sys.modules)
        return did_you_mean(path[1] or path[2], [f"{m.__name__}.{name}" for m in ours for name in m.__all__])
    return ""


def _as_yaml(word: str) -> str:
    """A flag whose value a parser around this one has read, and passes on as Python writes it, where `null` is None.

    Example:
        >>> _as_yaml("--phases.joint={'trainable': {'backbone': None}}")
        '--phases.joint={trainable: {backbone: null}}'
    """
    flag, _, text = word.partition("=")
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return word
    return f"{flag}={_flow(value)}" if isinstance(value, dict | list) else word


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False)
    return text.strip()


def _is_utf8(word: str) -> bool:
    r"""Whether it can be written to files; the bytes of a name in another encoding cannot.

    Example:
        >>> _is_utf8("café"), _is_utf8("caf\udce9")
        (True, False)
    """
    return not any("\ud800" <= letter <= "\udfff" for letter in word)


def _not_finite(value: Any, key: str = "") -> Iterator[tuple[str, float]]:
    """Key and value of every number in a configuration that is NaN or infinite."""
    if isinstance(value, float) and not math.isfinite(value):
        yield key, value
    items: Any = ()
    if isinstance(value, Namespace | Mapping):
        items = vars(value).items() if isinstance(value, Namespace) else value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for name, item in items:
        yield from _not_finite(item, f"{key}.{name}" if key else str(name))
