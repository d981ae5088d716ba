"""The page of an analysis: sentences, intervals as a picture, tables by question next to HIVE's values, all details."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from protometry.studies.analysis import names
from protometry.studies.analysis.headlines import arms, headlines, people
from protometry.studies.analysis.hive import published_for
from protometry.studies.analysis.results import default_test
from protometry.studies.study import Study

KINDS = {"total": "all photos", "correct": "right predictions", "incorrect": "wrong predictions"}


def page(study: Study, summary: dict[str, Any]) -> str:
    """The page of a summary; needs no other file, script or network."""
    environment = Environment(
        loader=PackageLoader("protometry.studies.analysis", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.globals.update(default_test=default_test, name_of=names.name_of, unit_of=names.unit_of)
    environment.filters.update(figure=names.figure, bare=names.bare, p_value=names.p_value)
    everybody, kept = summary["results"]["all"], summary["results"]["kept"]
    some = summary["participants"]
    excluded = some["analysed"] > some["kept"]
    sentences, before = headlines(study, kept), headlines(study, everybody)
    of_hive = {arm.id: published_for(study, arm) for arm in study.arms}
    return environment.get_template("index.html").render(
        study=study,
        summary=summary,
        excluded=excluded,
        kept=kept,
        headlines=list(zip(sentences, before, strict=True)),
        people=people(summary),
        arms=arms(study, kept),
        marks=_marks(study, everybody, kept, excluded),
        opened=_tables(study, kept, list(names.QUESTIONS)[1 : names.OPEN]),
        closed=_tables(study, kept, list(names.QUESTIONS)[names.OPEN :]),
        pairs={arm: next(iter(entries.items())) for arm, entries in kept.items() if names.is_pair(arm)},
        of_hive=of_hive,
        any_hive=any(of_hive.values()),
        with_interval=names.with_interval,
    )


def _marks(study: Study, everybody: dict[str, Any], kept: dict[str, Any], excluded: bool) -> list[dict[str, Any]]:
    """Rows of the picture: a result after the exclusions and, if somebody was excluded, the one before."""
    marks = []
    for arm in study.arms:
        for suffix, photos in KINDS.items():
            key = f"study/{study.task}_{suffix}"
            one, before = kept[arm.id][key], everybody[arm.id][key]
            if one["value"] is not None or suffix == "total":
                before = before if excluded else None
                marks.append({"arm": arm.id, "photos": photos, "key": key, "one": one, "before": before})
    return marks


def _tables(study: Study, kept: dict[str, Any], questions: list[str]) -> list[dict[str, Any]]:
    """The results of arms that answer a question; only those that some arm has, and arms that were asked."""
    keys = list(dict.fromkeys(key for arm in study.arms for key in kept[arm.id]))
    tables = []
    for question in questions:
        own = [key for short in names.QUESTIONS[question] for key in keys if names.short(key) == short]
        asked = [arm for arm in study.arms if any(_is_answered(kept[arm.id].get(key)) for key in own)]
        if own:
            tables.append({"question": question, "rows": own, "arms": asked or study.arms})
    return tables


def _is_answered(one: dict[str, Any] | None) -> bool:
    return one is not None and bool(one["n"] or one["details"].get("would_not_switch"))
