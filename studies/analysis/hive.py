"""The published values of HIVE (Kim et al. 2022) for the results of a study."""

from __future__ import annotations

from reports.published.numbers import Published, published
from studies.study import Arm, Study

# what HIVE showed of a model: the form, and how the name of the explainer begins
METHODS = {
    "Classifier": ("heatmap", "grad_cam"),
    "BagNet": ("heatmap", "upsample"),
    "ProtoPNet": ("units", ""),
    "ProtoTree": ("tree", ""),
}
RANK = ("study/similarity_spearman", "study/similarity_rank_position")  # HIVE's correlation is that over ranks


def key_of(record: Published) -> str:
    """Our key of a published value."""
    if group := record.key_qualifiers.get("class"):
        return f"{record.base_key}_{group}"
    return RANK[1] if record.base_key == RANK[0] else record.base_key


def published_for(study: Study, arm: Arm) -> dict[str, list[Published]]:
    """What HIVE published for the method, task and options of an arm, by our keys; one value per data set."""
    origin = arm.origin.get("model", ""), arm.origin.get("explainer", "")
    form, explainer = METHODS.get(origin[0], ("", ""))
    if arm.form != form or arm.control or not origin[1].startswith(explainer):
        return {}
    options = [option for item in arm.items for option in item.options]
    examples, labels = any(one.examples for one in options), any(one.label for one in options)
    first = arm.rating == "first_disagreement"
    variants = {"agreement": (("_examples", examples), ("_tree", first)), "distinction": (("_labels", labels),)}
    asked = {
        "task": study.task,
        "study": study.task + next((name for name, is_so in variants.get(study.task, ()) if is_so), ""),
        "examples": "yes" if examples else "no",
        "labels": "yes" if labels else "no",
        "rating": "first_disagreement" if first else "per_node",
    }
    found: dict[str, list[Published]] = {}
    for record in published("hive"):
        qualifiers = record.key_qualifiers.items()
        if record.base_model == origin[0] and all(asked.get(name, value) == value for name, value in qualifiers):
            found.setdefault(key_of(record), []).append(record)
    return found
