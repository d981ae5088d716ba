"""The page of an image: how its logits come about, line by line, and what was measured on it."""

from __future__ import annotations

from typing import Any

from protometry.evaluation.explained.scan import samples_of
from protometry.evaluation.pages.contents import ReportContents
from protometry.evaluation.pages.contrast import contrast_of
from protometry.evaluation.pages.corrections import corrections
from protometry.evaluation.pages.evaluation_files import EvaluationFiles
from protometry.evaluation.pages.site import Site
from protometry.evaluation.pages.tree_page import way


def image_pages(site: Site, contents: ReportContents) -> dict[str, dict[str, Any]]:
    """Write a page for every chosen image, and the list of them.

    Returns:
        Sample id -> what a list of images shows of it.
    """
    explained, outputs = contents.explained, contents.outputs
    samples = samples_of(contents.dataset, list(contents.image_links))
    cards = {}
    for image, sample in zip(explained.explain(samples, "the image page"), samples, strict=True):
        link, contrast = contents.image_links[image.sample_id], contrast_of(image, explained)
        site.page(
            link,
            "image",
            image=image,
            file=explained.datamodule.file_of(image.sample_id),
            contrast=contrast,
            way=way(explained, image),
            corrections=corrections(explained, image, sample),
            values=_values(contents.files, image.sample_id),
        )
        cards[image.sample_id] = {
            "image": image,
            "contrast": contrast,
            "picture": image.whole,
            "sample_id": image.sample_id,
            "link": link,
            "predicted": image.predicted,
            "notes": image.mistakes,
            "correct": image.correct,
        }
    site.page("images.html", "images", cards=cards.values(), total=len(outputs.sample_ids))
    return cards


def _values(files: EvaluationFiles, sample_id: str) -> list[tuple[str, float]]:
    """What the evaluation measured on one image."""
    if (values := files.images) is None or sample_id not in values.sample_ids:
        return []
    return list(zip(values.keys, values.rows([sample_id])[0].tolist(), strict=True))
