"""What units are called in pictures and pages."""

from __future__ import annotations

from collections.abc import Sequence

from protometry.lightning_modules.contract import UnitTable


def unit_name(units: UnitTable, unit: int, class_names: Sequence[str], concept_names: Sequence[str]) -> str:
    """The concept or class that a unit stands for, else its kind and number."""
    if units.kind == "class":
        return class_names[unit]
    return concept_name(units, unit, concept_names) or f"{units.kind} {unit}"


def concept_name(units: UnitTable, unit: int, concept_names: Sequence[str]) -> str | None:
    """The concept that a unit stands for; None without one, or if the names of the concepts are unknown."""
    if units.names is not None:
        return units.names[unit]
    concept = -1 if units.concepts is None else int(units.concepts[unit])
    return concept_names[concept] if 0 <= concept < len(concept_names) else None
