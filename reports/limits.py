"""How many pages a report may have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """The most pages of each kind; where there are more, the pages say so.

    Args:
        images: explained.
        units: with a page.
        classes: with a page.
        errors: shown on the page of errors.
    """

    images: int = 40
    units: int = 200
    classes: int = 200
    errors: int = 100
