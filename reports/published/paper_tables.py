"""The tables of papers that are printed with the numbers of runs in them: which columns and rows they have.

What a paper printed in them stands in ``published.json`` alone: a record belongs to the row and the column whose keys
together are its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from protometry.command_line.messages import did_you_mean
from protometry.metrics.suite import ENTRIES
from protometry.reports.published.numbers import Published, all_records


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        heading: without direction and unit.
        key: of its results, as in ``published.json``; of a table with rows of several keys, what all begin with.
        unit: of the values.
        higher_is_better: direction, or None.
    """

    heading: str
    key: str
    unit: str
    higher_is_better: bool | None


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    Args:
        name: as users type it.
        title: what it shows.
        papers: the ``paper`` of its records.
        sources: the ``table`` of its records.
        columns: from left to right.
        rows: words of a row -> what its keys end in, where a model has several rows.
    """

    name: str
    title: str
    papers: Sequence[str]
    sources: Sequence[str]
    columns: Sequence[Column]
    rows: Mapping[str, str] = field(default_factory=lambda: {"": ""})

    @property
    def records(self) -> list[Published]:
        """What the paper printed."""
        return [each for each in all_records() if each.paper in self.papers and each.table in self.sources]


def paper_table(name: str) -> PaperTable:
    """A table by its name.

    Args:
        name: paper and number, such as ``"quanproto/2"``.

    Raises:
        ValueError: if there is no such table, with the nearest name.
    """
    if name not in TABLES:
        raise ValueError(
            f"Expected argument `published` to be one of {', '.join(TABLES)}, but got {name!r}."
            + did_you_mean(name, TABLES)
        )
    return TABLES[name]


def of_headings(table: PaperTable, headings: Sequence[str]) -> PaperTable:
    """A table with some of its columns.

    Args:
        table: of a paper.
        headings: of the columns; all if there is none.

    Raises:
        ValueError: if it has no such column.
    """
    known = {column.heading: column for column in table.columns}
    for heading in headings:
        if heading not in known:
            raise ValueError(
                f"Expected argument `metric` to name columns of {table.name}, {', '.join(known)}, but got {heading!r}."
                + did_you_mean(heading, known)
            )
    return replace(table, columns=[known[heading] for heading in headings or known])


def columns_of(keys: Mapping[str, str]) -> tuple[Column, ...]:
    """Columns with the units and directions of their metrics; in a human study, the more are right the better.

    Args:
        keys: heading -> key.

    Example:
        >>> columns_of({"NPR": "compactness/npr", "agreement": "study/agreement_correct[examples=no]"})[1]
        Column(heading='agreement', key='study/agreement_correct[examples=no]', unit='fraction', higher_is_better=True)
    """
    columns = []
    for heading, key in keys.items():
        base = key.partition("[")[0]
        unit, better = _OTHERS.get(base, ("", None))
        if base in ENTRIES:
            unit, better = ENTRIES[base].unit, ENTRIES[base].higher_is_better
        columns.append(Column(heading, key, unit, better))
    return tuple(columns)


# keys that are not metrics of the suite: unit and direction
_OTHERS: dict[str, tuple[str, bool | None]] = {
    **{f"study/{task}_{which}": ("fraction", True) for task in ("agreement", "distinction", "output")
       for which in ("correct", "incorrect")},
    **{f"study/tradeoff_{risk}": ("fraction", None) for risk in ("low", "medium", "high")},
    "class_representation/correlation": ("", False),
}  # fmt: skip
_BALANCED, _VARIANT = "[weighting=class_balanced]", "[variant=quanproto]"
_CHANGES = ("plc", "psc", "prc", "palc", "pac")
_QUANPROTO = {
    "2": (
        "general performance and compactness",
        {"accuracy": f"general/accuracy{_BALANCED}", "top-3": f"general/top3_accuracy{_BALANCED}",
         "F1": f"general/f1{_BALANCED}", "global size": f"compactness/global_size{_VARIANT}",
         "sparsity": "compactness/sparsity", "NPR": "compactness/npr", "local size": "compactness/local_size"},
    ),
    "3": (
        "contrastivity",
        {"PLC": "contrastivity/plc", "PALC": "contrastivity/palc", "APD intra": "contrastivity/apd_intra",
         "AFD intra": "contrastivity/afd_intra", "APD inter": "contrastivity/apd_inter",
         "AFD inter": "contrastivity/afd_inter", "entropy": f"contrastivity/entropy{_VARIANT}"},
    ),
    "4": (
        "continuity",
        {name.upper(): f"continuity/{name}{_VARIANT}" for name in (*_CHANGES, "cac", "crc")},
    ),
    "5": (
        "output completeness and covariate complexity",
        {name.upper(): f"completeness/{name}{_VARIANT}" for name in ("vlc", "vac", *_CHANGES)}
        | {"object overlap": "complexity/object_overlap", "background overlap": "complexity/background_overlap",
           "IORD": "complexity/iord", "consistency": f"complexity/consistency{_VARIANT}"},
    ),
}  # fmt: skip
_RANKED = {"by θ": "_weight", "by u": "_score", "by θu": ""}
_AREAS = {1: "", 3: "_a3", 6: "_a6"}
_CGIM = "concept global importance (CGIM) of"
_MEANS = "Tables 6-8 (mean computed here)"
_SCORES = ("accuracy", "bi", "csdc", "pc", "dc", "d", "sd", "ts")
_FUNNYBIRDS = {
    "1": "bounding boxes before and after the fix of the code",
    "2": "bounding boxes and summed similarity maps of one model",
    "3": "bounding boxes and summed similarity maps, models of their own",
    "4": "backbones under summed similarity maps",
}
_PREDICTIONS = {"right": "correct", "wrong": "incorrect"}
_LEVELS = {
    "agreement": "agreement", "agreement, with examples": "agreement_examples",
    "agreement, first disagreement": "agreement_tree", "distinction": "distinction",
    "distinction, with labels": "distinction_labels",
}  # fmt: skip
_OF_STUDY = {words: f"[study={study}]" for words, study in _LEVELS.items()}


def _lengths(key: str) -> tuple[Column, ...]:
    return columns_of({f"l = {length}": f"concepts/{key}@{length}" for length in (1, 3, 5)})


def _global_importance(number: str, sources: Sequence[str], axis: str, what: str, indices: Sequence[int]) -> PaperTable:
    rows = {f"mean of all {what}": ""} | {f"{axis} {index}": f"[{axis}={index}]" for index in indices}
    columns = columns_of({f"CGIM{kind}": f"concepts/cgim{kind}_{axis}" for kind in (1, 2, 3)})
    papers = ["concept_metrics"]
    return PaperTable(f"concept_metrics/{number}", f"{_CGIM} {what}", papers, [*sources, _MEANS], columns, rows)


def _agreement(number: str, source: str, title: str, examples: str) -> PaperTable:
    keys = {}
    for words, suffix in _PREDICTIONS.items():
        for heading, end in {f"{words} predictions": "", f"confidence, {words}": "_confidence"}.items():
            keys[heading] = f"study/agreement_{suffix}{end}[examples={examples}]"
    return PaperTable(f"hive/{number}", title, ["hive"], [source], columns_of(keys))


def _all_tables() -> list[PaperTable]:
    aysel = ["concept_metrics"]
    by_rule = {
        f"{images}{words}": ending + suffix
        for images, suffix in {"": "", "correct only, ": "_correct"}.items()
        for words, ending in _RANKED.items()
    }
    by_area = {f"α = {n}, {words}": area + end for n, area in _AREAS.items() for words, end in _RANKED.items()}
    shares = [f"study/{task}_{kind}" for task in ("distinction", "output") for kind in _PREDICTIONS.values()]
    scores = {name if name == "accuracy" else name.upper(): f"funnybirds/{name}" for name in _SCORES}
    quality = {"SID@5": "sid@5", "class independence": "class_independence", "contrastiveness": "contrastiveness",
               "correlation": "correlation"}  # fmt: skip
    classes = {heading: f"class_representation/{key}" for heading, key in quality.items()}
    maps = {
        f"{which} class, {words} prediction": f"[class={which.replace(' ', '_')},prediction={end}]"
        for words, end in _PREDICTIONS.items()
        for which in ("predicted", "second", "ground truth")
    }
    heat = {"pointing game": "pointing_game", "energy": "energy", "IoU": "iou"}
    asked = {"after the introduction": "intro", "after the task": "task", "after the results": "results"}
    return [
        *(PaperTable(f"quanproto/{n}", title, ["quanproto"], [f"Table {n}"], columns_of(keys))
          for n, (title, keys) in _QUANPROTO.items()),
        PaperTable("concept_metrics/1", "concept existence (CEM)", aysel, ["Table 1"], _lengths("cem"), by_rule),
        PaperTable("concept_metrics/2", "concept location (CLM)", aysel, ["Table 2"], _lengths("clm"), by_area),
        PaperTable("concept_metrics/3", "accuracy by the settings of the concept vectors", aysel, ["Table 3"],
                   columns_of({"accuracy": "general/accuracy"})),
        _global_importance("6", ["Table 6"], "concept", "concepts", (51, 56, 109)),
        *(_global_importance(n, ["Table 7"], "class", "classes", (18, 25, 86)) for n in ("7", "8")),
        *(PaperTable(f"funnybirds/{n}", title, ["funnybirds_revisited"], [f"Table {n}"], columns_of(scores))
          for n, title in _FUNNYBIRDS.items()),
        PaperTable("qpm/accuracy", "accuracy", ["qpm"], ["main results table"],
                   columns_of({"accuracy": "general/accuracy"})),
        PaperTable("qpm/classes", "class representations", ["qpm", "chiqpm"], ["released models"],
                   columns_of({"accuracy": "general/accuracy"} | classes)),
        _agreement("1", "Table 1", "agreement", "no"),
        PaperTable("hive/2", "distinction and output prediction", ["hive"], ["Table 2"],
                   columns_of({key.partition("/")[2].replace("_", ", "): key for key in shares}),
                   {"labels hidden": "[labels=no]", "labels shown": "[labels=yes]"}),
        _agreement("A1", "supplement Table A1", "agreement with examples of the classes", "yes"),
        PaperTable("hive/A2", "heat maps against the object", ["hive"], ["supplement Table A2"],
                   columns_of({heading: f"localisation/{key}" for heading, key in heat.items()}), maps),
        PaperTable("hive/A3", "how well people think they understand, 1 to 5", ["hive"], ["supplement Table A3"],
                   columns_of({heading: f"study/understanding_{key}" for heading, key in asked.items()}), _OF_STUDY),
        PaperTable("hive/A4", "accuracy demanded of a model without explanation, in points above the model's",
                   ["hive"], ["supplement Table A4"],
                   columns_of({f"{risk} risk": f"study/tradeoff_{risk}" for risk in ("low", "medium", "high")}),
                   _OF_STUDY),
    ]  # fmt: skip


TABLES: dict[str, PaperTable] = {table.name: table for table in _all_tables()}
