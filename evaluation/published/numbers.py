"""Numbers from papers, with what is known about how they were obtained, so that a table can print them next to ours.

They lie in ``published.json``, one record per line. A published number with a defect code of ``defects.json`` is there
for orientation, never as a target.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from protometry.run_folder.command_line.messages import did_you_mean

_FOLDER = files("protometry.evaluation.published")
DEFECTS: dict[str, str] = json.loads((_FOLDER / "defects.json").read_text(encoding="utf-8"))  # code -> what it means
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
    text = (_FOLDER / "published.json").read_text(encoding="utf-8")
    return tuple(Published(**record) for record in json.loads(text))


def _qualifiers(name: str) -> dict[str, str]:
    inside = name.partition("[")[2].removesuffix("]")
    return dict(item.split("=", 1) for item in inside.split(",")) if inside else {}
