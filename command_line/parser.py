"""Command lines: input that their parsers refuse, exit codes and one-line errors."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from threading import Event
from typing import Any, NoReturn

import yaml
from jsonargparse import ArgumentParser, Namespace, get_loader, set_loader

from protometry.command_line.former_names import current_name, with_current_names
from protometry.command_line.freed_memory import keep_freed_memory
from protometry.command_line.messages import did_you_mean, tidy_lightning, tidy_messages
from protometry.command_line.user_path import expand_paths

REMEDIES = {
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT),
        "Free some space on its disk. {go_on}",
    ),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "Make the folder writable, or name another{flags}."),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST, errno.ENAMETOOLONG), "Name another folder{flags}."),
}
TOO_LARGE = re.compile("can't allocate memory|out of memory|[Oo]verflow when unpacking|sys.maxsize")
# what survivors of a distributed run say, over gloo and over NCCL
PROCESS_LOST = re.compile(r"gloo.*(?:closed by peer|reset by peer|Broken pipe)|remote process exited")
WITH_CLASSES = tuple(
    f"protometry.{name}" for name in ("callbacks", "datamodules", "explanations", "lightning_modules")
)  # that yaml files and flags name
READING: ContextVar[tuple[str, Path]] = ContextVar("config file being read: its name as given, and its path")
GO_ON: ContextVar[str] = ContextVar("what to do after an interruption", default="Run the command again.")
ASKED_TO_STOP = Event()  # by SIGTERM
# what the parser says of settings of a class that nothing has named
WITHOUT_CLASS = re.compile(
    r'Parser key "([\w.]+)": (?:Not a valid subclass of (\w+).*|Expected an instantiatable class, but [\w.]*?(\w+) is )'
)
# what the parser says of a union besides why its members do not fit
AROUND_A_UNION = re.compile(
    r"Does not validate against any|Subtypes: |Errors:$|Given value|Expected a <class 'NoneType'>"
)


def from_shell(command: Callable[[], object]) -> None:
    """Run a command line, with exit codes: 2 after a one-line error that the user can fix, 130 and 143 if stopped.

    Args:
        command: parses ``sys.argv`` and works; the texts of its errors that need no traceback start with "Expected",
            unless they are of the operating system or of Lightning, about a combination of settings.
    """
    tidy_messages()
    keep_freed_memory()
    try:
        command()
        sys.stdout.flush()
    except SystemExit as end:
        if type(end).__name__ != "SIGTERMException":
            raise
        _end_by_sigterm()
    except KeyboardInterrupt:
        _end_by_hand()
    except BrokenPipeError:  # what reads the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        cause: BaseException | None = error  # the parser wraps what a constructor raises
        while cause is not None and not _needs_no_traceback(cause):
            cause = cause.__cause__
        if cause is None:
            raise
        text = " ".join(str(cause).split())
        if isinstance(cause, OSError) and cause.errno in REMEDIES:
            remedy = REMEDIES[cause.errno].format(flags=_folder_flags(), go_on=GO_ON.get())
            text = f"{text.rstrip('.')}. {remedy}"
        elif _is_too_large(cause):
            text = f"Out of memory, or a number too large: {text or type(cause).__name__}. Lower batch or model sizes."
        elif _is_process_lost(cause):
            if ASKED_TO_STOP.is_set():
                _end_by_sigterm()
            text = (
                "Another process of this run has ended: it printed an error, was stopped, or was killed, as for lack "
                f"of memory. {GO_ON.get()}"
            )
        print(f"error: {text}", file=sys.stderr)
        sys.exit(2)


def expect_interrupt() -> None:
    """Have Ctrl-C end this process with one line also where :func:`from_shell` does not run yet."""
    usual = sys.excepthook
    sys.excepthook = lambda kind, *rest: _end_by_hand() if kind is KeyboardInterrupt else usual(kind, *rest)


def _end_by_hand() -> NoReturn:
    print("Stopped by Ctrl-C.", file=sys.stderr)
    sys.exit(130)


def _end_by_sigterm() -> NoReturn:
    from lightning.pytorch.utilities import rank_zero_info

    rank_zero_info(f"Stopped by SIGTERM. {GO_ON.get()}")
    sys.exit(143)


def _folder_flags() -> str:
    """The flags that name the folder in which this command writes."""
    given = {word.partition("=")[0] for word in sys.argv}
    training = Path(sys.argv[0]).stem == "train"
    flags = ["--runs", "--experiment"] if training else [flag for flag in ("--output", "--runs") if flag in given]
    return f" with {' or '.join(f'`{flag}`' for flag in flags)}" if flags else ""


def _needs_no_traceback(error: BaseException) -> bool:
    ours = isinstance(error, ValueError | TypeError | RuntimeError) and str(error).startswith("Expected")
    misconfigured = type(error).__name__ == "MisconfigurationException"  # of Lightning, which is slow to import
    known = misconfigured or isinstance(error, OSError) or _is_too_large(error) or _is_process_lost(error)
    return ours or known or (isinstance(error, ValueError | RuntimeError) and _raised_by_lightning(error))


def _raised_by_lightning(error: BaseException) -> bool:
    """Whether it was raised by a line of Lightning, which checks some settings only when it needs them."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and str(frames[-1].f_globals.get("__name__")).startswith("lightning.")


def _is_process_lost(error: BaseException) -> bool:
    """Whether another process of the run is gone."""
    return isinstance(error, RuntimeError) and bool(PROCESS_LOST.search(str(error)))


def _is_too_large(error: BaseException) -> bool:
    """Whether something exceeded the memory or the range of numbers."""
    said = isinstance(error, RuntimeError | ValueError | TypeError) and error.__cause__ is None and str(error)
    return isinstance(error, MemoryError | OverflowError) or bool(said and TOO_LARGE.search(said))


@contextmanager
def trainer_settings() -> Iterator[None]:
    """Around the construction of a ``Trainer``: tidies its messages and raises one type of error for its settings.

    Raises:
        ValueError: with the reason.
    """
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    tidy_lightning()
    try:
        yield
    except (ValueError, TypeError, ArithmeticError, MemoryError, MisconfigurationException) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"Expected settings below `trainer` that Lightning accepts, but {reason}") from error


class StrictParser(ArgumentParser):
    """A parser that accepts only finite numbers, expands ``~``, and reports errors in one line with the file."""

    def parse_args(self, args: Any = None, namespace: Any = None, **options: Any) -> Namespace:  # type: ignore[override]
        """Parse a command line.

        Returns:
            The settings, all of whose numbers are finite, with home folders for ``~``.
        """
        given = sys.argv[1:] if args is None else args
        if isinstance(given, list):
            if odd := [argument for argument in given if not _is_utf8(str(argument))]:
                self.error(f"Expected arguments in UTF-8, but got {odd[0]!a}. Rename that file or folder.")
            given = [current_name(_merged(argument, namespace)) for argument in given]
        config: Namespace = expand_paths(super().parse_args(given, namespace, **options))
        if not_finite := [f"{value} as `{key}`" for key, value in _not_finite(config)]:
            self.error(f"Expected finite numbers only, but got {', '.join(not_finite)}.")
        return config

    def parse_object(self, cfg_obj: Any, namespace: Any = None, **options: Any) -> Namespace:
        """Parse the arguments of a class, whose phases are merged into the earlier ones, like phases given by flags."""
        if isinstance(cfg_obj, Namespace | dict) and isinstance(cfg_obj.get("phases"), dict):
            cfg_obj["phases"] = _over(_phases(namespace), cfg_obj["phases"])
        config: Namespace = expand_paths(super().parse_object(cfg_obj, namespace, **options))
        return config

    def parse_path(self, cfg_path: Any, *args: Any, **options: Any) -> Namespace:
        """Parse a config file, which errors then name."""
        token = READING.set((str(cfg_path), Path(cfg_path).absolute()))  # the parser works in its folder
        try:
            config: Namespace = super().parse_path(cfg_path, *args, **options)
            return config
        except ValueError as error:
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
        if file:
            text = text.replace('"<unicode string>"', file)
            text = text if file in text else f"{file}: {text}"
        if near := "" if "Did you mean" in text else _suggestion(text):  # the error of a parser within this one
            text = f"{text.rstrip('.')}.{near}"
        super().error(text, ex)


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


def _merged(word: str, earlier: Namespace | None) -> str:
    """A flag of one field of a phase, in the form the parser understands: merged with all earlier settings of phases.

    Example:
        >>> _merged("--phases.joint.epochs=2", Namespace(phases={"joint": {"bn": "eval"}, "warm": None}))
        '--phases={joint: {bn: eval, epochs: 2}, warm: null}'
    """
    flag, given, text = word.partition("=")
    argument, *path = flag.removeprefix("--").split(".")
    if argument != "phases" or not path or not given:
        return word
    said = None if text == "None" else get_loader("yaml")(text)  # the parser's own way to pass on `null`
    for name in reversed(path):
        said = {name: said}
    return f"--phases={yaml.safe_dump(_over(_phases(earlier), said), default_flow_style=True, width=math.inf).strip()}"


def _phases(earlier: Namespace | None) -> dict[str, Any]:
    """The settings of phases so far."""
    phases = earlier.get("phases") if earlier else None
    said: dict[str, Any] = json.loads(json.dumps(phases or {}, default=Namespace.as_dict))
    return said


def _over(earlier: Any, later: Any) -> Any:
    """Two settings merged: the later one wins, and fields it does not name are kept."""
    if not isinstance(earlier, dict) or not isinstance(later, dict):
        return later
    return earlier | {str(name): _over(earlier.get(str(name)), value) for name, value in later.items()}


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


_load_yaml = get_loader("yaml")


def read_yaml(file: str | Path) -> Any:
    """The content of a yaml file, before a parser that knows its keys is imported, or where there is none.

    Raises:
        ValueError: if it is not yaml, or a key occurs twice.
    """
    try:
        text = Path(file).read_text("utf-8")
        _refuse_duplicates(text)
        return with_current_names(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).replace('"<unicode string>"', str(file)).split())
        raise ValueError(f"Expected {file} to be a yaml file, but {reason}.") from error


def _load_unique(text: str) -> Any:
    _refuse_duplicates(text)
    return with_current_names(_load_yaml(text))


def _refuse_duplicates(text: str) -> None:
    """Refuse duplicate keys, where the parser would silently take the last value, and anchors that hold themselves."""
    nodes: list[tuple[Any, frozenset[int]]] = [(yaml.compose(text, Loader=yaml.CSafeLoader), frozenset())]
    seen = set()
    while nodes:
        node, above = nodes.pop()
        if id(node) in above:
            raise ValueError(
                f'Expected no anchor to hold a reference to itself, but one does in "<unicode string>", {_place(node)}'
            )
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        above |= {id(node)}
        if not isinstance(node, yaml.MappingNode):
            nodes += [(item, above) for item in node.value]
            continue
        keys = [str(key.value) for key, _ in node.value]
        for index, (key, value) in enumerate(node.value):
            if keys[index] in keys[:index]:
                raise ValueError(
                    f'Expected every key once, but `{keys[index]}` appears twice in "<unicode string>", {_place(key)}'
                )
            nodes.append((value, above))


def _place(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"


set_loader("yaml", _load_unique, exceptions=(yaml.YAMLError,))
