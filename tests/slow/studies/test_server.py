"""Many people at once, and a server that is killed under load."""

import asyncio
import contextlib
import socket
import sqlite3
import subprocess
import sys
import threading
import time

import httpx

from protometry.studies.participants import read_database
from protometry.studies.simulation.observer import SimulatedParticipant
from tests.studies.test_server import FORM
from tests.studies.toy import make_bundle
from tests.studies.visitor import read_page, visit


def test_two_hundred_at_once(tmp_path):
    """Every acknowledged page is in the database, and none twice."""
    bundle = make_bundle(tmp_path / "study", people=200)
    assert visit(bundle, tmp_path / "a.sqlite", SimulatedParticipant("noisy"), 200) == 200
    _, people, visits = read_database(tmp_path / "a.sqlite")
    assert [one.status for one in people] == ["completed"] * 200
    assert len(visits) == len({(one.number, one.step) for one in visits}) == 200 * 14
    shown = [item for one in people for item in one.items]
    assert {shown.count(item) for item in set(shown)} == {100}


def test_killed_under_load_loses_no_acknowledged_page(tmp_path):
    """Four times, a server is killed while 16 people answer; what it acknowledged is there, whole and once."""
    make_bundle(tmp_path / "study", people=10_000)
    acknowledged = []
    for round_ in range(4):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "protometry", "studies", "serve", str(tmp_path / "study"), "--port", str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            assert f":{port}/" in server.stdout.readline()
            before = len(acknowledged)

            def kill(pages: int = before + 20 + 5 * round_, server: subprocess.Popen[str] = server) -> None:
                while len(acknowledged) < pages and server.poll() is None:
                    time.sleep(0.01)
                server.kill()

            killer = threading.Thread(target=kill)
            killer.start()
            try:
                asyncio.run(_load(f"http://127.0.0.1:{port}", acknowledged))
            finally:
                server.kill()
                killer.join()
            assert len(acknowledged) >= before + 20
    _, people, visits = read_database(tmp_path / "study/answers.sqlite")
    numbers = {one.id: one.number for one in people}
    there = [(one.number, one.step) for one in visits]
    assert len(there) == len(set(there))
    assert {(numbers[name], step) for name, step in acknowledged} <= set(there)
    for one in people:
        assert [step for number, step in there if number == one.number][-1:] in ([], [one.step - 1], [one.step - 2])
    with sqlite3.connect(tmp_path / "study/answers.sqlite") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def _load(url, acknowledged):
    async def person():
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            with contextlib.suppress(httpx.TransportError):
                page = await client.post("/join", headers=FORM, follow_redirects=True)
                while (form := read_page(page.text)).hidden:
                    choices = {name: min(values) for name, values in form.offered.items() if values}
                    choices |= {"consent": "agree"} if "consent" in choices else {}
                    choices |= {"quiz.0": "1", "quiz.1": "2"} if "quiz.0" in choices else {}
                    choices.pop("pictures_missing", None)
                    sent = await client.post("/p", data=form.filled(choices))
                    assert sent.status_code == 303
                    acknowledged.append((next(iter(client.cookies.values())), int(form.hidden["step"])))
                    page = await client.get("/p", follow_redirects=True)
                await person()

    await asyncio.gather(*(person() for _ in range(16)))
