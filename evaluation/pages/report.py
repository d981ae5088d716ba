"""The report of one evaluation: pages of images, units, classes, errors and metrics, linked to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PIL import Image

from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.limits import Limits
from protometry.evaluation.pages.audit_page import VERDICTS, Finding, audit_page, unmeasured
from protometry.evaluation.pages.class_page import class_pages
from protometry.evaluation.pages.contents import MOST, ReportContents
from protometry.evaluation.pages.errors_page import errors_page
from protometry.evaluation.pages.evaluation_files import EvaluationFiles
from protometry.evaluation.pages.image_page import image_pages
from protometry.evaluation.pages.metrics_page import MetricRow, metrics_page
from protometry.evaluation.pages.settings_table import phase_lines, setting_lines
from protometry.evaluation.pages.site import Site
from protometry.evaluation.pages.tree_page import tree_page
from protometry.evaluation.pages.unit_page import unit_pages
from protometry.evaluation.pictures.evaluation import FAMILIES
from protometry.evaluation.results.metrics_json import incomplete_training
from protometry.lightning_modules.contract import DecidesByTree
from protometry.run_folder.lock import only_process

CARDS = 8  # images that are right, and images that are wrong, on the first page


def build_report(explained: ExplainedModel, files: EvaluationFiles, folder: Path, limits: Limits = Limits()) -> Path:
    """Write the report of an evaluation.

    Raises:
        FileExistsError: if the folder holds other files.
        ValueError: if a table does not add up to what the model says, naming page, image and class, the model is not
            the one that was evaluated, or another process writes there.
    """
    with only_process(folder):
        _write(Site(folder), ReportContents(explained, files, limits))
    return folder / "index.html"


def _write(site: Site, contents: ReportContents) -> None:
    explained, files, result = contents.explained, contents.files, contents.files.result
    pictures = _by_page(files.figures)
    kind = f"{explained.units.kind.capitalize()}s"
    pages = [("index.html", "Overview", True), ("audit.html", "Findings", True)]
    pages += [("metrics.html", "Metrics", True)]
    pages += [("images.html", "Images", True), ("errors.html", "Errors", True)]
    pages += [("units.html", kind, bool(contents.units)), ("classes.html", "Classes", True)]
    pages += [("tree.html", "Tree", isinstance(explained.model, DecidesByTree))]
    pages += [(f"{heading.lower()}.html", heading, True) for heading in pictures]
    site.shared = {
        "report": f"{result['model']} on {result['dataset']}",
        "navigation": [(file, name) for file, name, there in pages if there],
        "model": explained,
        "image_links": contents.image_links,
        "unit_links": contents.unit_links,
        "class_links": contents.class_links,
    }
    unit_pages(site, contents)  # first, since it draws the photos of all units at once
    measured, cards = metrics_page(site, contents), image_pages(site, contents)
    found = audit_page(site, contents)
    _overview(site, contents, measured, list(cards.values()), found)
    class_pages(site, contents, cards)
    errors_page(site, contents)
    tree_page(site, contents)
    captions = {name: text for family in FAMILIES for name, text in family.captions.items()}
    for heading, figures in pictures.items():
        site.page(f"{heading.lower()}.html", "figures", heading=heading, figures=figures, captions=captions)
    site.finish({"limits": asdict(contents.limits), "explainer": explained.explained_by})


def _by_page(figures: Mapping[str, Image.Image]) -> dict[str, dict[str, Image.Image]]:
    """Heading of a page -> its pictures by name: families that ask for it have a page of their own."""
    left = dict(figures)
    pages = {
        family.page: {name: left.pop(name) for name in family.captions if name in left}
        for family in FAMILIES
        if family.page is not None
    }
    return {heading: pictures for heading, pictures in (pages | {"Figures": left}).items() if pictures}


def _overview(
    site: Site,
    contents: ReportContents,
    measured: Mapping[str, tuple[str, Sequence[MetricRow]]],
    cards: Sequence[Mapping[str, Any]],
    found: Sequence[Finding],
) -> None:
    """Write the first page."""
    units, files, result = contents.explained.units, contents.files, contents.files.result
    first = [next((card for card in cards if card["correct"] is judged), None) for judged in (True, False)]
    site.page(
        "index.html",
        "overview",
        result=result,
        phases=phase_lines(result["training"]),
        settings=_settings(result),
        findings=[finding for finding in found if finding.verdict],
        verdicts=VERDICTS,
        unmeasured=unmeasured(files),
        incomplete=incomplete_training(result["training"]),
        active=int(units.active.sum()),
        total=len(units.active),
        general=measured.get("general"),
        accuracy=result["metrics"].get("general/accuracy"),
        shares=contents.shown_shares,
        most=min(MOST, int(units.active.sum())),
        is_tree=isinstance(contents.explained.model, DecidesByTree),
        explained=[card for card in first if card] or cards[:1],
        cards=[card for card in cards if card["correct"]][:CARDS],
        wrong=[card for card in cards if card["correct"] is False][:CARDS],
        projected=units.source is not None and bool(units.source.found.any()),
    )


def _settings(result: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Heading of a table -> its lines: the model, the training, the data and the evaluation."""
    training, protocol = dict(result["training"]), dict(result["protocol"])
    model, data = training.pop("model", None) or {}, protocol.pop("data", None) or {}
    training = {name: value for name, value in training.items() if name not in ("phases", "epochs")}
    groups = {"Model": model, "Training": training, "Data": data, "Evaluation": protocol}
    return {heading: lines for heading, group in groups.items() if (lines := setting_lines(group))}
