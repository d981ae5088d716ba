"""The code of the pages on additions runs as printed."""

import pytest

from tests.pages import ADD_PAGES, run_page


@pytest.mark.parametrize("page", ADD_PAGES)
def test_code_runs_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.setenv("PROTOMETRY_CACHE", str(tmp_path))
    run_page(page)
