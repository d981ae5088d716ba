"""The lines of the log about the actions of a schedule; loggers get the same figures by their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# the words around the number {} of a figure; None for those that only loggers get
FIGURES: dict[str, str | None] = {
    "moved_mean": "moved by {} on average",
    "moved_max": "by {} at most",
    "unique": "onto {} different patches",
    "duplicates": "sharing a patch with another one: {}",
    "without_patch": "without an allowed image: {}",
    "displaced": "moved to a farther image: {}",
    "farther_mean": "farther by {} on average",
    "farther_max": "by {} at most",
    "accuracy_before": "validation accuracy {} before",
    "accuracy_after": "{} after",
    "images": "from {} images",
    "units": "{} units in use",
    "kept": "kept {}",
    "pruned": "removed {}",
    "rescued": "classes that keep only their best one: {}",
    "empty_classes": "classes without a weight: {}",
    "weights_per_class": "{} weights per class on average",
    **dict.fromkeys(("objective", "violation", "passes", "solved", "evaluations", "swaps", "starts")),
}
LEFT_OUT_AT_ZERO = {
    "duplicates", "without_patch", "displaced", "farther_mean", "farther_max", "rescued", "ignored", "empty_classes",
}  # fmt: skip
DESCRIPTIONS = {
    "project": "prototypes became their nearest training patches",
    "project_distinct": "prototypes became training patches, each of another image",
    "fit_head": "the last layer is solved",
    "calibrate": "probabilities are calibrated on the validation images",
    "prune": "prototypes among patches of other classes are removed",
    "prune_units": "units are removed",
    "ignore_silent": "units that no training image shows lose their weights",
    "spread_patches": "prototypes start as training patches far from each other",
    "prune_tree": "leaves that favour no class are cut from the tree",
    "concept_percentiles": "the values of absent and present concepts are set",
    "typical_patches": "prototypes start as training patches that are typical of their class",
    "recurring_patches": "prototypes start as patches that recur in the images of their class",
}


def log_line(action: str, report: Mapping[str, float], epoch: int) -> str:
    """What an action did, with its figures; actions and figures without words of their own keep their names.

    Args:
        action: its name.
        report: its figures by key; accuracies are fractions.
        epoch: in which it ran, from 1.

    Example:
        >>> log_line("spread_patches", {"images": 1200.0, "duplicates": 0.0}, 8)
        'epoch 8: prototypes start as training patches far from each other; from 1,200 images'
        >>> log_line("fit_head", {"penalty": 0.002, "violation": 3.039e-07, "validation_accuracy": 0.9}, 13)
        'epoch 13: the last layer is solved; penalty 0.002, validation accuracy 90 %'
    """
    figures = []
    for key, value in report.items():
        text = FIGURES.get(key, f"{key.replace('_', ' ')} {{}}")
        if text is not None and (value or key not in LEFT_OUT_AT_ZERO):
            number = f"{value:,.0f}" if value % 1 == 0 else f"{value:.3g}"
            figures.append(text.format(f"{100 * value:.4g} %" if "accuracy" in key else number))
    did = DESCRIPTIONS.get(action, f"{action.replace('_', ' ')} is done")
    return f"epoch {epoch}: {'; '.join(filter(None, [did, ', '.join(figures)]))}"


def listed(names: Sequence[object]) -> str:
    """Names in a sentence, at least one.

    Example:
        >>> listed([0, 3, 4]), listed([7])
        ('0, 3 and 4', '7')
    """
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}" if first else last
