"""The notes below a table on the runs of a group: what was read, under which conditions, what is missing."""

from __future__ import annotations

from protometry.evaluation.results.differences import differing, short, short_name
from protometry.evaluation.results.runs import NOT_READ, passed_over, read_from
from protometry.evaluation.tables.groups import Group

# conditions that are in the heading or below, or are named only where they differ
ELSEWHERE = ("dataset", "model", "split", "folds", "data", "evaluation_code", "other_data", "training")


def shared_conditions(group: Group) -> str:
    """The conditions that the runs share, their folds and their seeds, on a line."""
    conditions = {
        name: value for name, value in group.first.conditions.items() if name not in ELSEWHERE and value is not None
    }
    listed: dict[str, set[int | None]] = {
        "folds": {result.fold for result in group.results},
        "training seeds": {result.train_seed for result in group.results},
        "seeds of perturbations": {result.seed for result in group.results},
    }
    for name, values in listed.items():
        if known := sorted(value for value in values if value is not None):
            conditions[name] = " ".join(map(str, known))
    data = group.first.protocol.get("data") or {}
    conditions |= {f"data.{name}": value for name, value in data.items() if value not in (None, [], "")}
    return ", ".join(f"{name} {value}" for name, value in conditions.items())


def own_notes(group: Group) -> list[str]:
    """Which evaluations were read, how runs were averaged, and what does not apply, is undefined or not the same."""
    notes = [*_read(group), *_averaged(group), *_missing(group)]
    incidentals = [{**result.conditions, **result.incidentals} for result in group.results]
    for path, values in differing(incidentals).items():
        if path != "train_seed":  # named with the folds
            compared = " vs ".join(dict.fromkeys(map(short, values)))
            notes.append(f"not the same in all runs: {short_name(path)}: {compared}")
    if not all(result.is_recorded for result in group.results):
        notes.append(
            "not recorded, so runs may differ in them: arguments of the model, phases, epochs, batch size, precision, "
            "code version"
        )
    return notes


def _read(group: Group) -> list[str]:
    """The evaluation that stands for each run, and the others that it holds."""
    sources: dict[str, list[int]] = {}
    for index, result in enumerate(group.results):
        sources.setdefault(result.source, []).append(index)
    notes = []
    for members in sources.values():
        names = ", ".join(group.names[index] for index in members)
        notes.append(f"{names}: read from {read_from(*(group.results[index] for index in members))}")
    others: dict[str, list[str]] = {}
    for name, result in zip(group.names, group.results, strict=True):
        if result.others:
            others.setdefault(passed_over(result), []).append(name)
    return notes + [f"{', '.join(names)}: {NOT_READ}: {passed}" for passed, names in others.items()]


def _averaged(group: Group) -> list[str]:
    """How folds and seeds were averaged."""
    runs = [sum(result.fold == fold for result in group.results) for fold in group.folds]
    notes = []
    if group.has_folds and group.has_seeds:
        seeds = str(runs[0]) if len(set(runs)) == 1 else f"{min(runs)} to {max(runs)}"
        notes.append(
            f"mean over {len(group.folds)} folds of the mean over {seeds} seeds ± standard deviation between these "
            "± standard deviation between the seeds of a fold, pooled over folds"
        )
    elif group.total > 1:
        over = f"{len(group.folds)} folds" if group.has_folds else f"{group.total} seeds"
        notes.append(f"mean ± standard deviation over {over}")
    if repeated := group.repeated():
        notes.append(f"the same fold and training seed, but counted as different runs: {', '.join(repeated)}")
    return notes


def _missing(group: Group) -> list[str]:
    notes: dict[str, list[str]] = {}
    for key in group.keys:
        for note in group.notes(key):
            notes.setdefault(note, []).append(key)
    return [f"{text}: {', '.join(names)}" for text, names in notes.items()]
