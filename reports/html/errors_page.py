"""The images that a model gets wrong, the surest first, and the pairs of classes that it confuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from explanations.views import fit, to_image
from reports.explained_model import ExplainedModel
from reports.scan import Scan, samples_of

THUMBNAIL = 96  # longer side in pixels
PAIRS = 20  # of classes


def error_page(
    subject: ExplainedModel, seen: Scan, dataset: Any, most: int, links: Mapping[str, str]
) -> dict[str, Any]:
    """What the page of errors shows.

    Args:
        subject: the model.
        seen: what it says of the images.
        dataset: of these images.
        most: images to show.
        links: sample id -> page, of the images that have one.

    Returns:
        Cards of images by how much the wrong class is ahead, pairs of classes with the number of images that are taken
        for the other, the most first, and the numbers of wrong and of all images.
    """
    names, ids = subject.class_names, seen.sample_ids
    wrong = [row for row, correct in enumerate(seen.correct) if not correct]
    wrong.sort(key=lambda row: (-_margin(seen, row), ids[row]))
    shown = wrong[:most]
    cards = [
        {
            "picture": fit(to_image(sample["image"]), THUMBNAIL),
            "sample_id": ids[row],
            "link": links.get(ids[row]),
            "predicted": names[seen.predicted[row]],
            "correct": False,
            "truth": ", ".join(names[label] for label in seen.labels[row]),
            "margin": _margin(seen, row),
        }
        for row, sample in zip(shown, samples_of(dataset, [ids[row] for row in shown]), strict=True)
    ]
    pairs = Counter(
        (truth, seen.predicted[row]) for row in wrong for truth in seen.labels[row] if truth != seen.predicted[row]
    )
    confused = [(*pair, count) for pair, count in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:PAIRS]]
    return {"cards": cards, "confused": confused, "total": len(wrong), "images": len(ids), "names": names}


def _margin(seen: Scan, row: int) -> float:
    """Logit of the predicted class minus the largest of a true one."""
    logits, truth = seen.logits[row], list(seen.labels[row])
    return float(logits.max() - logits[truth].max()) if truth else 0.0
