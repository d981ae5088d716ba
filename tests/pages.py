"""The code of the README and of the pages in ``docs/``, as it is printed.

A block that is not run says why in a comment above it: ``<!-- not run: it needs 32 GPUs -->``. Output is ``text``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("**/*.md"))]
ADD_PAGES = sorted(path.name for path in DOCS.glob("add_a*.md"))  # whose code needs no trained model
BLOCK = re.compile(
    r"(?P<why><!-- not run: (?:(?!-->).)+? -->\n)?^```(?P<language>bash|python|yaml|text)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


def blocks(page: Path, language: str) -> Iterator[re.Match[str]]:
    """The blocks of a page in a language that are to be run."""
    for block in BLOCK.finditer(page.read_text("utf-8")):
        if block["language"] == language and not block["why"]:
            yield block


def run_page(name: str | Path) -> dict[str, Any]:
    """Run the python blocks of a page one after the other; return the names they define.

    Those of :data:`ADD_PAGES` run each by itself; one that begins with the name of its file can be imported by others.
    """
    names: dict[str, Any] = {"__name__": Path(name).stem}
    for block in blocks(DOCS / name, "python"):
        lines = block.string.count("\n", 0, block.start("text"))
        file = re.match(r"# (\w+)\.py\n", block["text"])
        module = ModuleType(file[1] if file else Path(name).stem)
        own = vars(module) if Path(name).name in ADD_PAGES else names
        if file:
            sys.modules[file[1]] = module
        exec(compile("\n" * lines + block["text"], str(DOCS / name), "exec"), own)
        names |= own
    return names
