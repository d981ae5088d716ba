"""``python -m protometry.metrics FILE``: write the tables of all metrics into a page, between its two marks."""

from pathlib import Path

from jsonargparse import auto_cli

from protometry.metrics.page import tables
from protometry.metrics.suite import FAMILIES

BEGIN, END = "<!-- begin: python -m protometry.metrics -->\n", "\n<!-- end -->"


def write(file: str) -> None:
    """Replace what is between the marks of a file.

    Args:
        file: such as ``docs/metrics.md``.
    """
    text = Path(file).read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"Expected {file} to hold the marks {BEGIN.strip()!r} and {END.strip()!r}.")
    Path(file).write_text(before + begin + tables(FAMILIES.values()) + end + after, encoding="utf-8")


if __name__ == "__main__":
    auto_cli(write, as_positional=True)
