"""Simulated people in a browser without JavaScript, who send only what a page offers."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from secrets import token_hex

from httpx import ASGITransport, AsyncClient

from protometry.studies.participants import SIMULATED, steps_of
from protometry.studies.server.app import make_app
from protometry.studies.server.pages import fields_of
from protometry.studies.server.platforms import query
from protometry.studies.store import open_store

AT_ONCE = 50  # people


@dataclass
class PageForm:
    """The form that answers a page.

    Attributes:
        hidden: names and values of its hidden fields.
        offered: allowed values of every field, None for free text.
        pictures: addresses of the pictures on the page.
    """

    hidden: dict[str, str] = field(default_factory=dict)
    offered: dict[str, set[str] | None] = field(default_factory=dict)
    pictures: list[str] = field(default_factory=list)

    def filled(self, answers: Mapping[str, str]) -> dict[str, str]:
        """The fields that are sent with some answers.

        Raises:
            ValueError: if the page does not offer an answer.
        """
        for name, value in answers.items():
            allowed = self.offered.get(name, set())
            if allowed is not None and value not in allowed:
                raise ValueError(f"The page does not offer {value!r} for {name!r}: it has {sorted(self.offered)}.")
        texts = {name: "" for name, allowed in self.offered.items() if allowed is None}
        return {**self.hidden, **texts, **answers}


def read_page(html: str) -> PageForm:
    """The form with the id ``answers`` of a page; empty if there is none."""
    reader = _Reader()
    reader.feed(html)
    return reader.form


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.form = PageForm()
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._inside = values.get("id") == "answers"
        elif tag == "img":
            self.form.pictures.append(values["src"])
        elif self._inside and tag == "textarea":
            self.form.offered[values["name"]] = None
        elif self._inside and tag == "input":
            name, value = values["name"], values.get("value", "on")
            if values["type"] == "hidden":
                self.form.hidden[name] = value
            elif values["type"] == "text":
                self.form.offered[name] = None
            else:
                known = self.form.offered.setdefault(name, set())
                assert known is not None
                known.add(value)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False


def visit(bundle, database, observer, number):
    """What :func:`.simulate` does, through the pages of the web application."""

    async def all_of_them(store):
        transport, slots = ASGITransport(make_app(bundle, store, ["study.invalid"])), asyncio.Semaphore(AT_ONCE)

        async def one():
            async with slots, AsyncClient(transport=transport, base_url="https://study.invalid") as browser:
                return await take_part(browser, store, observer)

        return sum(await asyncio.gather(*(one() for _ in range(number))))

    with open_store(database, bundle) as store:
        return asyncio.run(all_of_them(store))


async def take_part(browser, store, observer):
    """Take part once, if there is a place."""
    study, key = store.bundle.study, store.bundle.key
    link, agent = query(study.platform, token_hex(8)), {"User-Agent": f"{SIMULATED}{observer.policy}"}
    headers = {**agent, "Content-Type": "application/x-www-form-urlencoded"}
    page = await browser.post("/join", params=link, headers=headers, follow_redirects=True)
    who = store.find(browser.cookies.get(store.cookie) or "")
    if who is None:
        return False
    way = steps_of(study, who)
    while page.url.path == "/p":
        form = read_page(page.text)
        index = int(form.hidden["step"])
        if index == observer.leave_at:
            return True
        step = way[index]
        answers = observer.respond(study, step, key.items[step.item.id] if step.item else None, who.seed)
        fields = form.filled(fields_of(answers)) | {"javascript": "1", "focus_losses": "0"}
        page = await browser.post("/p", data=fields, follow_redirects=True)
        assert page.status_code == 200, step.page
    return True
