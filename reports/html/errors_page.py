"""The page of errors: the images that a model gets wrong, the surest first, and the classes that it confuses."""

from __future__ import annotations

from collections import Counter

from explanations.views import fit, to_image
from reports.html.contents import Contents
from reports.html.site import Site
from reports.scan import Scan, samples_of

THUMBNAIL = 96  # longer side in pixels
PAIRS = 20  # of classes


def errors_page(site: Site, contents: Contents) -> None:
    """Write the page: images by how far the wrong class is ahead, and pairs of classes by how often they are confused.

    Args:
        site: of the report.
        contents: of the report.
    """
    seen, names, ids = contents.seen, contents.subject.class_names, contents.seen.sample_ids
    wrong = [row for row, correct in enumerate(seen.correct) if not correct]
    wrong.sort(key=lambda row: (-_margin(seen, row), ids[row]))
    listed = wrong[: contents.limits.errors]
    cards = [
        {
            "picture": fit(to_image(sample["image"]), THUMBNAIL),
            "sample_id": ids[row],
            "link": contents.image_links.get(ids[row]),
            "predicted": names[seen.predicted[row]],
            "correct": False,
            "truth": ", ".join(names[label] for label in seen.labels[row]),
            "margin": _margin(seen, row),
        }
        for row, sample in zip(listed, samples_of(contents.dataset, [ids[row] for row in listed]), strict=True)
    ]
    pairs = Counter(
        (truth, seen.predicted[row]) for row in wrong for truth in seen.labels[row] if truth != seen.predicted[row]
    )
    confused = [(*pair, count) for pair, count in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:PAIRS]]
    site.page("errors.html", "errors", cards=cards, confused=confused, total=len(wrong), images=len(ids))


def _margin(seen: Scan, row: int) -> float:
    """Logit of the predicted class minus the largest of a true one."""
    logits, truth = seen.logits[row], list(seen.labels[row])
    return float(logits.max() - logits[truth].max()) if truth else 0.0
