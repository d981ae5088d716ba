"""What a message advises is worded once."""

import re

from tests.pages import ROOT
from tests.test_architecture import MAY_IMPORT


def test_a_missing_extra_is_worded_once():
    """Right for a checkout and for an installed wheel; a path or ``-e .`` would be right for one of them only."""
    texts = {path.name: path.read_text("utf-8") for name in MAY_IMPORT for path in (ROOT / name).rglob("*.py")}
    assert [name for name, text in texts.items() if "pip install" in text] == ["messages.py"]
    setup = (ROOT / "setup.cfg").read_text("utf-8")
    named = {extra for text in texts.values() for extra in re.findall(r"requires\(\W(\w+)\W, ", text)}
    assert "timm" in named
    assert [extra for extra in named if f"\n{extra} =\n" not in setup] == []
