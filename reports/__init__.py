"""Reports on evaluations: their files, tables next to published numbers, comparisons, and pages to look at."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name != "explain":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from reports.explained_figure import explain  # when used: a command line answers before torch is imported

    return explain
