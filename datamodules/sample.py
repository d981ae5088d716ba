"""The sample contract: what every data set yields, and which optional fields it really has.

A sample is a ``TypedDict``; a batch is the same dict stacked. Within one split every sample has the same keys.
Images are RGB float in [0, 1]: normalisation is the first layer of the model.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields
from typing import NotRequired, TypedDict

from torch import Tensor


class Sample(TypedDict):
    """One sample; shapes without the batch axis, see each field.

    Points are (x, y) pixels, boxes (x0, y0, x1, y1) inclusive pixels, both after the transform.
    """

    image: Tensor  # float32 [3,H,W] in 0..1, RGB
    label: Tensor  # int64 []
    sample_id: str
    sample_key: Tensor  # int64 []
    labels: NotRequired[Tensor]  # bool [K], multi-hot
    class_targets: NotRequired[Tensor]  # float32 [K], sums to 1
    object_mask: NotRequired[Tensor]  # bool [H,W]
    part_points: NotRequired[Tensor]  # float32 [N,2]
    part_visible: NotRequired[Tensor]  # bool [N]
    label_map: NotRequired[Tensor]  # uint8 [H,W]
    concepts: NotRequired[Tensor]  # bool [L]
    concept_certainty: NotRequired[Tensor]  # uint8 [L]
    bounding_box: NotRequired[Tensor]  # float32 [4]
    context: NotRequired[Tensor]  # int64 []
    second_view: NotRequired[Tensor]  # float32 [3,H,W]


class Batch(TypedDict):
    """A stacked :class:`Sample`; ``sample_id`` becomes a list of B strings."""

    image: Tensor
    label: Tensor
    sample_id: list[str]
    sample_key: Tensor
    labels: NotRequired[Tensor]
    class_targets: NotRequired[Tensor]
    object_mask: NotRequired[Tensor]
    part_points: NotRequired[Tensor]
    part_visible: NotRequired[Tensor]
    label_map: NotRequired[Tensor]
    concepts: NotRequired[Tensor]
    concept_certainty: NotRequired[Tensor]
    bounding_box: NotRequired[Tensor]
    context: NotRequired[Tensor]
    second_view: NotRequired[Tensor]


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
        if flag not in {f.name for f in fields(self)}:
            raise ValueError(
                f"Expected argument `flag` to be one of {[f.name for f in fields(self)]}, but got {flag!r}."
            )
        value = getattr(self, flag)
        return None if value is True else str(value) if value else "not available"
