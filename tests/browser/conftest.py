"""Debian's Chromium, driven by Playwright: one browser, a page per test that fails on requests and console errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The browser; without it tests skip, or fail where the environment says that it must be there."""
    required = os.environ.get("PROTOMETRY_BROWSER") == "required"
    if not required:
        pytest.importorskip("playwright", reason="playwright is not installed (pip install playwright)")
        if not CHROMIUM.exists():
            pytest.skip(f"there is no {CHROMIUM} (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


class Tab:
    """A page of the browser that remembers what went wrong.

    Args:
        page: of Playwright.
        root: folder that all requests must stay in.
    """

    def __init__(self, page: Any, root: Path) -> None:
        self.page, self.root = page, root
        self.problems: list[str] = []
        page.on("console", lambda message: self._said(message))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("requestfailed", lambda request: self.problems.append(f"failed: {request.url}"))
        page.on("request", lambda request: self._asked(request.url))

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _asked(self, url: str) -> None:
        if not url.startswith((self.root.as_uri(), "data:")):
            self.problems.append(f"asked for {url}")

    def open(self, name: str) -> None:
        """Show a page of the folder with all its pictures."""
        self.page.goto((self.root / name).as_uri())
        self.page.evaluate("document.querySelectorAll('img').forEach(image => image.loading = 'eager')")
        self.page.evaluate("Promise.all([...document.images].map(image => image.decode()))")  # fails on a broken one


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """Makes a tab for a folder, with JavaScript or without."""
    contexts = []

    def make(root: Path, width: int = 1440, **options: Any) -> Tab:
        contexts.append(chromium.new_context(viewport={"width": width, "height": 900}, offline=True, **options))
        return Tab(contexts[-1].new_page(), root)

    yield make
    for context in contexts:
        context.close()
