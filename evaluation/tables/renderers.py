"""Tables as text: Markdown, LaTeX for a paper, and CSV and JSON with a number a cell for other programs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from protometry.evaluation.tables.markdown import lines
from protometry.run_folder.csv_text import csv_text

_LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}", '"': "''"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"},
    **{"†": r"\dag{}", "–": "--", "…": r"\ldots{}", "θ": r"$\theta$", "α": r"$\alpha$"},
}


@dataclass(frozen=True)
class Table:
    """A table with what surrounds it, without what is empty.

    Args:
        rows: their first two columns are text.
        best: row and column of cells that stand out: 0 for the best of a column, 1 for the second best.
    """

    heading: str = ""
    text: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    best: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def emphasised(self, best: str, second: str, escape: Callable[[str], str] = str) -> list[list[str]]:
        """The rows, escaped, with what stands out in a pattern, such as ``"**{}**"``."""
        patterns = {0: best, 1: second, None: "{}"}
        return [
            [patterns[self.best.get((index, column))].format(escape(cell)) for column, cell in enumerate(row)]
            for index, row in enumerate(self.rows)
        ]


def rendered(
    form: str,
    tables: Callable[[], Sequence[Table]],
    records: Callable[[], Sequence[dict[str, Any]]],
    standalone: bool = False,
) -> str:
    """Text in a form.

    Args:
        form: "markdown", "latex", "csv" or "json".
        tables: give the first two.
        records: give the other two.
        standalone: whether LaTeX prints headings and notes, rather than leaving them as comments.
    """
    if form == "json":
        return json.dumps(records(), indent=2, ensure_ascii=False, allow_nan=False)
    if form == "csv":
        return _csv(records()).rstrip("\n")
    return _latex(tables(), standalone) if form == "latex" else _markdown(tables())


def _markdown(tables: Sequence[Table]) -> str:
    blocks = []
    for table in tables:
        blocks += [f"### {table.heading}"] if table.heading else []
        rows = lines(table.header, table.emphasised("**{}**", "*{}*"), left=2) if table.header else []
        blocks += [table.text, "\n".join(rows)]
        blocks.append("\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(text for text in blocks if text)


def _csv(records: Sequence[dict[str, Any]]) -> str:
    """The records; the names of their runs and what was read of each stand between semicolons."""
    for record in records:
        if "runs" in record:
            runs = record.pop("runs")
            record["runs"] = "; ".join(run["name"] for run in runs)
            for name in ("read_from", "not_read"):
                record[name] = "; ".join(dict.fromkeys(run[name] for run in runs if run[name]))
    return csv_text([list(records[0]) if records else [], *(list(record.values()) for record in records)])


def _latex(tables: Sequence[Table], standalone: bool) -> str:
    """Tables for the package booktabs."""
    lines = [r"% \usepackage{booktabs}"]
    for table in tables:
        if standalone and table.heading:
            lines += ["", rf"\medskip\noindent {escaped(table.heading)}\par\smallskip\noindent"]
        texts = [table.text] if standalone else [table.heading, table.text, *table.notes]
        lines += [f"% {line}" for text in texts for line in text.splitlines() if line]
        lines += _tabular(table) if table.header else []
        if standalone and table.notes:
            notes = [rf"\noindent {escaped(note)}\par" for note in table.notes]
            lines += ["", r"\medskip{\footnotesize\raggedright", *notes, "}"]
    return "\n".join(lines)


def _tabular(table: Table) -> Iterator[str]:
    yield rf"\begin{{tabular}}{{ll{'r' * (len(table.header) - 2)}}}"
    yield r"\toprule"
    yield rf"{' & '.join(map(escaped, table.header))} \\"
    yield r"\midrule"
    rows = table.emphasised(r"\textbf{{{}}}", r"\textit{{{}}}", escaped)
    yield from (rf"{' & '.join(row)} \\" for row in rows)
    yield r"\bottomrule"
    yield r"\end{tabular}"


def escaped(text: str) -> str:
    r"""A line for LaTeX, with the minus of numbers.

    Example:
        >>> escaped("a_b@5 ↓"), escaped("-3.1 % [-4, 5]"), escaped("run-1 \\ {~}")
        ('a\\_b@5 $\\downarrow$', '$-$3.1 \\% {[}$-$4, 5]', 'run-1 \\textbackslash{} \\{\\textasciitilde{}\\}')
    """
    safe = "".join(_LATEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", safe).replace("[", "{[}")  # a row that began with [ would be read as a gap
