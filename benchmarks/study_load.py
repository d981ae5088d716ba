"""How long pages of a served study take with many people at once: ``python benchmarks/study_load.py``.

    python benchmarks/study_load.py                              # 200 people, a page every 10 seconds
    python benchmarks/study_load.py --people 50 --seconds 0      # as fast as pages come

`studies serve` serves a study of units: ten rows, 41 pictures of 12 kB per item, which a browser fetches once, over six
connections, as browsers do. All people open the link at once, read each page for ``--seconds`` on average
(exponentially distributed), and answer it. The time of a page runs from the press of a button until the page and all
its pictures are there. The people run in a process of their own on the same machine, and whatever they cost is part of
these times; the CPU time is the server's alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry.studies.simulation.browser import read_page
from tests.studies import toy

FORM = {"content-type": "application/x-www-form-urlencoded"}
CONNECTIONS = 6  # of a browser, for pictures
KEPT = httpx.Limits(keepalive_expiry=2)  # shorter than the server keeps connections: a browser would open a new one


async def fetch(url: str, names: list[str]) -> None:
    """Pictures, one after the other; in few lines, since they would cost httpx more than the server."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for name in names:
            writer.write(f"GET {name} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            if " 200 " not in head.splitlines()[0]:
                raise ConnectionError(f"{name}: {head.splitlines()[0]}")
            await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
    finally:
        writer.close()


async def take_part(url: str, seconds: float, generator: random.Random, times: list[float]) -> None:
    """Answer every page; the times of pages are added."""
    # without certificates, which take 30 ms to load
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=KEPT, verify=False) as browser:
        known: set[str] = set()
        send = {"method": "GET", "url": "/"}
        while True:
            begin = time.perf_counter()
            page = await browser.request(**send, follow_redirects=True)
            page.raise_for_status()
            form = read_page(page.text)
            new = sorted({*form.pictures} - known)
            parts = (new[start::CONNECTIONS] for start in range(min(CONNECTIONS, len(new))))
            async with asyncio.timeout(60):
                await asyncio.gather(*(fetch(url, part) for part in parts))
            times.append(time.perf_counter() - begin)
            known |= {*new}
            if page.url.path not in ("/", "/p"):
                return
            await asyncio.sleep(generator.expovariate(1 / seconds) if seconds else 0)
            choices = {name: min(values) for name, values in form.offered.items() if values}
            choices |= {"consent": "agree"} if "consent" in choices else {}
            choices |= {"quiz.0": "1", "quiz.1": "2"} if "quiz.0" in choices else {}
            choices.pop("pictures_missing", None)
            target = "/join" if page.url.path == "/" else "/p"
            send = {"method": "POST", "url": target, "headers": FORM, "data": form.filled(choices)}


async def load(url: str, people: int, seconds: float) -> tuple[list[float], list[BaseException]]:
    """Times of all pages, and what went wrong."""
    times: list[float] = []
    everybody = (take_part(url, seconds, random.Random(number), times) for number in range(people))
    ended = await asyncio.gather(*everybody, return_exceptions=True)
    return times, [one for one in ended if isinstance(one, BaseException)]


def cpu_seconds(process: int) -> float:
    """CPU time of a running process, by Linux."""
    fields = Path(f"/proc/{process}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(arguments: list[str] | None = None) -> None:
    """Print how long pages take and what the server spends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0, help="that a page is read, on average")
    parser.add_argument("--items", type=int, default=4, help="that everybody answers, half of them right")
    given = parser.parse_args(arguments)
    toy.ROWS = 10
    with tempfile.TemporaryDirectory() as folder:
        places = {"right": given.items // 2, "wrong": given.items // 2}
        study = Path(folder) / "study"
        toy.make_bundle(study, "agreement", "units", items=40, people=given.people, size=64, assignment=places)
        command = [sys.executable, "-m", "protometry", "studies", "serve", str(study), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
            assert server.stdout is not None
            url = next(word for word in server.stdout.readline().split() if word.startswith("http")).rstrip("/")
            before = cpu_seconds(server.pid)
            try:
                times, wrong = asyncio.run(load(url, given.people, given.seconds))
                spent = cpu_seconds(server.pid) - before
            finally:
                server.terminate()
                server.stdout.read()
    middle, high = np.percentile(times, (50, 95))
    print(f"{given.people} people, {len(times)} pages; {len(wrong)} people did not come to the end")
    for error in wrong[:3]:
        print(f"  {error!r}")
    print(f"seconds of a page with its pictures: median {middle:.3f}, p95 {high:.3f}, longest {max(times):.3f}")
    print(f"CPU seconds of the server: {spent:.1f}, {1000 * spent / len(times):.1f} ms a page with its pictures")


if __name__ == "__main__":
    main()
