"""Messages: numbers with their nouns; messages of libraries that are useless to users are silenced one by one."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LONGEST = 2000  # letters of an error
SILENCED = (
    "💡 Tip: For seamless cloud",  # an advertisement for another logger, at every start
    "GPU available:",  # the summary of a run names the hardware in use, and a warning the unused
    "TPU available:",  # nobody trains on one here
)


class ListError(ValueError):
    """An error with a list in its text, each line of which a command prints on a line of its own."""


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is 1.

    Example:
        >>> counted(1, "epoch"), counted(4000, "training image"), counted(2, "box")
        ('1 epoch', '4,000 training images', '2 boxes')
    """
    plural = f"{noun}es" if noun.endswith(("s", "x")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def on_one_line(text: str) -> str:
    r"""A message without line breaks and what else is not printed, and without the middle of a very long one.

    Example:
        >>> on_one_line("no file\n'\x1b[31mred'"), len(on_one_line("x" * 10**6)) < 2 * LONGEST
        ("no file '\\x1b[31mred'", True)
    """
    line = " ".join(text.split())
    line = line if len(line) <= LONGEST else f"{line[: LONGEST - 500]} … {line[-500:]}"
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in line)


def line_by_line(text: str) -> str:
    """A message with its line breaks and indented lines, each by :func:`on_one_line`."""
    return "\n".join("  " * line.startswith("  ") + on_one_line(line) for line in text.split("\n"))


def program(name: str) -> str:
    """How a command was started: ``protometry evaluate`` where the package is installed, or ``python evaluate.py``."""
    as_package = Path(sys.argv[0]).parent.name == "scripts"
    return f"protometry {name}" if as_package else f"python {name}.py"


def requires(extra: str, what: str) -> str:
    """The message where an optional package is missing, with the extra that installs it."""
    return f'Expected {what} to be installed: `pip install "protometry[{extra}]"`.'


def in_words(seconds: float | None) -> str:
    """Remaining time in words, empty if it is unknown or over.

    Example:
        >>> in_words(20), in_words(200), in_words(2 * 3600 + 300), in_words(None), in_words(0)
        ('< 1 min left', '3 min left', '2 h 05 min left', '', '')
    """
    if not seconds:
        return ""
    minutes = round(seconds / 60)
    if minutes < 1:
        return "< 1 min left"
    return f"{minutes} min left" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min left"


def write_any_text() -> None:
    """Have a question mark take the place of what the encoding of the output lacks, which would end the command."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a notebook has another
        sys.stdout.reconfigure(errors="replace")


def tidy_messages() -> None:
    """Arrange the warnings of this process, each kind by a filter of its own."""
    # Lightning's own use of a deprecated class of torch, at every start
    warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
    # every epoch has its row, whatever the interval of the rows of single steps
    warnings.filterwarnings("ignore", r"The number of training batches \(\d+\) is smaller than the logging interval")
    # the phase is the same on every process, and only rank zero logs it
    warnings.filterwarnings("ignore", r"It is recommended to use `self\.log\('phase', \.\.\., sync_dist=True\)`")
    # phases decide which layers are trained
    warnings.filterwarnings("ignore", r"Found \d+ module\(s\) in eval mode at the start of training")
    # the strides of a 1x1 kernel may be given in two ways, which only costs DDP a copy
    warnings.filterwarnings("ignore", r"Grad strides do not match bucket view strides")
    # the summary of a run says that there is no validation
    warnings.filterwarnings("ignore", r"Total length of `list` across ranks is zero")
    # `data.num_workers` is a documented argument, and small data sets are faster without
    warnings.filterwarnings("ignore", r"The '\w+' does not have many workers")
    warnings.formatwarning = _formatted(warnings.formatwarning)


def tidy_lightning() -> None:
    """Arrange the messages of Lightning, which is imported by now; it takes seconds, and not every command needs it."""
    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        for handler in logging.getLogger(name).handlers:
            if type(handler) is logging.StreamHandler:
                handler.__class__ = _CurrentStderr
                handler.addFilter(_says_something)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence for the end of an error, empty if no known name is similar.

    Args:
        name: unknown; of a dotted one, the last part is compared with the last parts of those known.
        known: what it might have meant.

    Example:
        >>> did_you_mean("genral", ["general", "concepts"]), did_you_mean("x", ["general"])
        (" Did you mean 'general'?", '')
    """
    by_end = {other.rsplit(".", 1)[-1].lower(): other for other in known}
    near = get_close_matches(name.rsplit(".", 1)[-1].lower(), by_end, n=1)
    return f" Did you mean {by_end[near[0]]!r}?" if near else ""


def _formatted(usual: Callable[..., str]) -> Callable[..., str]:
    """Our own warnings, without the line of code, which does not help users."""

    def form(message: Any, category: type[Warning], filename: str, *args: Any, **kwargs: Any) -> str:
        ours = category is UserWarning and ROOT in Path(filename).parents
        return f"warning: {message}\n" if ours else usual(message, category, filename, *args, **kwargs)

    return form


class _CurrentStderr(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to the current standard error, which a progress bar replaces while it is drawn, to write above itself."""

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        """Nothing: it is always the current one."""


def _says_something(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(SILENCED)
