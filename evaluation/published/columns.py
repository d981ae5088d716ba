"""Table columns of published numbers: which may appear next to a group of runs, which only under a mark, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from protometry.evaluation.published.numbers import DEFECTS, Published
from protometry.evaluation.results.metrics_json import Result

_INPUT = {"box": "crop", "none": "full"}  # the data modules' word for `crop` -> the published tables' for `input`
_ARGUMENTS = {  # the published tables' word -> argument of a model
    "C": "svm_c",
    "n_pos": "positives",
    "features": "num_features",
    "per_class": "features_per_class",
}
_INTERFACES = {"bb_reference": "bb", "bb_corrected": "bb"}  # from explanations to parts -> the published tables' word
_EXPLAINERS = {"grad_cam": "gradcam", "ixg": "input_x_gradient"}  # key of an explainer -> the published tables' word


@dataclass(frozen=True)
class Match:
    """A published number for one row of a table.

    Args:
        key: result key of the row.
        differences: how its measurement differed from the runs'; empty if no difference is known.
        unknown: qualifiers that the runs do not record.
    """

    record: Published
    key: str
    differences: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class PublishedColumn:
    """The numbers a paper gives for one of its models, either all comparable or all under a mark.

    Args:
        title: the paper, and what distinguishes the model from the paper's others.
        marked: whether every number in it differs in some condition.
        cells: row key -> numbers.
    """

    title: str
    model: str
    marked: bool
    cells: dict[str, list[Match]]


def matches(result: Result, records: Sequence[Published]) -> list[Match]:
    """The published numbers for the data set and model of some runs.

    Accuracy weighted by inverse class frequency is balanced accuracy, and is matched to that row too; a ranking by
    magnitude is matched to the row of such a ranking too.

    Returns:
        One match per number and row, in the order of the records.
    """
    facts, reduced = _facts(result), _reductions(result)
    balanced = facts | {"weighting": "class_balanced"}
    interface = result.protocol.get("interface")
    by_part = facts if interface == "attribution" else facts | {"explainer": _INTERFACES.get(str(interface), interface)}
    if result.protocol.get("foreign_weights"):
        by_part = by_part | {"code": "before_fix"}
    all_matches = []
    for record in records:
        if record.dataset != result.dataset or record.base_model not in names_of(result):
            continue
        of_parts = record.base_key.startswith("funnybirds/")
        all_matches.append(_match(record, record.base_key, by_part if of_parts else facts, reduced))
        if record.base_key == "general/accuracy" and record.qualifiers.get("weighting") == "class_balanced":
            all_matches.append(_match(record, "general/balanced_accuracy", balanced, reduced))
        if "C7" in record.codes:
            signed, stem = all_matches.pop(), record.base_key.removesuffix("_correct")
            by_magnitude = f"{stem}_abs{record.base_key.removeprefix(stem)}"
            differs = (*signed.differences, "ranking by magnitude (these runs: signed)")
            all_matches += [replace(signed, differences=differs), replace(signed, key=by_magnitude)]
    return all_matches


def columns(matched: Sequence[Match]) -> list[PublishedColumn]:
    """Sort matches into columns: one per published model, and one more for what differs in some condition."""
    papers = {match.record.model: match.record.paper for match in matched}
    models = list(papers)
    result = []
    for model in models:
        for marked in (False, True):
            cells: dict[str, list[Match]] = {}
            for match in matched:
                if match.record.model == model and bool(match.differences) == marked:
                    cells.setdefault(match.key, []).append(match)
            if cells:
                title = " ".join([papers[model], *own_words(model, models), *(["†"] if marked else [])])
                result.append(PublishedColumn(title, model, marked, cells))
    return result


def footnotes(table_columns: Sequence[PublishedColumn]) -> list[str]:
    """The meaning of the marks in published columns."""
    notes = [_source(column) for column in table_columns if not (column.marked and _has_twin(column, table_columns))]
    return notes + explained([match for column in table_columns for each in column.cells.values() for match in each])


def explained(matched: Sequence[Match]) -> list[str]:
    """What readers must know to compare the numbers.

    Returns:
        Lines of text: what could not be checked, in what the numbers differ, their codes and remarks.
    """
    notes = []
    if unknown := list(dict.fromkeys(name for match in matched for name in match.unknown)):
        notes.append(f"not checked, because these runs do not say: {', '.join(unknown)}")
    notes += _by_text([(f"† {reason}", match.key) for match in matched for reason in match.differences])
    used = {code for match in matched for code in match.record.codes}
    notes += [f"{code}: {text}" for code, text in DEFECTS.items() if code in used]
    if not all(match.record.verified for match in matched):
        notes.append("unverified: quoted second-hand or from memory; check before quoting")
    return notes + _by_text([(match.record.remark, match.key) for match in matched if match.record.remark])


def names_of(result: Result) -> list[str]:
    """The words that papers have for a model; Q-SENN is a QPM with ternary weights."""
    if _arguments(result).get("ternary"):
        return ["QSENN"]
    return [result.model, *(["Dense"] if result.model == "Classifier" else [])]


def _arguments(result: Result) -> Mapping[str, Any]:
    arguments: Mapping[str, Any] = result.training.get("model", {})
    return arguments


def _facts(result: Result) -> dict[str, str | None]:
    """Values of the qualifiers of published numbers in the runs; None where the runs do not say."""
    protocol: Mapping[str, Any] = result.protocol
    arguments = _arguments(result)
    weights = protocol.get("weights")
    init = "imagenet" if str(weights).startswith("IMAGENET") else None  # a path may hold anything
    return {
        "variant": result.variant,
        "split": result.split,
        "explainer": _EXPLAINERS.get(str(result.explainer), result.explainer),
        "input": _INPUT.get(str(protocol.get("crop"))),
        "init": "none" if "weights" in protocol and weights is None else init,
        "backbone": protocol.get("backbone"),
        "pruned": {"True": "yes", "False": "no"}.get(str(protocol.get("pruned"))),
        "last_layer": protocol.get("last_layer"),
        "weighting": "none",
        "concept": "all",
        "code": "fixed",
        "class": "all",
        "mode": str(arguments["preset"]).split("_")[-1] if result.model == "ConceptBottleneck" and arguments else None,
        "residual": ("yes" if arguments["preset"] == "hybrid" else "no") if "svm_c" in arguments else None,
        **{word: f"{arguments[name]:g}" for word, name in _ARGUMENTS.items() if arguments.get(name) is not None},
    }


def _reductions(result: Result) -> dict[str, str]:
    """Settings under which the runs saw only a part of a data set: published numbers are of whole ones."""
    data = result.protocol.get("data") or {}
    reductions = {"limit": result.limit, "classes": data.get("classes"), "training": result.incomplete_training}
    reductions["data"] = "other than trained on" if result.other_data else None
    return {name: str(value) for name, value in reductions.items() if value is not None}


def _match(record: Published, key: str, facts: Mapping[str, str | None], reduced: Mapping[str, str]) -> Match:
    differences = []
    usual = {} if math.isnan(record.value) else {"pruned": "no", "last_layer": "trained"}  # of what was published
    for name, value in (usual | record.qualifiers).items():
        ours = facts.get(name)
        if ours not in (None, value):
            prefix = "other variant: " if name == "variant" else ""
            differences.append(f"{prefix}{name}={value} (these runs: {ours})")
    differences += [f"{name}={value}, which the paper does not have" for name, value in reduced.items()]
    unknown = tuple(name for name in record.qualifiers if facts.get(name) is None)
    return Match(record, key, tuple(differences), unknown)


def own_words(model: str, models: Sequence[str]) -> list[str]:
    """The qualifiers of a model that not all of the models have."""
    lists = {name: name.partition("[")[2].removesuffix("]").split(",") for name in models}
    return [word for word in lists[model] if not all(word in words for words in lists.values())]


def _has_twin(column: PublishedColumn, table_columns: Sequence[PublishedColumn]) -> bool:
    return any(other.model == column.model and not other.marked for other in table_columns)


def _source(column: PublishedColumn) -> str:
    records = [match.record for cell_matches in column.cells.values() for match in cell_matches]
    counts = sorted({str(record.n_runs) for record in records if record.n_runs is not None})
    over = f", ± over {' or '.join(counts)}" if counts else ""
    return f"{column.title}: {column.model}{over}"


def _by_text(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Texts with the keys they belong to, each text once."""
    keys: dict[str, list[str]] = {}
    for text, key in pairs:
        keys.setdefault(text, []).append(key)
    return [f"{text}: {', '.join(dict.fromkeys(keys_of_text))}" for text, keys_of_text in keys.items()]
