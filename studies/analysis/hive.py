"""The published values of HIVE (Kim et al. 2022) for the results of a study, and studies in tables of papers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from protometry.evaluation.published.columns import Match
from protometry.evaluation.published.numbers import Published, published
from protometry.evaluation.published.paper_tables import PaperTable
from protometry.evaluation.tables.paper_rows import PaperRow
from protometry.evaluation.tables.records import Cell
from protometry.studies.bundle import load_bundle
from protometry.studies.study import Arm, Study

# what HIVE showed of a model: the form, and how the name of the explainer begins
METHODS = {
    "Classifier": ("heatmap", "grad_cam"),
    "BagNet": ("heatmap", "upsample"),
    "ProtoPNet": ("units", ""),
    "ProtoTree": ("tree", ""),
}
RANK = ("study/similarity_spearman", "study/similarity_rank_position")  # HIVE's correlation is that over ranks


def key_of(record: Published) -> str:
    """Our key of a published value."""
    if group := record.key_qualifiers.get("class"):
        return f"{record.base_key}_{group}"
    return RANK[1] if record.base_key == RANK[0] else record.base_key


def published_for(study: Study, arm: Arm) -> dict[str, list[Published]]:
    """What HIVE published for the method, task and options of an arm, by our keys; one value per data set."""
    origin = arm.origin.get("model", ""), arm.origin.get("explainer", "")
    form, explainer = METHODS.get(origin[0], ("", ""))
    if arm.form != form or arm.control or not origin[1].startswith(explainer):
        return {}
    options = [option for item in arm.items for option in item.options]
    examples, labels = any(one.examples for one in options), any(one.label for one in options)
    first = arm.rating == "first_disagreement"
    variants = {"agreement": (("_examples", examples), ("_tree", first)), "distinction": (("_labels", labels),)}
    asked = {
        "task": study.task,
        "study": study.task + next((name for name, is_so in variants.get(study.task, ()) if is_so), ""),
        "examples": "yes" if examples else "no",
        "labels": "yes" if labels else "no",
        "rating": "first_disagreement" if first else "per_node",
    }
    by_key: dict[str, list[Published]] = {}
    for record in published("hive"):
        qualifiers = record.key_qualifiers.items()
        if record.base_model == origin[0] and all(asked.get(name, value) == value for name, value in qualifiers):
            by_key.setdefault(key_of(record), []).append(record)
    return by_key


def rows_of(folder: Path, table: PaperTable) -> list[PaperRow]:
    """The rows of a study in a table of HIVE: its results after the declared exclusions, by arm.

    Raises:
        ValueError: if the study was not analysed as it is now, its bundle is broken, or no arm is of a method in the
            table.
    """
    analysis = folder if (folder / "summary.json").is_file() else folder / "analysis"
    file = analysis / "summary.json"
    summary = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    bundle = load_bundle((analysis / summary.get("bundle", "..")).resolve())
    if summary.get("hash") != bundle.hash:
        raise ValueError(
            f"Expected {file} to be of this study as it is now. Run `protometry studies analyse {bundle.folder}`."
        )
    study = bundle.study
    rows = [row for arm in study.arms for row in _rows(study, arm, table, summary)]
    if not rows:
        raise ValueError(
            f"Expected {folder} to have an arm with a method, task and options of {table.name}, but its arms are "
            + ", ".join(f"{arm.id} ({arm.origin.get('model', 'no model')}, {arm.form})" for arm in study.arms)
            + f" in the task {study.task}."
        )
    return rows


def _rows(study: Study, arm: Arm, table: PaperTable, summary: dict[str, Any]) -> list[PaperRow]:
    results, simulated = summary["results"]["kept"][arm.id], summary["participants"]["simulated"]
    quoted = {
        (record.model, record.metric_key): (key, record)
        for key, records in published_for(study, arm).items()
        for record in records
        if key in results
    }
    source = f"{study.id}, {arm.id}{', simulated' if simulated else ''}"
    rows = []
    for model in dict.fromkeys(model for model, _ in quoted):
        for words, ending in table.rows.items():
            keys = {each.heading: quoted.get((model, each.key + ending)) for each in table.columns}
            cells = {heading: _cell(results[pair[0]], *pair) for heading, pair in keys.items() if pair is not None}
            if cells:
                own = arm.origin["model"]
                rows.append(PaperRow(dataset=None, model=own, nearest=model, words=words, source=source, cells=cells))
    return rows


def _cell(one: dict[str, Any], key: str, record: Published) -> Cell:
    """A result of ``summary.json``; the deviation is over participants, as in the paper."""
    match = Match(record, key, (), ())
    if one["value"] is None:
        return Cell(key, reason=one["reason"] or "undefined", match=match)
    low, high = one["interval"]
    spreads = () if one["sd"] is None else (one["sd"],)
    return Cell(key, value=one["value"], spreads=spreads, low=low, high=high, n=one["n"], match=match)
