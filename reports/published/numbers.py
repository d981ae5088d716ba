"""Numbers from papers, with what is known about how they were obtained, so that a table can print them next to ours.

They lie in ``published.json``, one record per line. A published number with a defect code is there for orientation,
never as a target.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from protometry.command_line.messages import did_you_mean

DEFECTS: dict[str, str] = {
    "Q1": "accuracy, top-3 and F1 weigh images by inverse class frequency; AwA2: exact match of 49 labels, F1 averaged "
    "over images, decision threshold fitted per validation batch",
    "Q2": "VLC, VAC and completeness PALC take percentile and range of the perturbed maps over a whole batch, so they "
    "are far from 0 even without noise; the boxes' overlap is not clamped either",
    "Q3": "completeness noise is 0.05 in normalised units (about 0.011 of [0, 1]), neither clamped nor seeded",
    "Q4": "entropy is clamped to 1 although it reaches 3.32 bits: values near 1 are saturated and cannot be ordered",
    "Q5": "PAC and CAC sort both vectors first; CAC reads raw logits, which means nothing for heads with signs",
    "Q6": "ProtoPool's global size counts every raw assignment logit above 1e-6, which is always the whole pool",
    "Q7": "APD and AFD are per image (intra) or over rank-aligned pairs, absent classes as 0 (inter), not over sets",
    "Q8": "continuity noise is variance 5 on 0..255, then blurred, not the 5 % of the text; no seed",
    "Q9": "a mean of batch means, in which the short last batch counts too much",
    "Q10": "ProtoPNet's projection keeps the last batch's patch only; ProtoPool is not projected, draws noise at "
    "evaluation and selects by plain maximum",
    "Q11": "a standard deviation of exactly 0: most likely one model",
    "Q12": "background overlap of an empty map counts as perfect; consistency ignores how often a part is visible",
    "Q13": "trained with cluster and separation terms that take margin-loss targets for masks (AwA2)",
    "C1": "ranking concepts by prevalence alone does as well or better: look at the lift over prevalence",
    "C2": "barely above chance, which is higher where either of two sides of a part counts",
    "C3": "the reference code evaluates on a class-balanced resample with a crop the backbone was not trained on",
    "C4": "not monotone in the regularisation: the head had not converged; only the shape can be compared",
    "C5": "the cosine is not centred, so its sign follows the mean of the concept values",
    "C6": "read from a damaged transcription of the table; a digit may be wrong",
    "C7": "ranked by the magnitude of θu by its section 3.3, as our keys with _abs",
    "F1": "the target class was overwritten, so importances belong to one foreign class (since fixed upstream)",
    "F2": "3-channel boxes against a 1-channel mask: the threshold is a third of the nominal one, which raises CSDC, "
    "PC and DC",
    "F3": "distractibility has half the weight in completeness",
    "F4": "one threshold for all four protocols, chosen on the evaluated images",
    "F5": "their own models, not the benchmark's; the deviation is over prototype depths, not seeds",
    "F6": "the set holds 500 test images, not the 5,000 of the text",
    "H1": "column order inferred from a damaged header",
    "H2": "cannot be derived again: the released page stores no answers per item",
    "H3": "the p value fits 10 rank positions only; negative means agreement with the model",
    "H4": "not the mean of the cells of Table 1: scored differently",
    "H5": "sliders run from the model's accuracy to 100, so the demand follows the headroom",
    "H6": "'not different from chance' had little power: no evidence of chance",
    "M1": "the checkpoint was selected on the test set",
    "M2": "crop and full image, ImageNet and iNaturalist backbones are different tasks",
    "M3": "an epoch is 30 passes over images augmented beforehand",
}
_CODE = re.compile(r"\b(?:" + "|".join(DEFECTS) + r")\b")


@dataclass(frozen=True)
class Published:
    """One published number.

    Args:
        table: of the paper that has it.
        dataset: name of the data module's file.
        model: class name of the model, then qualifiers in brackets.
        metric_key: result key, then qualifiers in brackets.
        value: a fraction where the paper prints percent, else as printed.
        std: the paper's own deviation, or None.
        n_runs: folds, seeds or participants, or None where not stated.
        note: defect codes and remarks.
        verified: whether it was read in the paper, its supplement or the authors' repository.

    Example:
        >>> record = Published(
        ...     "quanproto", "Table 2", "cub200", "ProtoPNet[input=crop]", "general/f1[weighting=class_balanced]",
        ...     0.7039, 0.0123, 4, "Q1 Q9; as printed", True,
        ... )
        >>> record.base_model, record.base_key, record.qualifiers
        ('ProtoPNet', 'general/f1', {'input': 'crop', 'weighting': 'class_balanced'})
        >>> record.codes, record.remark
        (['Q1', 'Q9'], 'as printed')
    """

    paper: str
    table: str
    dataset: str
    model: str
    metric_key: str
    value: float
    std: float | None
    n_runs: int | None
    note: str
    verified: bool

    @property
    def base_model(self) -> str:
        """The class name."""
        return self.model.split("[")[0]

    @property
    def base_key(self) -> str:
        """The result key."""
        return self.metric_key.split("[")[0]

    @property
    def qualifiers(self) -> dict[str, str]:
        """The content of the brackets of model and key, by name."""
        return _qualifiers(self.model) | self.key_qualifiers

    @property
    def key_qualifiers(self) -> dict[str, str]:
        """The content of the brackets of the key, by name."""
        return _qualifiers(self.metric_key)

    @property
    def codes(self) -> list[str]:
        """The defect codes of the note, in the order of :data:`DEFECTS`."""
        mentioned = _CODE.findall(self.note)
        return [code for code in DEFECTS if code in mentioned]

    @property
    def remark(self) -> str:
        """The note without its codes."""
        return " ".join(_CODE.sub("", self.note).split()).strip(" ;,")


def published(paper: str) -> list[Published]:
    """All numbers of one paper, in the order of the file.

    Args:
        paper: short name, such as ``"quanproto"``; ``"funnybirds"`` also stands for ``"funnybirds_revisited"``.

    Returns:
        At least one record.

    Raises:
        ValueError: if there is no such paper, listing the known ones.

    Example:
        >>> len(published("quanproto")), published("quanproto")[0].value
        (357, 0.7018)
    """
    records = [r for r in all_records() if paper in (r.paper, r.paper.removesuffix("_revisited"))]
    if not records:
        known = sorted({record.paper for record in all_records()})
        raise ValueError(
            f"Expected argument `published` to be one of {known}, but got {paper!r}.{did_you_mean(paper, known)}"
        )
    return records


@cache
def all_records() -> tuple[Published, ...]:
    """All numbers of all papers, in the order of the file."""
    text = (files("protometry.reports.published") / "published.json").read_text(encoding="utf-8")
    return tuple(Published(**record) for record in json.loads(text))


def _qualifiers(name: str) -> dict[str, str]:
    inside = name.partition("[")[2].removesuffix("]")
    return dict(item.split("=", 1) for item in inside.split(",")) if inside else {}
