"""The page of errors: the images that a model gets wrong, the surest first, and the classes that it confuses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from protometry.evaluation.explained.scan import Scan, samples_of
from protometry.evaluation.pages.contents import ReportContents
from protometry.evaluation.pages.site import Site, number
from protometry.explanations.views import to_image

PAIRS = 20  # of classes


def errors_page(site: Site, contents: ReportContents) -> None:
    """Write the page: images by how far the wrong class is ahead, and pairs of classes by how often they are confused.

    If multilabel, images by how far a label is on the wrong side of the threshold, and labels by how often.
    """
    explained, outputs, ids = contents.explained, contents.outputs, contents.outputs.sample_ids
    wrong = [row for row, correct in enumerate(outputs.correct) if correct is False]
    wrong.sort(key=lambda row: (-_margin(outputs, row), ids[row]))
    listed = wrong[: contents.limits.errors]
    cards = [
        {
            "picture": to_image(sample["image"]),
            "sample_id": ids[row],
            "link": contents.image_links.get(ids[row]),
            "predicted": explained.named(outputs.predictions[row]),
            "correct": False,
            "notes": [*explained.mistakes(outputs.judged[row], outputs.labels[row]), *_ahead(outputs, row)],
        }
        for row, sample in zip(listed, samples_of(contents.dataset, [ids[row] for row in listed]), strict=True)
    ]
    confused = [] if outputs.threshold is not None else most_confused(outputs, wrong)
    mistaken = [] if outputs.threshold is None else most_mistaken(outputs)
    tables = {"confused": confused, "mistaken": mistaken}
    site.page("errors.html", "errors", cards=cards, total=len(wrong), images=len(ids), **tables)


def most_confused(outputs: Scan, wrong: Sequence[int]) -> list[tuple[int, int, int]]:
    """Pairs of classes, true and predicted, with the number of images that confuse them."""
    pairs = Counter(
        (truth, label) for row in wrong for truth in outputs.labels[row] for label in outputs.predictions[row]
    )
    return [(*pair, count) for pair, count in sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:PAIRS]]


def most_mistaken(outputs: Scan) -> list[tuple[int, int, int]]:
    """Labels, with their numbers of false negatives and false positives, the most first."""
    counts = [(label, *false_negatives_and_positives(outputs, label)) for label in range(outputs.logits.shape[1])]
    return sorted((each for each in counts if sum(each[1:])), key=lambda each: (-sum(each[1:]), each))[:PAIRS]


def false_negatives_and_positives(outputs: Scan, label: int) -> tuple[int, int]:
    """In how many images a label is missed, and in how many it is predicted although they do not show it."""
    pairs = [(label in truth, label in said) for truth, said in zip(outputs.labels, outputs.judged, strict=True)]
    return pairs.count((True, False)), pairs.count((False, True))


def _ahead(outputs: Scan, row: int) -> list[tuple[str, str]]:
    """The margin in words; nothing of an image without any decision."""
    margin = _margin(outputs, row)
    if not margin and not outputs.predictions[row]:
        return []
    return [("ahead by" if outputs.threshold is None else "wrong by up to", number(margin))]


def _margin(outputs: Scan, row: int) -> float:
    """Logit of the predicted class minus the true one's; if multilabel, how far any is from its side of the threshold.

    The label farthest from its side counts, a false negative or a false positive, of those that are known.
    """
    logits, truth = outputs.logits[row], list(outputs.labels[row])
    if outputs.threshold is None:
        return float(logits.max() - logits[truth].max()) if truth else 0.0
    above = logits - outputs.threshold
    above[truth] *= -1
    above[list(outputs.unknown[row] if outputs.unknown else ())] = -math.inf
    return float(above.max())
