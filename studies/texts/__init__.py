"""Everything participants read, one file per language."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def texts(language: str) -> dict[str, Any]:
    """All texts of a language, as ``studies/texts/<language>.yaml`` has them; not to be changed."""
    loaded: dict[str, Any] = yaml.safe_load((Path(__file__).parent / f"{language}.yaml").read_text("utf-8"))
    return loaded
