"""How many pages a report may have."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Limits:
    """The most pages of each kind; where there are more, the pages say so.

    Raises:
        ValueError: if one is negative.
    """

    images: int = 40
    units: int = 200
    classes: int = 200
    errors: int = 100

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 0:
                raise ValueError(f"Expected argument `{name}` to be at least 0, but got {value}.")
