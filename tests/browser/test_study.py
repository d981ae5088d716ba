"""Studies of every task and form in a browser, by keyboard alone from the first page to the last."""

from __future__ import annotations

import re
import threading
import time
from contextlib import contextmanager

import pytest

from protometry.run_folder.command_line.serving import listening, server_of
from protometry.studies.flow import expected
from protometry.studies.participants import read_database
from protometry.studies.server.app import make_app
from protometry.studies.store import open_store
from tests.studies.toy import make_bundle

pytestmark = pytest.mark.browser

FORMS = ["heatmap", "units", "tree", "none"]
TYPE, NAME, VALUE = (f"document.activeElement.{name}" for name in ("type", "name", "value"))
LOOKED_AT = set()  # pages that axe has seen


@contextmanager
def served(folder, task, form, **options):
    """A study at an address of its own."""
    places = {"right": 1, "wrong": 1}
    bundle = make_bundle(folder / "study", task, form, size=32, assignment=places, **options)
    with open_store(folder / "answers.sqlite", bundle) as store, listening("127.0.0.1", 0) as listener:
        server = server_of(make_app(bundle, store, ["127.0.0.1"]), 500)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield bundle, f"http://127.0.0.1:{listener.getsockname()[1]}/"
        finally:
            server.should_exit = True
            thread.join()


def walk(page, bundle, look):
    """Answer page by page with Tab, Space, arrows, Enter and digits.

    Args:
        page: of the browser, at the beginning.
        bundle: that is served.
        look: called with the name of every page.
    """
    look("landing")
    while not (page.locator(":focus").count() and page.locator(":focus").inner_text() == "Start"):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/p")
    while not page.url.endswith("/done"):
        title = page.title().split(" – ")[0]
        name = re.sub(r" \d+ of \d+", "", title)
        look(name)
        assert answer(page, bundle), (name, page.inner_text("main")[:300])
    look("done")


def answer(page, bundle):
    """Tab through a page, answer what is not answered, and press its button."""
    step, answered = page.locator("#answers input[name=step]").input_value(), set()
    for _ in range(400):
        page.keyboard.press("Tab")
        kind, name = page.evaluate(f"[{TYPE}, {NAME}]")
        if page.evaluate("document.activeElement.matches('a.next')"):
            page.keyboard.press("Enter")  # the next class, which is hidden until then
        if kind == "submit":
            with page.expect_navigation():
                page.keyboard.press("Enter")
            return (
                page.url.endswith("/done")
                or page.locator("#answers input[name=step]").input_value(timeout=5000) != step
            )
        if kind == "radio" and name not in answered:
            page.keyboard.press("Space")
            wanted = expected(bundle.study, name.split(".")[0]) if name.startswith("quiz") else {}
            for _ in range(int(wanted.get(name, 0))):
                page.keyboard.press("ArrowDown")
        elif kind in ("text", "textarea") and name not in answered:
            page.keyboard.type("90")
        answered.add(name)
    raise AssertionError(f"no button on {page.url}, step {step}")


class Watcher:
    """Holds every page against what may not be there."""

    def __init__(self, page, bundle, address):
        self.page, self.bundle, self.problems = page, bundle, []
        self.secrets = {f"{score:.4f}"[:6] for key in bundle.key.items.values() for score in key.scores.values()}
        page.on("request", lambda request: request.url.startswith(address) or self.problems.append(request.url))
        page.on("console", lambda message: message.type in ("error", "warning") and self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))

    def look(self, name):
        """The source says nothing of the key, and nothing is wider than the window."""
        source = self.page.content()
        assert not [secret for secret in self.secrets if secret in source]
        assert not re.search(r"image\d|\bi\d\b|key\.json", source), name
        if self.page.locator("#answers").count():
            assert self.page.evaluate("document.documentElement.scrollWidth") <= self.page.viewport_size["width"], name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("task", "width"), [("agreement", 320), ("distinction", 1280)])
def test_a_study_is_finished_by_keyboard_and_accessible(chromium, tmp_path, task, form, width):
    axe = pytest.importorskip("axe_core_python.sync_playwright").Axe()
    context = chromium.new_context(viewport={"width": width, "height": 900}, bypass_csp=True)  # axe runs as a script
    with served(tmp_path, task, form) as (bundle, address):
        page = context.new_page()
        watcher = Watcher(page, bundle, address)

        def look(name):
            watcher.look(name)
            kind = (name, task, form) if name in ("Photo", "Two examples") else name
            if kind not in LOOKED_AT:
                actual = axe.run(page)["violations"]
                assert [(name, rule["id"], rule["nodes"][0]["html"][:200]) for rule in actual] == []
            LOOKED_AT.add(kind)

        page.goto(address)
        walk(page, bundle, look)
        assert watcher.problems == []
        context.close()
    _, (person,), visits = read_database(tmp_path / "answers.sqlite")
    assert person.status == "completed"
    assert all(visit.client["javascript"] for visit in visits)


@pytest.mark.parametrize("javascript", [True, False])
def test_one_class_at_a_time_is_shown_and_kept_over_an_error_and_a_reload(chromium, tmp_path, javascript):
    context = chromium.new_context(viewport={"width": 390, "height": 844}, java_script_enabled=javascript)
    with served(tmp_path, "distinction", "units") as (bundle, address):
        page = context.new_page()
        page.goto(address)
        page.get_by_role("button", name="Start").click()
        while not page.title().startswith("Photo 1"):
            assert answer(page, bundle)

        def shown():
            headings = page.locator(".option > h2")
            return [one.inner_text() for one in headings.all() if one.is_visible()]

        assert shown() == ["Class A"]
        for one in page.locator(".option input[type=radio], input[name=confidence]").all():
            one.evaluate("one => { one.checked = true }")
        missing = page.locator(".option").nth(1).locator("fieldset").nth(2)
        missing.evaluate("row => row.querySelectorAll('input').forEach(one => { one.checked = false })")
        page.get_by_role("button", name="Continue").click()
        page.get_by_role("link", name="Class B, row 3: How alike").click()
        assert shown() == ["Class B"]
        place, photo = missing.bounding_box(), page.locator(".photo").bounding_box()
        assert photo["y"] <= 1 < photo["y"] + photo["height"] < place["y"] < 844  # nothing is hidden by the photo
        missing.locator("input").first.check()
        page.reload()
        assert shown() == ["Class B"]
        assert missing.locator("input").first.is_checked() == javascript
        context.close()


@pytest.mark.parametrize(
    ("form", "arm"),
    [("units", {"similarity": "pairwise", "clarity": True}), ("tree", {"rating": "first_disagreement"})],
)
def test_a_study_is_finished_without_javascript_on_a_narrow_screen(chromium, tmp_path, form, arm):
    context = chromium.new_context(viewport={"width": 320, "height": 700}, java_script_enabled=False)
    with served(tmp_path, "agreement", form, arm=arm) as (bundle, address):
        page = context.new_page()
        watcher = Watcher(page, bundle, address)
        page.goto(address)
        walk(page, bundle, watcher.look)
        assert watcher.problems == []
        context.close()
    _, (person,), visits = read_database(tmp_path / "answers.sqlite")
    assert person.status == "completed"
    assert not any(visit.client["javascript"] for visit in visits)


def test_a_page_without_its_pictures_is_not_sent_by_mistake(chromium, tmp_path):
    """The first Enter stays on the page and leads to the tick, which lets the second one pass."""
    context = chromium.new_context()
    with served(tmp_path, "agreement", "heatmap") as (bundle, address):
        page = context.new_page()
        page.goto(address + "join")
        page.get_by_role("button", name="Start").click()
        while not page.title().startswith("Photo 1"):
            assert answer(page, bundle)
        page.route("**/media/**", lambda route: route.abort())
        page.evaluate("document.querySelectorAll('img').forEach(one => { one.src = one.src + '?again'; })")
        while not page.evaluate("Array.from(document.images).every(one => one.complete && !one.naturalWidth)"):
            page.wait_for_timeout(20)
        page.locator("input[name=confidence]").first.check()
        page.get_by_role("button", name="Continue").click()
        assert page.title().startswith("Photo 1")
        assert page.evaluate(NAME) == "pictures_missing"
        page.keyboard.press("Space")
        with page.expect_navigation():
            page.get_by_role("button", name="Continue").click()
        assert page.title().startswith("Photo 2")
        context.close()
    _, _, visits = read_database(tmp_path / "answers.sqlite")
    assert [visit.client["pictures_missing"] for visit in visits if visit.item] == [True]
