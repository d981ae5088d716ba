"""Assignment and storage: balanced, reserved, in one transaction, and never twice."""

import errno
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import pairwise

import pytest

from protometry.studies.assignment import arm_orders, choose_items, participant_seed
from protometry.studies.flow import after, in_random_order
from protometry.studies.participants import read_database, steps_of
from protometry.studies.simulation.observer import SimulatedParticipant
from protometry.studies.simulation.simulate import answer_all
from protometry.studies.store import Store, open_store
from tests.studies.toy import make_bundle


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "answers.sqlite", make_bundle(tmp_path / "study", "agreement", "units", items=12))
    yield store
    store.close()


def test_items_are_shown_equally_often_and_balanced_by_prediction(store):
    people = [store.join() for _ in range(9)]
    counts = Counter(item for who in people for item in who.items)
    assert set(counts.values()) == {3}  # 9 people x 4 items over 12 items
    for who in people:
        assert sum(store.bundle.key.items[item].right for item in who.items) == 2
    assert len({tuple(who.items) for who in people}) > 3  # in an order of their own


def test_forms_are_filled_one_by_one(tmp_path):
    bundle = make_bundle(tmp_path / "study", items=8, assignment={"by": "balanced"})
    items = [replace(item, form=number // 4) for number, item in enumerate(bundle.study.arms[0].items)]
    arm = replace(bundle.study.arms[0], items=items)
    study = replace(bundle.study, arms=[arm], assignment=replace(bundle.study.assignment, by="forms"))
    store = Store(tmp_path / "answers.sqlite", replace(bundle, study=study))
    forms = [{int(item[1:]) // 4 for item in store.join().items} for _ in range(4)]
    assert forms == [{0}, {1}, {0}, {1}]


def test_several_arms_stand_equally_often_in_every_place_and_show_other_images(tmp_path):
    places = {"arms": 3}
    bundle = make_bundle(tmp_path / "study", "agreement", "units", items=24, people=12, assignment=places, others=3)
    store = Store(tmp_path / "answers.sqlite", bundle)
    people = [store.join() for _ in range(16)]
    assert store.join() is None  # 16 people in 3 of 4 arms fill 12 places in each
    for place in range(3):
        assert set(Counter(who.arms[place] for who in people).values()) == {4}
    for who in people:
        assert len(set(who.arms)) == 3
        assert len({bundle.key.items[item].image for item in who.items}) == len(who.items) == 12
        way = steps_of(bundle.study, who)
        assert [step.number for step in way if step.item] == list(range(1, 13))
        assert [step.item.id for step in way if step.item] == who.items
        for page, times in (("method", 3), ("preview", 3), ("quiz", 1), ("result", 3), ("consent", 1), ("comments", 1)):
            assert sum(step.page == page for step in way) == times
        assert {step.arm.id for step in way if step.item and step.number <= 4} == {who.arms[0]}


def test_nobody_sees_the_photo_of_a_check_twice(tmp_path):
    """It is an item of the other arm, where it is left out."""
    bundle = make_bundle(tmp_path, items=24, assignment={"arms": 2}, others=1)
    first, second = bundle.study.arms
    study = replace(bundle.study, arms=[replace(first, items=first.items[2:], checks=first.items[:2]), second])
    for number in range(8):
        chosen = choose_items(study, study.arms, bundle.key, Counter(), str(number))
        assert len({bundle.key.items[name].image for name in chosen}) == len(chosen) == 10
        assert {check.id for check in first.items[:2]} <= set(chosen)


def test_orders_of_an_even_number_of_arms_are_balanced_in_what_precedes(tmp_path):
    bundle = make_bundle(tmp_path / "study", items=40, assignment={"arms": 4}, others=3)
    orders = [[arm.id for arm in order] for order in arm_orders(bundle.study)]
    pairs = Counter(pair for order in orders for pair in pairwise(order))
    assert (len(pairs), set(pairs.values())) == (12, {1})


def test_several_trees_are_warmed_up_for_once(tmp_path):
    bundle = make_bundle(tmp_path / "study", "agreement", "tree", items=24, assignment={"arms": 2}, others=1)
    store = Store(tmp_path / "answers.sqlite", bundle)
    assert sum(step.page.startswith("warm_up") for step in steps_of(bundle.study, store.join())) == 2


def test_a_participant_is_a_function_of_seed_and_number(store, tmp_path):
    who = store.join()
    study, arm = store.bundle.study, store.bundle.study.arms[0]
    assert who.seed == participant_seed(study, store.bundle.key, 1)
    again = Store(tmp_path / "again.sqlite", store.bundle).join()
    assert (again.seed, again.items) == (who.seed, who.items)
    assert again.id != who.id
    orders = {
        tuple(row.id for row in in_random_order(arm, arm.items[0], str(seed)).options[0].rows) for seed in range(20)
    }
    assert len(orders) == 6  # of three rows
    tree = replace(arm, form="tree")
    assert len({in_random_order(tree, arm.items[0], str(seed)).options[0].rows[0].id for seed in range(20)}) == 1


def test_places_are_limited_reserved_and_freed(tmp_path):
    bundle = make_bundle(tmp_path / "study", people=2, assignment={"reserve_minutes": 10.0})
    store = Store(tmp_path / "answers.sqlite", bundle)
    first, second = store.join("a", "session"), store.join("b")
    assert store.join("c") is None
    assert store.join("a", "session").id == first.id  # the same person finds the place again
    answer_all(store, second, SimulatedParticipant())
    with sqlite3.connect(tmp_path / "answers.sqlite") as connection:
        connection.execute("UPDATE participant SET last = last - 601")
    store = Store(tmp_path / "answers.sqlite", bundle)
    assert store.join("c") is not None  # the place of the first; the second's stays taken
    assert store.join("d") is None


def test_a_page_is_stored_once(store):
    who = store.join()
    way = steps_of(store.bundle.study, who)
    agree = {"consent": "agree"}
    assert store.submit(who, way, 1, {"experience": 3}, {}) == "stale"  # not yet
    assert (store.submit(who, way, 0, agree, {}), store.submit(who, way, 0, agree, {})) == ("stored", "same")
    assert store.submit(who, way, 0, {"consent": "decline"}, {}) == "conflict"
    assert (store.answers(store.find(who.id)), store.find(who.id).step) == ({0: agree}, 1)


def test_many_threads_answer_one_page_once(store):
    who = store.join()
    way, outcomes = steps_of(store.bundle.study, who), []
    threads = [
        threading.Thread(target=lambda: outcomes.append(store.submit(who, way, 0, {"consent": "agree"}, {})))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(outcomes) == {"stored": 1, "same": 7}


def test_what_fails_stores_nothing(store, monkeypatch):
    who = store.join()
    way = steps_of(store.bundle.study, who)
    monkeypatch.setattr(
        "protometry.studies.store.json.dumps", lambda value: 1 / 0 if value == {"late": 1} else '"agree"'
    )
    with pytest.raises(ZeroDivisionError):
        store.submit(who, way, 0, {"consent": "agree"}, {"late": 1})
    assert (store.answers(who), store.find(who.id).step) == ({}, 0)
    assert store.submit(who, way, 0, {"consent": "agree"}, {}) == "stored"


def test_quiz_and_consent_decide_the_way(store):
    study = store.bundle.study
    way = steps_of(store.bundle.study, store.join())
    names = [step.page for step in way]
    first, second = names.index("quiz"), names.index("quiz_again")
    right = {"quiz.0": "1", "quiz.1": "2"}
    assert after(study, way, first, right) == (second + 1, "active")
    assert after(study, way, first, {**right, "quiz.0": "0"}) == (second, "active")
    again = {"quiz_again.0": "1", "quiz_again.1": "2"}
    assert after(study, way, second, again) == (second + 1, "active")
    assert after(study, way, second, {**again, "quiz_again.1": "0"}) == (second, "screened")
    assert after(study, way, 0, {"consent": "decline"}) == (0, "declined")
    assert after(study, way, len(way) - 1, {"comments": None}) == (len(way), "completed")


def test_a_clock_that_is_set_back_leaves_the_time_out(store, tmp_path, monkeypatch):
    who = store.join()
    store.open_page(who, "consent")
    store._opened.clear()  # as after a restart of the server
    monkeypatch.setattr("protometry.studies.store.time.time", lambda: who.joined - 3600)
    store.submit(who, steps_of(store.bundle.study, who), 0, {"consent": "agree"}, {})
    (visit,) = read_database(tmp_path / "answers.sqlite")[2]
    assert visit.seconds is None


@pytest.mark.parametrize("kind", ["text", "folder", "other", "torn"])
def test_a_file_that_is_no_database_of_answers_stays_as_it_is(tmp_path, kind):
    bundle, file = make_bundle(tmp_path / "study"), tmp_path / "mine/notes"
    file.parent.mkdir()
    if kind == "folder":
        file.mkdir()
    elif kind == "other":
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("CREATE TABLE bookmark (name TEXT)")
    else:
        file.write_bytes(b"my notes" if kind == "text" else b"SQLite format 3\0")
    before = file.stat()
    message = r"^Expected .*notes to be a database of answers, or new, but .*`--database`"
    with pytest.raises(ValueError, match=message), open_store(file, bundle):
        pass
    after = file.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (before.st_mode, before.st_mtime_ns, before.st_size)
    assert [path.name for path in file.parent.iterdir()] == ["notes"]


def test_a_database_that_cannot_be_written_is_one_line(tmp_path):
    bundle = make_bundle(tmp_path / "study")
    with closing(sqlite3.connect(tmp_path / "a.sqlite")) as connection:
        for name in ("study", "participant", "page", "answer"):
            connection.execute(f"CREATE TABLE {name} (other TEXT)")
    message = "to be a database that can be written, but no such column: id"
    with pytest.raises(ValueError, match=message), open_store(tmp_path / "a.sqlite", bundle):
        pass


def test_a_full_disk_is_said_as_of_any_file(tmp_path):
    bundle = make_bundle(tmp_path / "study", items=8)

    def until_it_is_full():
        with open_store(tmp_path / "a.sqlite", bundle) as own:
            own._connection.execute("PRAGMA max_page_count=1")
            while True:
                own.join()

    with pytest.raises(OSError, match="No space left on device") as said:
        until_it_is_full()
    assert (said.value.errno, said.value.filename) == (errno.ENOSPC, str(tmp_path / "a.sqlite"))


def test_a_disk_that_is_full_before_the_first_page_leaves_no_half_of_a_database(tmp_path, monkeypatch):
    bundle, connect = make_bundle(tmp_path / "study", items=8), sqlite3.connect

    def on_a_full_disk(*args, **options):
        connection = connect(*args, **options)
        if "uri" not in options:
            connection.execute("PRAGMA max_page_count=4")
        return connection

    with monkeypatch.context() as small:
        small.setattr(sqlite3, "connect", on_a_full_disk)
        with pytest.raises(OSError, match="No space left on device"), open_store(tmp_path / "a.sqlite", bundle):
            pass
    with open_store(tmp_path / "a.sqlite", bundle) as own:
        assert own.join().number == 1


def test_a_database_whose_log_was_not_moved_completely_goes_on(tmp_path):
    """As after a disk that was full, or a loss of power: part of its pages are in the log alone."""
    bundle, file = make_bundle(tmp_path / "study", items=8), tmp_path / "a.sqlite"
    log = file.with_name("a.sqlite-wal")
    with open_store(file, bundle) as own:
        own.join()
        before = log.read_bytes()
    file.write_bytes(file.read_bytes()[: 2 * 4096])
    log.write_bytes(before)
    with open_store(file, bundle) as own:
        assert own.join().number == 2


def test_a_database_belongs_to_one_study(store, tmp_path):
    other = make_bundle(tmp_path / "other", "distinction")
    with pytest.raises(ValueError, match="holds answers to the study 'toy'"):
        Store(tmp_path / "answers.sqlite", other)
    (tmp_path / "text.sqlite").write_text("no database", "utf-8")
    with pytest.raises(ValueError, match="is not a database of a study"):
        read_database(tmp_path / "text.sqlite")
    with pytest.raises(ValueError, match="is missing"):
        read_database(tmp_path / "none.sqlite")
