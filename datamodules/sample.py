"""The sample contract: the one table of sample fields, capability flags and class-level tables.

A sample is a dictionary, a batch the same dictionary stacked. Within one split every sample has the same keys. Images
are RGB float in [0, 1]: normalisation is the first layer of the model.
"""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass, field, fields
from typing import Annotated, NamedTuple, NotRequired, TypedDict, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from protometry.datamodules.arguments import check_choice


class Field(NamedTuple):
    """What a tensor of a sample looks like.

    Args:
        shape: its shape without the batch axis: numbers, or the letters H, W (image), K (logits), N (parts) and L
            (concepts).
        flags: capability flags, any one of them announces the field; none for fields that every sample has.
    """

    dtype: torch.dtype
    shape: tuple[int | str, ...] = ()
    flags: tuple[str, ...] = ()


class _Tensors(TypedDict):
    """The tensors of a sample.

    Points are (x, y) pixels, boxes (x0, y0, x1, y1) inclusive pixels, both after the transform; points that are not
    visible hold (0, 0). Certainties are 0 unknown, 1 not visible, 2 guessing, 3 probably and 4 definitely; a concept or
    a label of certainty 0 may hold either value, which nothing reads. Without certainties, all are known.
    """

    image: Annotated[Tensor, Field(torch.float32, (3, "H", "W"))]  # RGB in [0, 1]
    label: Annotated[Tensor, Field(torch.int64)]
    sample_key: Annotated[Tensor, Field(torch.int64)]  # see :func:`sample_key`
    labels: NotRequired[Annotated[Tensor, Field(torch.bool, ("K",), ("multi_label",))]]
    label_certainty: NotRequired[Annotated[Tensor, Field(torch.uint8, ("K",), ("label_certainty",))]]
    class_targets: NotRequired[Annotated[Tensor, Field(torch.float32, ("K",), ("soft_targets",))]]  # sums to 1
    object_mask: NotRequired[Annotated[Tensor, Field(torch.bool, ("H", "W"), ("object_mask",))]]
    part_points: NotRequired[Annotated[Tensor, Field(torch.float32, ("N", 2), ("part_points",))]]
    part_visible: NotRequired[Annotated[Tensor, Field(torch.bool, ("N",), ("part_points",))]]
    label_map: NotRequired[Annotated[Tensor, Field(torch.uint8, ("H", "W"), ("label_map",))]]
    concepts: NotRequired[Annotated[Tensor, Field(torch.bool, ("L",), ("concepts_class", "concepts_image"))]]
    concept_certainty: NotRequired[Annotated[Tensor, Field(torch.uint8, ("L",), ("concept_certainty",))]]
    bounding_box: NotRequired[Annotated[Tensor, Field(torch.float32, (4,), ("bounding_box",))]]
    context: NotRequired[Annotated[Tensor, Field(torch.int64, (), ("context",))]]
    second_view: NotRequired[Annotated[Tensor, Field(torch.float32, (3, "H", "W"))]]  # if loaders are configured for it


class Sample(_Tensors):
    """One sample."""

    sample_id: str


class Batch(_Tensors):
    """Stacked samples."""

    sample_id: list[str]


FIELDS: dict[str, Field] = {
    name: (get_args(hint)[0] if get_origin(hint) is NotRequired else hint).__metadata__[0]
    for name, hint in get_type_hints(_Tensors, include_extras=True).items()
}


def nfc(name: str) -> str:
    """A name of a class, file or cell with composed letters, Unicode's form NFC.

    Whatever is compared or kept is in this form: macOS may write é as two code points, and so do archives made there.

    Example:
        >>> nfc("cafe\u0301") == "caf\u00e9"
        True
    """
    return unicodedata.normalize("NFC", name)


def sample_key(sample_id: str) -> int:
    """First 8 bytes of SHA-256 of the UTF-8 id, sign bit cleared; it seeds all noise of a sample.

    Example:
        >>> sample_key("1")
        7748076420210162913
    """
    return int.from_bytes(hashlib.sha256(sample_id.encode()).digest()[:8], "big") & (2**63 - 1)


@dataclass(frozen=True)
class Capabilities:
    """Which optional fields one split has: True, or the reason why not.

    Example:
        >>> flags = Capabilities(part_points=True, object_mask="no segmentations/ under root")
        >>> flags.missing("part_points"), flags.missing("object_mask")
        (None, 'no segmentations/ under root')
    """

    multi_label: bool | str = "one label per image"
    label_certainty: bool | str = "all labels are known"
    soft_targets: bool | str = "no removed parts"
    object_mask: bool | str = "no segmentations"
    part_points: bool | str = "no part annotations"
    label_map: bool | str = "no part maps"
    concepts_class: bool | str = "no class concepts"
    concepts_image: bool | str = "no image concepts"
    concept_certainty: bool | str = "no concept certainties"
    bounding_box: bool | str = "no bounding boxes"
    context: bool | str = "no background contexts"
    interventions: bool | str = "no interventions"
    class_attributes: bool | str = "no class attributes"

    def missing(self, flag: str) -> str | None:
        """None if the split has ``flag``, else the reason.

        Raises:
            ValueError: if there is no such flag.
        """
        check_choice("flag", flag, [f.name for f in fields(self)])
        value = getattr(self, flag)
        if value is True:
            return None
        return str(value or "not available")


@dataclass(frozen=True)
class ClassTables:
    """What a data set says of its parts, its concepts and its S source classes; None or empty without annotations.

    The source classes are the K classes, or what they were before attributes became the labels.

    Args:
        part_names: names of the N points in ``part_points``, or of the parts of a label map.
        part_group_names: names of the G groups in which left and right are one part.
        part_to_group: ``(N,)`` int64 index into ``part_group_names``.
        label_map_codes: part -> its codes in ``label_map``; 32 + i is background object i, 255 a blend of colours.
        concept_to_part: ``(L,)`` int64 index into ``part_group_names``, -1 for a concept of no single part.
        class_concepts: ``(S, L)`` float in 0..1, strength of the concept, NaN where unknown.
        class_concepts_binary: ``(S, L)`` bool, False where unknown.
        class_attributes: ``(S, A)`` float in 0..1, all attributes that are known of every class, before L concepts were
            selected.
        context_names: names of the background contexts that ``context`` counts.
    """

    part_names: list[str] = field(default_factory=list)
    part_group_names: list[str] = field(default_factory=list)
    part_to_group: Tensor | None = None
    label_map_codes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    concept_names: list[str] = field(default_factory=list)
    concept_to_part: Tensor | None = None
    class_concepts: Tensor | None = None
    class_concepts_binary: Tensor | None = None
    concept_source: str | None = None
    class_attributes: Tensor | None = None
    attribute_names: list[str] = field(default_factory=list)
    context_names: list[str] = field(default_factory=list)

    @property
    def class_truth(self) -> Tensor | None:
        """``(S, L)`` bool, ``class_concepts_binary``, or float with NaN where a concept of a class is unknown."""
        binary, strength = self.class_concepts_binary, self.class_concepts
        if binary is None or strength is None or not strength.isnan().any():
            return binary
        return binary.float().masked_fill(strength.isnan().to(binary.device), torch.nan)

    @property
    def concept_to_group(self) -> Tensor:
        """``(L,)`` int64, the question each concept answers: the part of its name before ``::``, or the whole name.

        Example:
            >>> ClassTables(concept_names=["tail::long", "tail::red", "furry", "wing::red"]).concept_to_group.tolist()
            [0, 0, 1, 2]
        """
        questions = [name.split("::")[0] for name in self.concept_names]
        number = {question: index for index, question in enumerate(dict.fromkeys(questions))}
        return torch.tensor([number[question] for question in questions], dtype=torch.int64)
