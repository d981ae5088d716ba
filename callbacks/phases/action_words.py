"""What the actions of a schedule did, in words; loggers get the same figures by their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# figures as they are told, {} for the number; None for those that only loggers get
FIGURES: dict[str, str | None] = {
    "moved_mean": "moved by {} on average",
    "moved_max": "by {} at most",
    "unique": "onto {} patches",
    "duplicates": "{} share the patch of another one",
    "without_patch": "{} found no image and stay as they were",
    "displaced": "{} gave the nearest image to a nearer prototype",
    "farther_mean": "whose own patches are {} farther away on average",
    "farther_max": "{} at most",
    "accuracy_before": "validation accuracy {} before",
    "accuracy_after": "{} after",
    "images": "from {} images",
    "units": "{} units in use",
    "kept": "{} units are kept",
    "pruned": "{} are removed",
    "rescued": "{} classes keep their best one alone",
    "ignored": "{} lose their weights",
    "empty_classes": "{} classes have no weight",
    "penalty": "penalty {}",
    "weights_per_class": "{} weights for a class on average",
    **dict.fromkeys(("objective", "violation", "passes", "solved", "evaluations", "swaps", "starts")),
}
OF_A_FEW = {
    "duplicates",
    "without_patch",
    "displaced",
    "farther_mean",
    "farther_max",
    "rescued",
    "ignored",
    "empty_classes",
}  # not told of none
NAMES = {
    "project": "prototypes became their nearest training patches",
    "project_distinct": "prototypes became training patches, each of another image",
    "fit_head": "the last layer is solved",
    "calibrate": "probabilities are calibrated on the validation images",
    "prune": "prototypes among patches of other classes are removed",
    "prune_units": "units are removed",
    "ignore_silent": "units that no training image shows lose their weights",
    "spread_patches": "prototypes start as training patches far from each other",
    "prune_tree": "leaves that favour no class are cut from the tree",
    "concept_percentiles": "what counts as absent and present is set for every concept",
    "typical_patches": "prototypes start as training patches that are typical of their class",
    "recurring_patches": "prototypes start as patches that recur in the images of their class",
}


def told(action: str, report: Mapping[str, float], epoch: int) -> str:
    """A line for the log; what nothing names keeps the name of its key.

    Example:
        >>> told("project", {"moved_mean": 0.88471, "duplicates": 0.0, "accuracy_after": 0.9}, 8)
        'epoch 8: prototypes became their nearest training patches; moved by 0.885 on average, 90 % after'
        >>> told("fit_head", {"penalty": 0.002, "violation": 3.039e-07, "other_figure": 2.0}, 13)
        'epoch 13: the last layer is solved; penalty 0.002, other figure 2'
    """
    figures = []
    for key, value in report.items():
        text = FIGURES.get(key, f"{key.replace('_', ' ')} {{}}")
        if text is not None and (value or key not in OF_A_FEW):
            figures.append(text.format(f"{100 * value:.4g} %" if "accuracy" in key else f"{value:.3g}"))
    did = NAMES.get(action, f"{action.replace('_', ' ')} is done")
    return f"epoch {epoch}: {'; '.join(filter(None, [did, ', '.join(figures)]))}"


def listed(names: Sequence[object]) -> str:
    """Names in a sentence.

    Example:
        >>> listed([0, 3, 4]), listed([7])
        ('0, 3 and 4', '7')
    """
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}" if first else last
