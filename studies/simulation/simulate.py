"""Simulated participants take part in a study: through its web application, or straight into its database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from secrets import token_hex

from httpx import ASGITransport, AsyncClient

from protometry.studies.bundle import load_bundle
from protometry.studies.participants import SIMULATED, Participant, steps_of
from protometry.studies.server.app import make_app
from protometry.studies.server.pages import fields_of
from protometry.studies.server.platforms import query
from protometry.studies.simulation.browser import read_page
from protometry.studies.simulation.observer import Observer
from protometry.studies.store import Store, open_store

AT_ONCE = 50  # participants
HOST = "study.invalid"
GUESSER = Observer()


def simulate(folder: Path, database: Path, observer: Observer, number: int, fast: bool = False) -> int:
    """Let simulated participants answer a whole study.

    Takes the arguments of :func:`command`; fast or not, the answers are the same, except for times.

    Returns:
        How many took part: fewer where places run out.

    Raises:
        ValueError: if the number is below 1, the bundle is broken, or the database is of another study or being served.
        RuntimeError: if a page cannot be answered.
    """
    if number < 1:
        raise ValueError(f"Expected argument `number` to be at least 1, but got {number}.")
    with open_store(database, load_bundle(folder)) as store:
        if not fast:
            return asyncio.run(_visit(store, observer, number))
        for done in range(number):
            person = None if store.bundle.study.platform.kind == "local" else token_hex(8)
            who = store.join(person, agent=f"{SIMULATED}{observer.policy}")
            if who is None:
                return done
            answer_all(store, who, observer)
    return number


def command(
    folder: Path, number: int = 50, observer: Observer = GUESSER, database: Path | None = None, fast: bool = False
) -> str:
    """Let simulated participants answer a whole study, and say where their answers are.

    Args:
        folder: the bundle.
        number: how many.
        observer: who answers.
        database: new, or of this study; ``simulated.sqlite`` in the bundle if None.
        fast: straight into the database, instead of through the pages of the web application.
    """
    file = database or folder / "simulated.sqlite"
    return f"{simulate(folder, file, observer, number, fast)} took part; their answers are in {file}"


def answer_all(store: Store, who: Participant, observer: Observer) -> None:
    """Answer page by page to the end, or to where the observer leaves."""
    study, key = store.bundle.study, store.bundle.key
    way = steps_of(study, who)
    client: dict[str, object] = {"javascript": True, "focus_losses": 0, "pictures_missing": False}
    current: Participant | None = who
    while current is not None and current.status == "active" and current.step != observer.leave_at:
        step = way[current.step]
        store.open_page(current, step.page)
        answers = observer.respond(study, step, key.items[step.item.id] if step.item else None, who.seed)
        store.submit(current, way, current.step, answers, client)
        current = store.find(who.id)


async def _visit(store: Store, observer: Observer, number: int) -> int:
    transport = ASGITransport(make_app(store.bundle, store, [HOST]))
    slots = asyncio.Semaphore(AT_ONCE)

    async def one() -> bool:
        async with slots, AsyncClient(transport=transport, base_url=f"https://{HOST}") as browser:
            return await take_part(browser, store, observer)

    return sum(await asyncio.gather(*(one() for _ in range(number))))


async def take_part(browser: AsyncClient, store: Store, observer: Observer) -> bool:
    """Take part once.

    Returns:
        Whether there was a place.

    Raises:
        RuntimeError: if a page cannot be answered.
    """
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
        if page.status_code != 200:
            raise RuntimeError(f"The page {step.page} was answered with the status {page.status_code}.")
    return True
