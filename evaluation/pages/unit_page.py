"""The page of a unit: the photo that stands for it, where it is strongest, and the classes that use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from protometry.evaluation.explained.scan import samples_of
from protometry.evaluation.explained.unit_sources import Source
from protometry.evaluation.pages.contents import ReportContents
from protometry.evaluation.pages.site import Site
from protometry.run_folder.command_line.messages import counted
from protometry.run_folder.command_line.progress import track

NEAREST, COUNTED, CLASSES = 3, 20, 10  # images drawn of each split; images and classes listed
AT_ONCE = 16  # units whose images are in memory together
Nearest = tuple[str, list[tuple[float, Source]]]  # a heading, then score and picture of images


@dataclass(frozen=True)
class UnitSheet:
    """What the page of a unit shows.

    Args:
        share: of all contributions to the predicted classes, by absolute value; None where they do not add up.
        weights: class, name and weight, the largest by absolute value.
        nearest: heading, then score and picture of the images in which it is strongest.
        counted: number of the images in which it is strongest whose classes are listed.
        classes: name and number of their classes.
        duplicates: other units with the same source patch.
        moved: the distance of its vector to the patch that it was projected onto, or None.
        edit: the command that removes it; empty where units cannot be removed.
    """

    name: str
    share: float | None
    owners: list[str]
    weights: list[tuple[int, str, float]]
    nearest: list[Nearest]
    counted: int
    classes: list[tuple[str, int]]
    duplicates: list[int]
    moved: float | None
    edit: str


def unit_pages(site: Site, contents: ReportContents) -> None:
    """Write a page for every chosen unit, and the list of them."""
    if not contents.units:
        return
    units, items = contents.explained.units, contents.files.items
    sources, named = contents.explained.sources.of(contents.units), units.concepts is not None
    values = items.get("concepts" if named and "concepts" in items else "units", {})
    cards = []
    for first in track(range(0, len(contents.units), AT_ONCE), f"Writing pages of {units.kind}s"):
        some = contents.units[first : first + AT_ONCE]
        for unit, nearest in zip(some, _nearest(contents, some), strict=True):
            sheet, source, link = unit_sheet(contents, unit, nearest), sources.get(unit), contents.unit_links[unit]
            own = values.get(sheet.name if named else str(unit), {})
            site.page(link, "unit", unit=sheet, source=source, values=own)
            owners = ", ".join(sheet.owners[:3]) + (" …" if len(sheet.owners) > 3 else "")
            cards.append({"name": sheet.name, "owners": owners, "source": source, "link": link, "share": sheet.share})
    deciding, active = int((contents.decided > 0).sum()), int(units.active.sum())
    left = {"silent": active - deciding, "inactive": len(units.active) - active}
    site.page("units.html", "units", cards=cards, kind=units.kind, total=deciding, **left)


def unit_sheet(contents: ReportContents, unit: int, nearest: list[Nearest]) -> UnitSheet:
    """What the page of a unit shows."""
    explained, outputs, table = contents.explained, contents.outputs, contents.explained.units
    names = explained.class_names
    weights: list[tuple[int, str, float]] = []
    if table.weight is not None:
        column = table.weight[:, unit].detach().cpu()
        order = column.abs().argsort(descending=True, stable=True)[:CLASSES].tolist()
        weights = [(label, names[label], float(column[label])) for label in order if column[label]]
    strongest = outputs.strongest(unit, COUNTED)
    counts = Counter(names[label] for row in strongest for label in outputs.labels[row])
    groups = table.source.duplicates() if table.source is not None else []
    twins = next((group for group in groups if unit in group), [])
    return UnitSheet(
        name=explained.unit_name(unit),
        share=None if table.weight is None else float(contents.decided[unit] / contents.decided.sum()),
        owners=[names[label] for label in table.owner[unit].nonzero().flatten().tolist()],
        weights=weights,
        nearest=nearest,
        counted=len(strongest),
        classes=sorted(counts.items(), key=lambda item: (-item[1], item[0])),
        duplicates=[other for other in twins if other != unit and bool(table.active[other])],
        moved=float(table.source.distance[unit]) if table.source is not None and table.source.found[unit] else None,
        edit=f"protometry edit RUN --remove {unit}" if _removable(explained.model) else "",
    )


def _removable(model: object) -> bool:
    """Whether a model can deactivate units, or take their weights."""
    return hasattr(model, "prune") or hasattr(model, "ignore")


def _nearest(contents: ReportContents, units: Sequence[int]) -> list[list[Nearest]]:
    """For every unit, the images in which it is strongest: of the training images, if there, and of those evaluated."""
    sources = contents.explained.sources
    searched = [("evaluated", contents.outputs, contents.dataset)]
    if sources.there:
        searched.insert(0, ("training", sources.training, contents.explained.datamodule.shown("projection")))
    columns = []
    for name, outputs, dataset in searched:
        rows = [[row for row in outputs.strongest(unit, NEAREST) if outputs.scores[row, unit] != 0] for unit in units]
        asked = [(unit, row) for unit, strongest in zip(units, rows, strict=True) for row in strongest]
        samples = samples_of(dataset, [outputs.sample_ids[row] for _, row in asked])
        drawn = dict(zip(asked, sources.draw([unit for unit, _ in asked], samples), strict=True))
        heading = f"Strongest of {counted(len(outputs.sample_ids), f'{name} image')}"
        columns.append(
            [
                (heading, [(float(outputs.scores[row, unit]), drawn[unit, row]) for row in strongest])
                for unit, strongest in zip(units, rows, strict=True)
            ]
        )
    return [list(headed) for headed in zip(*columns, strict=True)]
