"""The python code of the pages in ``docs/``, run as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


def run_page(name: str) -> dict[str, Any]:
    """Run the ```python blocks of a page one after the other, and return the names they define."""
    text = (DOCS / name).read_text("utf-8")
    names: dict[str, Any] = {"__name__": Path(name).stem}
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = text.count("\n", 0, block.start(1))
        exec(compile("\n" * lines + block[1], str(DOCS / name), "exec"), names)
    return names
