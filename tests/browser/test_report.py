"""Reports of tiny models in a browser: no request, no error, accessible, by keyboard alone, also on a narrow screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from protometry.evaluation.pages import Limits, build_comparison, build_report
from tests.evaluation.explained.evaluated import comparison_of, evaluation_files, explained_of
from tests.lightning_modules.registry import tiny_birds

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"
NAMES = ["ProtoPNet", "ProtoTree", "BagNet", "PosthocCBM hybrid", "ProtoPNet and BagNet"]
METRICS = {
    key: {"value": 0.5, "ci95": [0.25, 0.75], "n": 8, "unit": "fraction", "higher_is_better": True}
    for key in ("localisation/energy", "completeness/vlc")
}


def evaluated(name):
    """A model and what its evaluation found; its first class has a hostile name."""
    birds = tiny_birds()
    names = [HOSTILE, *birds.class_names[1:]]
    return explained_of(name, birds, 64, class_names=names), evaluation_files(model=name, metrics=METRICS)


@pytest.fixture(scope="session", params=NAMES)
def report(request, tmp_path_factory):
    """The folder of a report, or of the pages of two models."""
    folder, names = tmp_path_factory.mktemp("report"), request.param.split(" and ")
    if len(names) == 1:
        build_report(*evaluated(*names), folder, Limits(images=2, units=3, classes=2, errors=4))
        return folder
    compared = comparison_of(names, folder, range(8), "localisation/energy", HOSTILE)
    build_comparison([evaluated(name) for name in names], compared, folder, Limits(images=8))
    return folder


def kinds(folder: Path) -> list[str]:
    """One page of every kind."""
    first: dict[str, str] = {}
    for path in sorted(folder.glob("*.html")):
        first.setdefault(path.stem.split("-")[0], path.name)
    return list(first.values())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_pages_are_silent_offline_and_accessible(report, tab, scheme):
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    opened = tab(report, bypass_csp=True, color_scheme=scheme)  # axe runs as a script, which the pages forbid
    for name in kinds(report):
        opened.open(name)
        result = axe.run(opened.page)["violations"]
        assert [(name, rule["id"], rule["nodes"][0]["html"][:200]) for rule in result] == []
    assert opened.problems == []


@pytest.mark.parametrize("width", [1440, 320])
def test_no_page_scrolls_sideways_and_hostile_names_stay_text(report, tab, width):
    opened = tab(report, width)
    for name in kinds(report):
        opened.open(name)
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert "hacked" not in opened.page.title().replace(HOSTILE, "")
        assert opened.page.locator("img[src=x], script").count() == 0
    opened.open("classes.html" if (report / "classes.html").exists() else "images.html")
    assert HOSTILE in opened.page.inner_text("main")
    assert opened.problems == []


def test_without_javascript_and_by_keyboard_alone(report, tab):
    opened = tab(report, java_script_enabled=False)
    page = opened.page
    page.goto((report / "index.html").as_uri())
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skips to the content
    page.wait_for_url("**#main")
    page.goto((report / "index.html").as_uri())
    while page.locator(":focus").count() == 0 or page.locator(":focus").inner_text() != "Images":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/images.html")
    page.locator(".cards a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/image-*.html")
    closed = page.locator("details:not([open]) > summary").first
    closed.focus()
    page.keyboard.press("Enter")
    assert page.locator("details[open]").count() >= 2
    assert opened.problems == []
