"""The report of one evaluation: pages of images, units, classes, errors and metrics, linked to each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reports.explained_model import ExplainedImage, ExplainedModel
from reports.html.class_page import sheet_of
from reports.html.contents import choose_images, choose_units
from reports.html.corrections import corrections
from reports.html.errors_page import error_page
from reports.html.evaluation_files import EvaluationFiles
from reports.html.metrics_page import families
from reports.html.site import Site, key_of
from reports.html.standalone_page import with_bars
from reports.html.tree_page import tree_of, way
from reports.html.unit_page import unit_card, unit_sheet
from reports.metric_words import FIGURES, FUNNYBIRDS
from reports.results.metrics_json import cut_short
from reports.scan import Scan, loaders, refuse_another_model, samples_of, scan


@dataclass(frozen=True)
class Limits:
    """The most pages of each kind; where there are more, the pages say so.

    Args:
        images: explained.
        units: with a page.
        classes: with a page.
        errors: shown on the page of errors.
    """

    images: int = 40
    units: int = 200
    classes: int = 200
    errors: int = 100


def build_report(subject: ExplainedModel, files: EvaluationFiles, folder: Path, limits: Limits | None = None) -> Path:
    """Write the report of an evaluation.

    Args:
        subject: the model, its data and the explainer.
        files: what the evaluation found.
        folder: of the report; an earlier report in it is replaced.
        limits: of its pages.

    Returns:
        Its first page.

    Raises:
        FileExistsError: if the folder holds other files.
        ValueError: if a table does not add up to what the model says, naming page, image and class, or the model is
            not the one that was evaluated.
    """
    report = _Report(subject, files, Site(folder), limits or Limits())
    report.write()
    return folder / "index.html"


class _Report:
    """Everything the pages need, each made once."""

    def __init__(self, subject: ExplainedModel, files: EvaluationFiles, site: Site, limits: Limits) -> None:
        self.subject, self.files, self.site, self.limits = subject, files, site, limits
        self.result = files.result
        self.split: str = self.result["split"]
        limit = self.result["limit"]
        self.seen: Scan = scan(subject.model, subject.datamodule, self.split, limit)
        with loaders(subject.datamodule, self.split, limit) as loader:
            self.dataset = loader.dataset
        self.names = subject.class_names
        site.title = f"{self.result['model']} on {self.result['dataset']}"
        refuse_another_model(self.seen, self.result)

    # -- what is shown -----------------------------------------------------------------------------------------------
    @cached_property
    def chosen(self) -> list[int]:
        """Positions of the images with a page."""
        return choose_images(self.seen, self.limits.images)

    @cached_property
    def image_links(self) -> dict[str, str]:
        """Sample id -> page."""
        return {name: f"image-{key_of(name)}.html" for name in (self.seen.sample_ids[row] for row in self.chosen)}

    @cached_property
    def units(self) -> list[int]:
        """Units with a page, those of a tree in the order of its nodes."""
        return [] if self.subject.units.kind == "class" else choose_units(self.subject.units, self.limits.units)

    @cached_property
    def unit_links(self) -> dict[int, str]:
        """Unit -> page."""
        return {unit: f"unit-{unit}.html" for unit in self.units}

    @cached_property
    def class_links(self) -> dict[int, str]:
        """Class -> page."""
        return {label: f"class-{label}.html" for label in range(min(len(self.names), self.limits.classes))}

    # -- pages -------------------------------------------------------------------------------------------------------
    def write(self) -> None:
        """Write all pages; the navigation first, as every page shows it."""
        tree = tree_of(self.subject)
        concepts = self.subject.units.concepts is not None
        pages = [("index.html", "Overview", True), ("metrics.html", "Metrics", True)]
        pages += [("images.html", "Images", True), ("errors.html", "Errors", True)]
        kind = f"{self.subject.units.kind.capitalize()}s"
        pages += [("units.html", kind, bool(self.units)), ("classes.html", "Classes", True)]
        pages += [("tree.html", "Tree", tree is not None)]
        birds = {name: self.files.figures[name] for name in FUNNYBIRDS if name in self.files.figures}
        figures = {name: picture for name, picture in self.files.figures.items() if name not in birds}
        pages += [("funnybirds.html", "FunnyBirds", bool(birds)), ("figures.html", "Figures", bool(figures))]
        self.site.navigation = [(file, name) for file, name, there in pages if there]
        images = self._images()
        self._overview(images)
        shown = families(self.files, self.image_links)
        self.site.page("metrics.html", "metrics", families=shown, result=self.result)
        self._units(concepts)
        self._classes(images)
        errors = error_page(self.subject, self.seen, self.dataset, self.limits.errors, self.image_links)
        self.site.page("errors.html", "errors", **errors, pages=self.class_links)
        if tree is not None:
            model, sources = self.subject, self.subject.sources.of(self.units)
            self.site.page("tree.html", "tree", tree=tree, model=model, sources=sources, links=self.unit_links)
        for file, title, pictures in (("funnybirds.html", "FunnyBirds", birds), ("figures.html", "Figures", figures)):
            if pictures:
                self.site.page(file, "figures", heading=title, figures=pictures, words=FIGURES)
        versions = {name: version(name) for name in ("torch", "torchvision", "pillow", "jinja2")}
        self.site.finish({"versions": versions, "limits": asdict(self.limits), "explainer": self.subject.explained_by})

    def _images(self) -> list[ExplainedImage]:
        """The pages of images."""
        ids = [self.seen.sample_ids[row] for row in self.chosen]
        samples = samples_of(self.dataset, ids)
        explained = self.subject.explain(samples, "the image page")
        for image, sample in zip(explained, samples, strict=True):
            self.site.page(
                self.image_links[image.sample_id],
                "image",
                image=image,
                model=self.subject,
                tables=with_bars(image),
                links=self.unit_links,
                way=way(self.subject, image),
                corrections=corrections(self.subject, image, sample),
                values=self._values(image.sample_id),
            )
        self.site.page("images.html", "images", cards=self._cards(explained), total=len(self.seen.sample_ids))
        return explained

    def _values(self, sample_id: str) -> list[tuple[str, float]]:
        """What the evaluation measured on one image."""
        if (values := self.files.images) is None or sample_id not in values.sample_ids:
            return []
        return list(zip(values.keys, values.rows([sample_id])[0].tolist(), strict=True))

    def _cards(self, explained: Sequence[ExplainedImage]) -> list[dict[str, Any]]:
        return [
            {
                "picture": image.photo,
                "sample_id": image.sample_id,
                "link": self.image_links[image.sample_id],
                "predicted": "nothing" if image.abstains else self.names[image.predicted],
                "truth": ", ".join(image.truth),
                "correct": image.correct,
            }
            for image in explained
        ]

    def _overview(self, images: Sequence[ExplainedImage]) -> None:
        units = self.subject.units
        self.site.page(
            "index.html",
            "overview",
            result=self.result,
            incomplete=cut_short(self.result["training"] or {}),
            model=self.subject,
            active=int(units.active.sum()),
            total=len(units.active),
            families=families(self.files, self.image_links),
            cards=self._cards([image for image in images if image.correct][:8]),
            wrong=self._cards([image for image in images if image.correct is False][:8]),
            projected=units.source is not None and bool(units.source.found.any()),
        )

    def _units(self, named: bool) -> None:
        """The list of units and a page for each."""
        if not self.units:
            return
        sources = self.subject.sources.of(self.units)
        values = self.files.items.get("concepts" if named and "concepts" in self.files.items else "units", {})
        cards = [unit_card(self.subject, unit, sources.get(unit), self.unit_links[unit]) for unit in self.units]
        counts = {"total": int(self.subject.units.active.sum()), "kind": self.subject.units.kind}
        self.site.page("units.html", "units", cards=cards, model=self.subject, **counts)
        for unit in self.units:
            shown = unit_sheet(self.subject, self.seen, self.dataset, unit)
            name = self.subject.unit_name(unit)
            self.site.page(
                self.unit_links[unit],
                "unit",
                unit=shown,
                model=self.subject,
                source=sources.get(unit),
                values=values.get(name if named else str(unit), {}),
                classes=self.class_links,
                image_links=self.image_links,
            )

    def _classes(self, images: Sequence[ExplainedImage]) -> None:
        """The list of classes and a page for each."""
        cards = {card["sample_id"]: card for card in self._cards(images)}
        sheets = [sheet_of(self.subject, self.seen, label) for label in self.class_links]
        named = {line[0] for sheet in sheets for line in sheet.lines}
        known: dict[str, Any] = {"model": self.subject, "links": self.unit_links, "pages": self.class_links}
        known["sources"] = self.subject.sources.of([unit for unit in self.units if unit in named])
        known["cells"] = self.subject.units.kind == "class"
        self.site.page("classes.html", "classes", sheets=sheets, total=len(self.names), **known)
        for sheet in sheets:
            rows = [row for row, truth in enumerate(self.seen.labels) if sheet.label in truth and row in self.chosen]
            self.site.page(
                self.class_links[sheet.label],
                "class",
                sheet=sheet,
                additive=sheet.bias is not None,
                **known,
                cards=[cards[self.seen.sample_ids[row]] for row in rows],
            )
