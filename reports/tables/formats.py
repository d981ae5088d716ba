"""Tables of many runs for other programs: CSV and JSON with a value a cell, and LaTeX for a paper."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from protometry.reports.published.columns import Match, columns, matches
from protometry.reports.published.numbers import published
from protometry.reports.results.metrics_json import Result
from protometry.reports.results.runs import passed_over, read_from
from protometry.reports.tables.groups import Group, groups_of
from protometry.reports.tables.run_tables import Part, markdown, parts_of
from protometry.run_folder.csv_text import csv_text

_LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "|": r"\textbar{}", '"': "''"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"},
    **{"†": r"\dag{}", "–": "--", "…": r"\ldots{}", "θ": r"$\theta$", "α": r"$\alpha$"},
}


def text_of(results: Sequence[Result], form: str, paper: str | None = None, across: Sequence[str] = ()) -> str:
    """The table of runs as "markdown", "csv", "json" or "latex".

    Args:
        results: evaluations.
        form: of the text.
        paper: as for :func:`~protometry.reports.tables.run_tables.parts_of`.
        across: as there.

    Raises:
        ValueError: as there.
    """
    forms: dict[str, Callable[[Sequence[Result], str | None, Sequence[str]], str]]
    forms = {"markdown": markdown, "csv": _csv, "json": _json, "latex": latex}
    return forms[form](results, paper, across).rstrip("\n")


def records(results: Sequence[Result], paper: str | None = None, across: Sequence[str] = ()) -> list[dict[str, Any]]:
    """A record for every metric of every group of runs, and for every number that a paper gives for one of them.

    Args:
        results: evaluations.
        paper: short name of a paper, or None.
        across: conditions in which averaged runs may differ.

    Returns:
        Numbers in the ``unit`` of ``metrics.json``, fractions in 0..1, None where there are none: ``mean`` over folds
        of the means over seeds; ``sd``, over what ``sd_over`` says, "folds" or, of a single fold, "seeds" (a paper's
        own ``sd`` does not say); ``sd_within_folds``, over the seeds of a fold, pooled, where there are several folds;
        ``n`` runs with a value, in ``n_folds``; the 95 % interval ``low``, ``high`` of a single run.
    """
    quoted, rows = published(paper) if paper is not None else [], list[dict[str, Any]]()
    for group in groups_of(results, across):
        runs = [
            {"name": name, "fold": result.fold, "train_seed": result.train_seed, "seed": result.seed}
            | {"read_from": read_from(result), "not_read": passed_over(result)}
            for name, result in zip(group.names, group.results, strict=True)
        ]
        rows += [_measured(group, key) | {"runs": runs} for key in group.keys]
        for column in columns([match for match in matches(group.first, quoted) if match.key in group.keys]):
            rows += [_quoted(column.title, group, match) for matched in column.cells.values() for match in matched]
    return [record for index, record in enumerate(rows) if record not in rows[:index]]


def _measured(group: Group, key: str) -> dict[str, Any]:
    entries, average = group.entries(key), group.average(key)
    only = next((entry for entry in entries if entry.value is not None), None) if average.runs == 1 else None
    reasons = dict.fromkeys(result.skipped[key] for result in group.results if key in result.skipped)
    undefined = [f"undefined in {len(entries) - average.runs} of {len(entries)} results"]
    return {
        "name": group.name,
        "model": group.first.model,
        "dataset": group.first.dataset,
        "split": group.first.split,
        **_metric(group, key),
        "mean": average.mean,
        "sd": average.sd_folds if group.has_folds else average.sd_seeds,
        "sd_over": ("folds" if group.has_folds else "seeds") if group.total > 1 else None,
        "sd_within_folds": average.sd_seeds if group.has_folds else None,
        "n": average.runs,
        "n_folds": average.folds if group.first.fold is not None else None,
        "low": only.low if only else None,
        "high": only.high if only else None,
        "note": "; ".join([f"n/a: {reason}" for reason in reasons] + undefined * (average.runs < len(entries))),
    }


def _quoted(title: str, group: Group, match: Match) -> dict[str, Any]:
    """What a paper gives for a metric of a group, with the entries of :func:`_measured` that it knows."""
    number = match.record
    marks = [*number.codes, *([] if number.verified else ["unverified"]), *(f"† {d}" for d in match.differences)]
    marks += [f"{name}={value}" for name, value in number.key_qualifiers.items()]
    known = {"name": title, "model": number.model, "mean": number.value, "sd": number.std, "n": number.n_runs}
    known |= {"note": "; ".join([*marks, *filter(None, [number.remark])]), "dataset": number.dataset, "runs": []}
    return dict.fromkeys(_measured(group, match.key)) | _metric(group, match.key) | known


def _metric(group: Group, key: str) -> dict[str, Any]:
    first = next(iter(group.entries(key)), None)
    return {
        "metric": key,
        "unit": first.unit if first else None,
        "higher_is_better": first.higher_is_better if first else None,
    }


def _json(results: Sequence[Result], paper: str | None, across: Sequence[str]) -> str:
    return json.dumps(records(results, paper, across), indent=2, ensure_ascii=False, allow_nan=False)


def _csv(results: Sequence[Result], paper: str | None, across: Sequence[str]) -> str:
    """The records, with the names of their runs and what was read of each between semicolons."""
    rows = records(results, paper, across)
    for row in rows:
        runs = row.pop("runs")
        row["runs"] = "; ".join(run["name"] for run in runs)
        row["read_from"] = "; ".join(dict.fromkeys(run["read_from"] for run in runs))
        row["not_read"] = "; ".join(dict.fromkeys(run["not_read"] for run in runs if run["not_read"]))
    return as_csv(rows)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Records of equal keys as CSV."""
    return csv_text([list(rows[0]) if rows else [], *(list(row.values()) for row in rows)])


def latex(results: Sequence[Result], paper: str | None = None, across: Sequence[str] = ()) -> str:
    """Tables for the package booktabs, with everything else as comments.

    Args:
        results: as for :func:`~protometry.reports.tables.run_tables.parts_of`.
        paper: as there.
        across: as there.
    """
    return as_latex(parts_of(results, paper, across))


def as_latex(parts: Sequence[Part], standalone: bool = False) -> str:
    """Parts as tables for the package booktabs.

    Args:
        parts: to be printed.
        standalone: whether headings and notes are printed, not left as comments.
    """
    lines = [r"% \usepackage{booktabs}"]
    for part in parts:
        if standalone and part.heading:
            lines += ["", rf"\medskip\noindent {escaped(part.heading)}\par\smallskip\noindent"]
        texts = [part.text] if standalone else [part.heading, part.text, *part.notes]
        lines += [f"% {line}" for text in texts for line in text.splitlines() if line]
        lines += _tabular(part) if part.header else []
        if standalone and part.notes:
            notes = [rf"\noindent {escaped(note)}\par" for note in part.notes]
            lines += ["", r"\medskip{\footnotesize\raggedright", *notes, "}"]
    return "\n".join(lines)


def _tabular(part: Part) -> Iterator[str]:
    yield rf"\begin{{tabular}}{{ll{'r' * (len(part.header) - 2)}}}"
    yield r"\toprule"
    yield rf"{' & '.join(map(escaped, part.header))} \\"
    yield r"\midrule"
    rows = part.emphasised(r"\textbf{{{}}}", r"\textit{{{}}}", escaped)
    yield from (rf"{' & '.join(row)} \\" for row in rows)
    yield r"\bottomrule"
    yield r"\end{tabular}"


def escaped(text: str) -> str:
    r"""Text for LaTeX, with the minus of numbers.

    Args:
        text: on one line.

    Example:
        >>> escaped("a_b@5 ↓"), escaped("-3.1 % [-4, 5]"), escaped("run-1 \\ {~}")
        ('a\\_b@5 $\\downarrow$', '$-$3.1 \\% {[}$-$4, 5]', 'run-1 \\textbackslash{} \\{\\textasciitilde{}\\}')
    """
    safe = "".join(_LATEX.get(letter, letter) for letter in text)
    return re.sub(r"(?<!\w)-(?=\d)", "$-$", safe).replace("[", "{[}")  # a row that began with [ would be read as a gap
