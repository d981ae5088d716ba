"""The interfaces from explanations of classes to parts, which the metrics of FunnyBirds read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from protometry.explanations import BoxMaps, Explainer, SummedMaps
from protometry.explanations.summed_maps import BoxVariant
from protometry.metrics.suite import ENTRIES

Interface = Literal["ssm", "bb", "bb_reference", "bb_corrected", "attribution"]
_BOXES: dict[str, BoxVariant] = {"bb": "fixed", "bb_reference": "reference", "bb_corrected": "corrected"}


def part_explainer(interface: Interface, explainer: Explainer) -> Explainer:
    """The explainer of classes that the part metrics read."""
    if interface == "attribution":
        return explainer
    return BoxMaps(_BOXES[interface]) if interface in _BOXES else SummedMaps()


def refuse_interface(interface: Interface | None, asked: Explainer | None, of_parts: bool) -> None:
    """Refuse an interface that no metric reads or that does not fit the explainer."""
    if interface not in (None, *get_args(Interface)):
        raise ValueError(f"Expected argument `interface` to be one of {get_args(Interface)}, but got {interface!r}.")
    if interface is not None and not of_parts:
        raise ValueError("Expected argument `interface` with metrics that read it: add `funnybirds` to the suite.")
    if interface != "attribution":
        return
    if asked is None or isinstance(asked, BoxMaps):
        raise ValueError(
            "Expected argument `explainer` to name an explainer of classes for the interface 'attribution', but got "
            f"{'none, such as GradCAM' if asked is None else 'boxes, which are the interface bb'}."
        )
    if "class" not in asked.explains:
        raise ValueError(
            f"Expected argument `explainer` to explain classes for the interface 'attribution', but {asked.key!r} "
            f"explains {sorted(asked.explains)}."
        )


def reads_parts(keys: Iterable[str]) -> bool:
    """Whether some metric reads explanations by part, through the interface."""
    return any(ENTRIES[key].view == "part_removal" for key in keys)
