"""Every block of code in the README and ``docs/`` is run by a test or says why not; here those that take no time.

``tests/integration/test_commands.py`` runs the commands, and the python code that needs a trained model.
"""

import re

import pytest
import yaml

from protometry.sweeps.sweep import SweepFile
from protometry.sweeps.tune import TuningFile
from tests.lightning_modules.registry import KINDS
from tests.pages import BLOCK, PAGES, ROOT, blocks

FILES = {"sweep.yaml": SweepFile, "folds.yaml": SweepFile, "tuning.yaml": TuningFile}
STUDY_FILES = ["birds.yaml", "harder.yaml"]  # in docs/studies.md; test_commands builds the studies


def unread(text: str) -> list[str]:
    """Blocks that no test sees: indented, in an unknown language, or without one."""
    seen = {text.count("\n", 0, block.start("language")) for block in BLOCK.finditer(text)}
    fences = [n for n, line in enumerate(text.splitlines()) if re.match(r"[ >]*(```|~~~)", line)]
    return [f"line {n + 1}: {text.splitlines()[n]}" for n in fences[::2] if n not in seen]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_is_seen(page):
    assert unread(page.read_text("utf-8")) == []


def test_what_no_test_would_run_is_found():
    assert unread("```bash\na\n```\n```sh\nb\n```\n") == ["line 4: ```sh"]
    assert unread("- a\n  ```bash\n  b\n  ```\n~~~\nc\n~~~\n") == ["line 2:   ```bash", "line 5: ~~~"]
    hidden = "<!-- not run: a -->\n\n```bash\nb\n```\n<!-- c -->\n```bash\nd\n```\n"
    assert [block["why"] for block in BLOCK.finditer(hidden)] == [None, None]


def test_yaml_files_are_read():
    """The name in the first line says what a file is; the pages print no other kind."""
    names = []
    for block in (block for page in PAGES for block in blocks(page, "yaml")):
        names.append(re.match(r"# (\S+\.yaml)", block["text"])[1])
        if names[-1] in FILES:
            FILES[names[-1]].model_validate(yaml.safe_load(block["text"]))
    assert sorted(names) == sorted([*FILES, *STUDY_FILES])


@pytest.mark.parametrize("model", KINDS, ids=lambda model: model.__name__)
def test_table_of_models_says_what_is_on_their_cards(model):
    card, page = model.card, ROOT / "docs/models/README.md"
    paper = f"[{card.paper}]({card.url})" if card.paper else "–"
    row = f"| [{model.__name__}]({card.page}) | {paper} | {card.units} | {card.decision} | "
    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith(row)]
    assert len(rows) == 1, f"expected {page} to have a row `{row}…`"
    for path in (ROOT / "configs/model").glob("*.yaml"):
        assert f"class_path: {model.__name__}\n" not in path.read_text("utf-8") or f"/{path.name})" in rows[0]
