"""Ways to get at the answers, at somebody else's place or data, or at pay without work; each was open once."""

import re
import resource
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace

import httpx
import pytest

from protometry.run_folder.command_line.serving import listening, server_of
from protometry.studies.analysis.analyse import analyse
from protometry.studies.assignment import participant_seed
from protometry.studies.participants import read_database, steps_of
from protometry.studies.simulation.observer import SimulatedParticipant
from protometry.studies.simulation.simulate import simulate
from protometry.studies.store import Store
from protometry.studies.study import Pages, Platform
from tests.studies.test_server import FORM, Site
from tests.studies.toy import make_bundle

PERSON = "?PROLIFIC_PID=person1&SESSION_ID=session1"


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path, people=3, platform=Platform("prolific", completed="C1", screened="S1"))
    yield site
    site.store.close()


def withdraw(site):
    """Withdraw with what the current page offers; asked once, on every page, in the form that deletes."""
    shown = site.get("/p").text
    asked = re.search(r'<details class="withdraw">.*?name="token" value="(\w+)"', shown, re.DOTALL)
    assert asked, shown
    assert site.post({"token": "no"}, "/withdraw").status_code == 403
    return site.post({"token": asked[1]}, "/withdraw", follow_redirects=True)


def test_the_order_of_items_does_not_follow_from_the_seed_of_the_study(tmp_path):
    """Right predictions are put before wrong ones and then shuffled: whoever knows the shuffle knows the answers."""
    bundle = make_bundle(tmp_path / "study")
    salted = replace(bundle.key, salt="1")
    assert participant_seed(bundle.study, salted, 1) != participant_seed(bundle.study, bundle.key, 1)
    store = Store(tmp_path / "a.sqlite", replace(bundle, key=salted))
    assert store.join().seed == participant_seed(bundle.study, salted, 1)


def test_a_failed_quiz_is_no_beginning_and_withdrawing_is_for_good(site):
    site.join(PERSON)
    site.answer_until("quiz")
    for page in ("quiz", "quiz_again"):
        site.post(site.form(**{f"{page}.0": "0", f"{page}.1": "0"}))
    assert "S1" in site.get("/p").text
    assert (site.who().status, withdraw(site).status_code) == ("screened", 200)
    for browser in (site.cookies, httpx.Cookies()):
        again = site.join(PERSON, cookies=browser)
        assert (again.status_code, "You have withdrawn" in again.text) == (403, True)


def test_an_id_of_the_platform_alone_opens_nobodys_place(site):
    site.join(PERSON)
    site.answer_until("background")
    for query in ("?PROLIFIC_PID=person1", "?PROLIFIC_PID=person1&SESSION_ID=other"):
        stranger = httpx.Cookies()
        assert "already started" in site.join(query, cookies=stranger).text
        assert not stranger
    assert site.join("?PROLIFIC_PID=person1&SESSION_ID=session2").url.path == "/p"  # the own browser
    assert site.who().session == "session2"


def test_looking_at_a_link_takes_no_place(site):
    for number in range(4):
        for method in ("HEAD", "GET"):
            site.send(method, f"/join?PROLIFIC_PID=p{number}", cookies=httpx.Cookies())
    assert site.store.join("real") is not None
    long_ago = time.monotonic() - 601  # who has not agreed for ten minutes
    site.store._last_seen = dict.fromkeys(site.store._last_seen, long_ago)
    assert all(site.store.join(name) for name in ("a", "b", "c"))


def test_a_clock_that_jumps_gives_no_place_again(site, monkeypatch):
    for name in ("a", "b", "c"):
        assert site.store.join(name)
    now = time.time()
    monkeypatch.setattr("protometry.studies.store.time.time", lambda: now + 7200)
    assert site.store.join("d") is None


def test_a_run_through_all_pages_is_flagged(tmp_path, monkeypatch):
    """Two seconds a photo, as the threshold of single photos demands, and nothing read."""
    bundle = make_bundle(tmp_path / "study")
    clock = iter(range(0, 10_000, 2))
    monkeypatch.setattr("protometry.studies.store.time.monotonic", lambda: next(clock))
    simulate(bundle.folder, tmp_path / "a.sqlite", SimulatedParticipant("noisy"), 1)
    monkeypatch.undo()
    assert analyse(bundle.folder, tmp_path / "a.sqlite", tmp_path / "out")["participants"]["flags"]["fast"] == 1


def test_only_the_owner_reads_a_database(tmp_path):
    """Also one that another version left open to everybody, with its log."""
    (tmp_path / "a.sqlite").touch(0o644)
    store = Store(tmp_path / "a.sqlite", make_bundle(tmp_path / "study"))
    store.join("person")
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("a.sqlite*")} == {0o600}


def test_a_full_disk_is_no_health(site):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**19, before[1]))
    try:
        assert site.send("GET", "/healthz").status_code == 503
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert site.send("GET", "/healthz").status_code == 200


def test_two_studies_on_one_host_know_their_own_people(tmp_path):
    first, second = Site(tmp_path / "1"), Site(tmp_path / "2")
    second.cookies = first.cookies  # cookies know hosts, not ports
    first.join()
    second.join()
    assert first.get("/p").status_code == second.get("/p").status_code == 200


def test_a_study_is_kept_out_of_repositories(tmp_path):
    bundle = make_bundle(tmp_path / "study")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    status = ["git", "-C", str(tmp_path), "status", "--short", "--untracked-files=all"]
    assert "key.json" not in subprocess.run(status, check=True, capture_output=True, text=True).stdout
    assert bundle.folder.joinpath("key.json").exists()


@pytest.mark.parametrize("page", ["consent", "background", "done"])
def test_withdrawal_deletes_everything_also_from_the_log(tmp_path, page):
    site = Site(tmp_path, platform=Platform("prolific", completed="C1"), pages=Pages(quiz=False))
    secret = ("person1", "session1", "MyBrowser/7", "my comment is private")
    agent = {**FORM, "user-agent": secret[2]}
    site.send("POST", f"/join{PERSON}", headers=agent, follow_redirects=True)
    if page != "consent":
        site.answer_until("background" if page == "background" else "comments")
    if page == "done":
        site.post(site.form(comments=secret[3]))
        assert secret[3].encode() in b"".join(file.read_bytes() for file in tmp_path.glob("answers.sqlite*"))
    who, left = site.who(), withdraw(site)
    assert 'href="https://app.prolific.com/"' in left.text
    assert "have been deleted" in left.text
    assert site.get("/p").status_code == 403
    _, (one,), visits = read_database(site.database)
    assert (one.status, one.external, one.session, one.items, visits) == ("withdrawn", None, None, [], [])
    assert site.store.submit(one, steps_of(site.bundle.study, who), 0, {"consent": "agree"}, {}) == "stale"
    kept = b"".join(file.read_bytes() for file in tmp_path.glob("answers.sqlite*"))
    assert not [word for word in secret if word.encode() in kept]


def test_a_reader_only_delays_the_deletion_from_the_log(site):
    site.join(PERSON)
    leaving, staying = site.who(), site.store.join("person2", "session2")
    site.store._connection.execute("PRAGMA busy_timeout = 10")
    with closing(sqlite3.connect(site.database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM participant").fetchall()
        site.store.withdraw(leaving)
    site.store.submit(staying, steps_of(site.bundle.study, staying), 0, {"consent": "agree"}, {})
    files = site.database.parent.glob("answers.sqlite*")
    assert b"person1" not in b"".join(file.read_bytes() for file in files)


def test_who_declines_is_led_back(site):
    site.join(PERSON)
    page = site.get("/p").text
    assert page.index('class="withdraw"') < page.index("<h1>") < page.index(">Continue<")  # far apart
    site.post(site.form(consent="decline"))
    end = site.get("/p").text
    assert 'href="https://app.prolific.com/"' in end
    assert "return your submission" in end
    assert "chosen not to take part" in end
    assert site.who().status == "declined"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])  # the latter is none of the server's own
def test_a_signal_leaves_all_answers_in_one_file(number, tmp_path):
    """The address is one of the sixth version."""
    make_bundle(tmp_path / "study")
    arguments = ["serve", str(tmp_path / "study"), "--port", "0", "--host", "::1"]
    command = [sys.executable, "-m", "protometry", "studies", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = re.search(r"http://\[::1\]:\S+", server.stdout.readline())[0]
            assert httpx.post(f"{url}join", headers=FORM).status_code == 303
            server.send_signal(number)
            assert server.wait(20) == 0
        finally:
            server.kill()
    assert not (tmp_path / "study/answers.sqlite-wal").exists()
    with sqlite3.connect(tmp_path / "study/answers.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM participant").fetchone() == (1,)


@contextmanager
def served(app, connections, **limits):
    """The address of a server, until the end of the block."""
    server = server_of(app, connections, **limits)
    with listening("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join()


HEAD = b"POST /p HTTP/1.1\r\nHost: study.test\r\nContent-Type: application/x-www-form-urlencoded\r\n"


def health(address):
    return httpx.get("http://{}:{}/healthz".format(*address), headers={"host": "study.test"}).status_code


def test_a_slow_connection_is_ended(site):
    """Whether nothing comes, half of the headers, or half of a form; a whole request is answered."""
    with served(site.app, 500, request_seconds=0.5) as address, ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(3)]
        for connection, sent in zip(slow, (b"", HEAD, HEAD + b"Content-Length: 9\r\n\r\na="), strict=True):
            connection.sendall(sent)
        for connection in slow:
            with suppress(ConnectionResetError):
                assert connection.recv(100) == b""
        assert health(address) == 200


def test_connections_above_the_limit_are_ended(site):
    with served(site.app, 2) as address, ExitStack() as stack:
        first, second, third = (stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(3))
        with suppress(ConnectionResetError):
            assert third.recv(100) == b""
        second.sendall(b"GET /healthz HTTP/1.1\r\nHost: study.test\r\n\r\n")
        assert second.recv(100).startswith(b"HTTP/1.1 200")
        first.close()
        second.close()
        assert health(address) == 200


def test_what_strangers_drop_or_send_is_not_logged(site, capfd):
    """Where the log is on the disk of the answers, each line of theirs would take some of it."""
    odd = b"Origin: http://[\r\nContent-Length: 0\r\n\r\n"
    with served(site.app, 500) as address:
        for sent in (HEAD + b"Content-Length: 9\r\n\r\na=", HEAD + odd, b"\x16\x03\x01\r\n\r\n"):
            with socket.create_connection(address, timeout=10) as dropped:
                dropped.sendall(sent)
        assert health(address) == 200
    assert capfd.readouterr() == ("", "")
