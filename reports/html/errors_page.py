"""The page of errors: the images that a model gets wrong, the surest first, and the classes that it confuses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from protometry.explanations.views import fit, to_image
from protometry.reports.html.contents import Contents
from protometry.reports.html.site import Site, number
from protometry.reports.scan import Scan, samples_of

THUMBNAIL = 96  # longer side in pixels
PAIRS = 20  # of classes


def errors_page(site: Site, contents: Contents) -> None:
    """Write the page: images by how far the wrong class is ahead, and pairs of classes by how often they are confused.

    If multilabel, images by how far a label is on the wrong side of the threshold, and labels by how often.
    """
    subject, seen, ids = contents.subject, contents.seen, contents.seen.sample_ids
    wrong = [row for row, correct in enumerate(seen.correct) if not correct]
    wrong.sort(key=lambda row: (-_margin(seen, row), ids[row]))
    listed = wrong[: contents.limits.errors]
    cards = [
        {
            "picture": fit(to_image(sample["image"]), THUMBNAIL),
            "sample_id": ids[row],
            "link": contents.image_links.get(ids[row]),
            "predicted": subject.named(seen.predictions[row]),
            "correct": False,
            "notes": [*subject.mistakes(seen.predictions[row], seen.labels[row]), *_ahead(seen, row)],
        }
        for row, sample in zip(listed, samples_of(contents.dataset, [ids[row] for row in listed]), strict=True)
    ]
    confused = [] if seen.threshold is not None else most_confused(seen, wrong)
    mistaken = [] if seen.threshold is None else most_mistaken(seen)
    tables = {"confused": confused, "mistaken": mistaken}
    site.page("errors.html", "errors", cards=cards, total=len(wrong), images=len(ids), **tables)


def most_confused(seen: Scan, wrong: Sequence[int]) -> list[tuple[int, int, int]]:
    """Pairs of classes, true and predicted, with the number of images that confuse them."""
    pairs = Counter((truth, label) for row in wrong for truth in seen.labels[row] for label in seen.predictions[row])
    return [(*pair, count) for pair, count in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:PAIRS]]


def most_mistaken(seen: Scan) -> list[tuple[int, int, int]]:
    """Labels, with the number of images in which each is missing and in which it is surplus, the most first."""
    counts = [(label, *missing_and_surplus(seen, label)) for label in range(seen.logits.shape[1])]
    return sorted((each for each in counts if sum(each[1:])), key=lambda each: (-sum(each[1:]), each))[:PAIRS]


def missing_and_surplus(seen: Scan, label: int) -> tuple[int, int]:
    """The number of images that show a label that is not predicted, and that do not show it although it is."""
    pairs = [(label in truth, label in said) for truth, said in zip(seen.labels, seen.predictions, strict=True)]
    return pairs.count((True, False)), pairs.count((False, True))


def _ahead(seen: Scan, row: int) -> list[tuple[str, str]]:
    """The margin in words; nothing of an image without any decision."""
    margin = _margin(seen, row)
    if not margin and not seen.predictions[row]:
        return []
    return [("ahead by" if seen.threshold is None else "wrong by up to", number(margin))]


def _margin(seen: Scan, row: int) -> float:
    """Logit of the predicted class minus the true one's; if multilabel, how far any is from its side of the threshold.

    The label farthest from its side counts, missing or surplus.
    """
    logits, truth = seen.logits[row], list(seen.labels[row])
    if seen.threshold is None:
        return float(logits.max() - logits[truth].max()) if truth else 0.0
    above = logits - seen.threshold
    above[truth] *= -1
    return float(above.max())
