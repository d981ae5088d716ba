"""The python code of ``docs/add_a_*.md`` runs as printed, imports included."""

import pytest

from tests.pages import DOCS, run_page


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("add_a*.md")))
def test_code_runs_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.setenv("PROTOMETRY_CACHE", str(tmp_path))
    run_page(page)
