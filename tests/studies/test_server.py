"""The web application: the way through every page, and the list of abuses."""

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import socket
import sqlite3
from dataclasses import replace

import httpx
import pytest
from PIL import Image

from protometry.studies.__main__ import main
from protometry.studies.bundle import load_bundle
from protometry.studies.flow import item_questions, page_questions
from protometry.studies.participants import read_database, steps_of
from protometry.studies.questions import read_answers
from protometry.studies.server.app import make_app
from protometry.studies.server.pages import fields_of
from protometry.studies.simulation.observer import SimulatedParticipant
from protometry.studies.simulation.simulate import simulate
from protometry.studies.store import Store, open_store
from protometry.studies.study import Arm, Assignment, Platform, Study
from protometry.studies.tasks import task_of
from protometry.studies.texts import texts
from tests.studies.toy import TASKS, make_bundle
from tests.studies.visitor import read_page, take_part, visit
from tests.tiny_runs import ROOT

HOST = "http://study.test"
STUDY = Study("toy", "Toy", 0, "agreement", [], Assignment(1, 1, 1))
FORM = {"content-type": "application/x-www-form-urlencoded"}


class Site:
    """A served study, and a browser that visits it."""

    def __init__(self, folder, **options):
        self.bundle = make_bundle(folder / "study", **options)
        self.database = folder / "answers.sqlite"
        self.store = Store(self.database, self.bundle)
        self.app = make_app(self.bundle, self.store, ["study.test"])
        self.cookies = httpx.Cookies()

    def send(self, method, path, cookies=None, **options):
        async def request():
            transport = httpx.ASGITransport(self.app)
            jar = self.cookies if cookies is None else cookies
            async with httpx.AsyncClient(transport=transport, base_url=HOST, cookies=jar) as client:
                response = await client.request(method, path, **options)
                jar.update(client.cookies)
                return response

        return asyncio.run(request())

    def get(self, path, **options):
        return self.send("GET", path, follow_redirects=True, **options)

    def post(self, fields, path="/p", **options):
        return self.send("POST", path, data=fields, **options)

    def join(self, query="", **options):
        return self.send("POST", f"/join{query}", headers=FORM, follow_redirects=True, **options)

    def form(self, **answers):
        return read_page(self.get("/p").text).filled(answers)

    def who(self):
        return self.store.find(self.cookies[self.store.cookie])

    def answer_until(self, page, observer=None):
        """Answer everything up to a page, and return its index."""
        who = self.who()
        way = steps_of(self.bundle.study, who)
        while way[(step := self.who().step)].page != page:
            key = self.bundle.key.items[way[step].item.id] if way[step].item else None
            answers = (observer or SimulatedParticipant("noisy")).respond(self.bundle.study, way[step], key, who.seed)
            assert self.post(self.form(**fields_of(answers))).status_code == 303
        return step

    def stored(self):
        return [visit.answers for visit in read_database(self.database)[2]]


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    site.join()
    yield site
    site.store.close()


@pytest.mark.parametrize("form", ["heatmap", "units", "tree", "none"])
@pytest.mark.parametrize("task", TASKS)
def test_pages_and_database_give_the_same_answers(tmp_path, task, form):
    """Everything asked is stored in a row of its own, over all pages of every task and form."""
    bundle = make_bundle(tmp_path / "study", task, form)
    collected = []
    for answer, study in ((simulate, bundle.folder), (visit, bundle)):
        file = tmp_path / f"{answer.__name__}.sqlite"
        assert answer(study, file, SimulatedParticipant("noisy"), 1) == 1
        _, people, visits = read_database(file)
        assert {one.status for one in people} == {"completed"}
        collected.append({(one.number, one.step, one.name, one.item, json.dumps(one.answers)) for one in visits})
    assert collected[0] == collected[1]
    items = [one for one in collected[0] if one[2] == "item"]
    assert len(items) == 4
    arm, main = bundle.study.arms[0], task_of(task, form).main
    asked = {item.id: {question.name for question in item_questions(bundle.study, arm, item)} for item in arm.items}
    assert all(json.loads(one[4]).keys() == asked[one[3]] >= {"confidence", main} for one in items)


def test_messages_name_class_and_row_and_the_method_what_guessing_gives(tmp_path):
    site = Site(tmp_path, task="distinction", form="units", platform=Platform(bonus=1.5))
    site.join()
    site.answer_until("method")
    assert "Guessing would be right 25 % of the time. You get a bonus of 1.50" in site.get("/p").text
    site.answer_until("item")
    fields = site.form(
        **{name: "1" for name in read_page(site.get("/p").text).offered if name.startswith("similarity.")}
    )
    missing = [name for name in fields if name.startswith("similarity.")][5]  # of three rows a class
    sent = site.post({name: value for name, value in fields.items() if name != missing}).text
    assert f'<a href="#q-{missing}">Class B, row 3: How alike are the region and the piece?</a>' in sent
    assert len(re.findall("Class ., row", sent)) == 1
    nothing = site.post(
        {name: fields[name] for name in ("step", "token")}
    ).text  # of 12 rows, both classes, and how sure
    assert "16 questions have no answer yet" in nothing
    assert len(re.findall("Class ., row", nothing)) == 1


def test_several_arms_are_answered_one_after_the_other(tmp_path):
    bundle = make_bundle(tmp_path / "study", "agreement", "heatmap", items=24, assignment={"arms": 2}, others=1)
    assert simulate(bundle.folder, tmp_path / "a.sqlite", SimulatedParticipant("noisy"), 3) == 3
    _, people, _ = read_database(tmp_path / "a.sqlite")
    assert {tuple(who.arms) for who in people} == {("main", "other0"), ("other0", "main")}


def test_simulated_people_come_from_the_platform_of_the_study(tmp_path):
    bundle = make_bundle(tmp_path / "study", platform=Platform("prolific", completed="C1"))
    assert simulate(bundle.folder, tmp_path / "a.sqlite", SimulatedParticipant("noisy"), 2) == 2
    _, people, _ = read_database(tmp_path / "a.sqlite")
    assert len({who.external for who in people if who.external}) == 2
    for nobody in (0, -1):
        with pytest.raises(ValueError, match=f"`number` to be at least 1, but got {nobody}"):
            simulate(bundle.folder, tmp_path / "a.sqlite", SimulatedParticipant(), nobody)


def test_no_page_gives_anything_away(tmp_path):
    """Source, headers and pictures hold no key, score, item id or request off the host."""
    site = Site(tmp_path, task="distinction", form="units")
    secret = [f"{score:.6f}"[:8] for entry in site.bundle.key.items.values() for score in entry.scores.values()]

    async def look():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(site.app), base_url=HOST) as client:
            seen, sent = [], client.send

            async def keep(request, **options):
                response = await sent(request, **options)
                seen.append((str(response.headers) + response.text, response))
                return response

            client.send = keep
            assert await take_part(client, site.store, SimulatedParticipant("ideal"))
            for name in sorted(site.bundle.media())[:5]:
                response = await client.get(f"/media/{name}")
                assert Image.open(io.BytesIO(response.content)).info == {}
            return seen

    seen = asyncio.run(look())
    assert len(seen) > 15
    for text, response in seen:
        assert not any(score in text for score in secret)
        assert not re.search(r"image\d|\bi\d\b|correct|secret", text), text
        assert set(re.findall(r'(?:src|href|action)="([^"#]*)', text)) <= {
            *(f"/media/{name}" for name in site.bundle.media()),
            *("/static/study.css", "/static/study.js", "/static/icon.svg", "/p", "/withdraw", "/join?", ""),
        }
        if "text/html" in response.headers["content-type"]:
            assert response.headers["cache-control"] == "no-store"
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"


def test_double_posts_reloads_and_late_posts(site):
    first = site.form(consent="agree")
    assert (site.post(first).status_code, site.post(first).status_code) == (303, 303)
    other = site.post({**first, "consent": "decline"})
    assert other.status_code == 409
    assert "The first answers were kept" in other.text
    assert re.search(r'value="agree" checked', other.text)
    assert (site.stored(), read_page(site.get("/p").text).hidden["step"]) == ([{"consent": "agree"}], "1")
    assert read_page(site.get("/p").text).hidden["step"] == "1"
    for step in ("5", "999", "-1", "x", ""):  # another step with the token of this one
        assert site.post({**site.form(), "step": step}).status_code == 403
    site.answer_until("comments")
    last = site.form(comments="")
    assert site.post(last).headers["location"] == "/p"
    assert site.post(last).status_code == 303  # the end, again
    assert site.post({**last, "comments": "more"}).status_code == 409
    assert "Thank you" in site.get("/p").text


def test_a_later_step_with_its_own_token_is_not_stored(site):
    from protometry.studies.server.forms import token_of

    token = token_of(site.store.secret, site.who().id, "3")
    assert (site.post({"step": "3", "token": token}).status_code, site.stored()) == (409, [])


def test_wrong_fields_come_back_with_a_message(site):
    step = site.answer_until("background")
    hidden = read_page(site.get("/p").text).hidden
    for fields, message in (
        ({}, "Please answer this question."),
        ({"experience": ""}, "Please answer this question."),
        ({"experience": "6"}, "not one of those offered"),
        ({"experience": "NaN"}, "not one of those offered"),
        ({"experience": "3; drop table answer"}, "not one of those offered"),
        ({"experience": ["3", "3"]}, "answered more than once"),
        ({"experience": "3", "score": "10"}, "a field that it does not have: score"),
        ({"experience": "3", "gender": "<img src=x onerror=alert(1)>"}, "not one of those offered"),
    ):
        response = site.post({**hidden, "age": "2", **fields})
        assert response.status_code == 422
        assert message in response.text
        assert "<img" not in response.text
        assert re.search(r'name="age" value="2" checked', response.text)  # what was right is still there
    assert site.who().step == step


@pytest.mark.parametrize(("fields", "error", "stored"), [
    ({"tradeoff.low": "101"}, True, None), ({"tradeoff.low": "1e2"}, True, None), ({"tradeoff.low": "-5"}, True, None),
    ({"tradeoff.low": "٩٠"}, True, None), ({"tradeoff.low": "90", "tradeoff.low.none": "yes"}, True, None),
    ({}, True, None), ({"tradeoff.low": "90,5"}, False, 90.5), ({"tradeoff.low": "90 %"}, False, 90.0),
    ({"tradeoff.low": "%"}, True, None), ({"tradeoff.low": "100"}, False, 100.0),
    ({"tradeoff.low": "", "tradeoff.low.none": "yes"}, False, -1),
    ({"tradeoff.low": "0", "reason": "x" * 2001}, True, None),
])  # fmt: skip
def test_demanded_accuracies(fields, error, stored):
    questions = page_questions(STUDY, "tradeoff", Arm("main", "heatmap", 80.0, [], []))
    sent = {"tradeoff.medium": "85", "tradeoff.high.none": "yes", **fields}
    answers, errors = read_answers(questions, sent.items(), "en")
    assert bool(errors) == error
    assert error or answers == {"tradeoff.low": stored, "tradeoff.medium": 85, "tradeoff.high": -1, "reason": None}


def test_the_whole_way_to_the_own_result_and_the_demands(site):
    """The participant's result is graded here; nothing is filled in beforehand."""
    site.answer_until("result", SimulatedParticipant("believer"))
    text = "You judged 2 of 4 decisions correctly. You believed 2 of 2 right and 2 of\n2 wrong decisions."
    assert text.replace("\n", " ") in site.get("/p").text
    site.answer_until("tradeoff")
    page = site.get("/p").text
    assert len(re.findall(r'name="tradeoff.\w+" value=""', page)) == 3
    assert page.count("The program that explains itself gets 80 % right.") == 3  # once per level, as in HIVE
    assert "checked" not in page


def test_bodies_that_are_no_forms(site):
    form = site.form(consent="agree")
    assert site.send("POST", "/p", content=b"a=" + b"x" * 65_536, headers=FORM).status_code == 413
    assert site.send("POST", "/p", content=b"a=\xff", headers=FORM).status_code == 400
    assert site.send("POST", "/p", content=b"a=%ff", headers=FORM).status_code == 400
    assert site.send("POST", "/p", content=b"a=%00", headers=FORM).status_code == 400
    assert (
        site.send("POST", "/p", content="&".join(f"a{i}=" for i in range(600)).encode(), headers=FORM).status_code
        == 400
    )
    assert site.send("POST", "/p", json=form).status_code == 415
    assert (site.send("POST", "/p", files={"file": b"x"}).status_code, site.stored()) == (415, [])


def test_only_the_own_browser_may_answer(site):
    form = site.form(consent="agree")
    for cookies in ({}, {site.store.cookie: "0" * 32}, {site.store.cookie: "' OR 1=1 --"}):
        assert site.post(form, cookies=httpx.Cookies(cookies)).status_code == 403
        assert site.send("GET", "/p", cookies=httpx.Cookies(cookies)).status_code == 403
        assert site.send("GET", "/done", cookies=httpx.Cookies(cookies)).status_code == 403
    other = httpx.Cookies()
    site.join(cookies=other)
    assert site.post(form, cookies=other).status_code == 403  # the token of somebody else
    framed = {"origin": "null", "sec-fetch-site": "cross-site"}
    for headers in ({"origin": "http://evil.test"}, framed, {"sec-fetch-site": "cross-site"}):
        assert site.post(form, headers=headers).status_code == 403
    assert site.send("GET", "/", headers={"host": "evil.test"}).status_code == 400
    assert site.post(form, headers={"origin": HOST, "sec-fetch-site": "same-origin"}).status_code == 303
    chromium = {"origin": "null", "sec-fetch-site": "same-origin"}  # without a referrer, also of the own page
    assert site.post(form, headers=chromium).status_code == 303
    cookie = site.join(cookies=httpx.Cookies()).history[0].headers["set-cookie"]
    assert all(part in cookie for part in ("HttpOnly", "SameSite=lax"))


def test_times_and_scores_that_a_browser_claims_are_claims(site):
    site.post({**site.form(consent="agree"), "seconds": "999999", "javascript": "1", "focus_losses": "-3"})
    (visit,) = read_database(site.database)[2]
    assert visit.seconds < 100
    assert visit.client["seconds"] == 999999
    assert visit.client["focus_losses"] is None


def test_no_other_file_is_served(site):
    os.symlink(site.bundle.folder / "key.json", site.bundle.folder / "media/link.png")
    for path in (
        "/media/../key.json", "/media/%2e%2e/key.json", "/media/..%2fkey.json", "/media/%2e%2e%2fkey.json", "/key.json",
        "/media/key.json", "/media//etc/passwd", "//etc/passwd", "/media/%00", "/media/" + "a" * 5000,
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/answers.sqlite", "/media/",
        "/study.json", "/media/link.png",
    ):  # fmt: skip
        assert site.send("GET", path).status_code == 404, path


def test_no_text_ends_at_a_comma():
    def texts_of(value):
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        return [value] if not children else [text for child in children for text in texts_of(child)]

    # what follows an unquoted comma in a yaml mapping of one line would be a key without a value
    assert [text for text in texts_of(texts("en")) if text is None] == []


def test_texts_are_shown_as_texts(tmp_path):
    nasty = "<img src=x onerror=alert(1)></script>\"'\u202e🙂" + "x" * 480
    site = Site(tmp_path)
    arm = site.bundle.study.arms[0]
    labelled = [replace(one, options=[replace(one.options[0], label=nasty)]) for one in arm.items]
    study = replace(site.bundle.study, title=nasty, arms=[replace(arm, items=labelled)])
    site.app = make_app(replace(site.bundle, study=study, consent=nasty), site.store, ["study.test"])
    site.bundle = replace(site.bundle, study=study)
    site.join()
    site.answer_until("item")
    for page in (site.get("/p").text, site.get("/").text):
        assert "<img src=x" not in page
        assert "&lt;img src=x onerror=alert(1)&gt;" in page
    site.answer_until("comments")
    assert (site.post(site.form(comments=nasty)).status_code, site.stored()[-1]["comments"]) == (303, nasty)


def test_a_full_disk_loses_nothing_that_was_acknowledged(site):
    """SQLite itself says that the database is full; the answers come back on the page and are stored later."""
    form = site.form(consent="agree")
    connection = site.store._connection
    connection.execute("CREATE TABLE waste (content)")
    connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")
    for statement in (
        "INSERT INTO waste VALUES (zeroblob(300))",
        "INSERT INTO answer VALUES (1, 99, NULL, hex(randomblob(60)), '0')",
        "INSERT INTO answer VALUES (1, 99, NULL, hex(randomblob(2)), '0')",
    ):  # until not even a short answer fits
        with contextlib.suppress(sqlite3.OperationalError):
            while True:
                connection.execute(statement)
    before = len(site.store.answers(site.who())[99])
    response = site.post({**form, "helps": "9" * 9})
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert re.search(r'value="agree" checked', response.text)
    assert (set(site.store.answers(site.who())), len(site.store.answers(site.who())[99])) == ({99}, before)
    connection.execute("PRAGMA max_page_count = 100000")
    assert (site.post(form).status_code, site.store.answers(site.who())[0]) == (303, {"consent": "agree"})


def test_a_database_that_cannot_be_written(site):
    form = site.form(consent="agree")
    site.store._connection.execute("PRAGMA query_only = ON")
    response = site.post(form)
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert re.search(r'value="agree" checked', response.text)
    assert (site.send("GET", "/healthz").status_code, site.stored()) == (503, [])
    site.store._connection.execute("PRAGMA query_only = OFF")
    assert site.post(form).status_code == 303


def test_answers_are_on_the_disk_before_the_next_page(site):
    """Only when a page was opened is not waited for."""
    said = []
    site.store._connection.set_trace_callback(said.append)
    site.post(site.form(consent="agree"))
    index = next(index for index, line in enumerate(said) if line.startswith("INSERT INTO answer"))
    assert [line for line in said[:index] if line.startswith("PRAGMA")][-1] == "PRAGMA synchronous=FULL"


def test_a_locked_database_is_busy(site):
    site.store._connection.execute("PRAGMA busy_timeout = 50")
    form = site.form(consent="agree")
    with sqlite3.connect(site.database) as other:
        other.execute("BEGIN IMMEDIATE")
        assert site.post(form).status_code == 503
        other.execute("ROLLBACK")
    assert site.post(form).status_code == 303


def test_a_study_that_was_changed_is_closed(site):
    file = site.bundle.folder / "consent.md"
    os.utime(file, (1, 1))
    assert site.send("GET", "/withdrawn").status_code == 200  # touched, but the same
    file.write_text("Something else.", "utf-8")
    assert (site.send("GET", "/p").status_code, site.send("GET", "/healthz").json()["study"]) == (503, "changed")
    picture = site.bundle.folder / "media" / min(site.bundle.media())
    picture.write_bytes(b"other")
    assert site.send("GET", f"/media/{picture.name}").status_code == 503


def test_one_server_per_database_and_resumed_after_it_ends(tmp_path):
    """A link is no way around the lock."""
    bundle, link = make_bundle(tmp_path / "study"), tmp_path / "link.sqlite"
    link.symlink_to(tmp_path / "a.sqlite")
    with open_store(tmp_path / "a.sqlite", bundle) as store:
        who = store.join()
        for file in (tmp_path / "a.sqlite", link):
            with pytest.raises(ValueError, match="is being served already"), open_store(file, bundle):
                pass
    with open_store(tmp_path / "a.sqlite", load_bundle(tmp_path / "study")) as store:
        assert store.find(who.id) == who


def test_a_port_in_use_or_none_is_one_line(tmp_path, capsys):
    make_bundle(tmp_path / "study")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(tmp_path / "study"), "--port", str(port)]) == 2
    assert f"but 127.0.0.1, port {port}: Address already in use" in capsys.readouterr().err
    for port in (-1, 65536):
        assert main(["serve", str(tmp_path / "study"), "--port", str(port)]) == 2
        assert f"`port` to lie between 0 and 65535, but got {port}." in capsys.readouterr().err


def test_a_study_with_words_of_the_example_is_tried_but_not_served(tmp_path, capsys):
    """The placeholders to fill in are the ones in the example files."""
    folder = tmp_path / "study"
    make_bundle(folder, platform=Platform("prolific", completed="FILL-IN", screened="S1"))
    shutil.copy(ROOT / "configs/study/consent.md", folder / "consent.md")
    assert main(["serve", str(folder)]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert f"{folder}/consent.md still has NAME, INSTITUTION, COMMITTEE, NUMBER, ADDRESS of" in error
    assert f"{folder}/study.json still has FILL-IN as platform.completed: fill them in" in error
    assert main(["simulate", str(folder), "--number", "1"]) == 0


def test_prolific_sends_and_gets_people_back(tmp_path):
    site = Site(tmp_path, people=1, platform=Platform("prolific", completed="C1&X", screened="S1"))
    assert "/join" not in site.get("/").text
    for query in ("", "?PROLIFIC_PID=", "?PROLIFIC_PID=<b>", "?PROLIFIC_PID=" + "a" * 65):
        assert site.get(f"/join{query}").status_code == 400
    assert site.join("?PROLIFIC_PID=p1&SESSION_ID=s1").url.path == "/p"
    assert (site.who().external, site.who().session) == ("p1", "s1")
    assert (
        "You are paid 3.00, in the currency of the platform, however long you take: 15 minutes at"
        in site.get("/p").text
    )
    assert site.get("/").url.path == "/p"  # whoever has started goes on
    again = httpx.Cookies()
    site.join("?PROLIFIC_PID=p1&SESSION_ID=s1", cookies=again)  # another device
    assert again[site.store.cookie] == site.cookies[site.store.cookie]
    assert "All places are taken" in site.join("?PROLIFIC_PID=p2", cookies=httpx.Cookies()).text
    site.answer_until("comments")
    assert "C1" not in site.get("/p").text
    site.post(site.form(comments=""))
    assert 'href="https://app.prolific.com/submissions/complete?cc=C1%26X"' in site.get("/p").text
