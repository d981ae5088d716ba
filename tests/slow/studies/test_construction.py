"""Rows and questions that show attention, from building a study to its analysis."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from protometry.studies.analysis.analyse import analyse
from protometry.studies.analysis.graded import grade
from protometry.studies.participants import read_database, steps_of
from protometry.studies.server.pages import Pages as ShownPages
from protometry.studies.simulation.observer import SimulatedParticipant
from protometry.studies.simulation.simulate import simulate
from tests.studies.test_construction import PLACES
from tests.studies.toy import TASKS, read_rows


@pytest.mark.parametrize("task", TASKS)
def test_rows_and_questions_that_show_attention(run, tmp_path, task):
    """One item more for every two has a question or two rows; who rates the rows as they are is not flagged.

    Nothing that is counted sees them, and everybody sees both.
    """
    bundle, _ = run("ProtoPNet", task=task, items=4, catch_every=2, places=replace(PLACES, people=2))
    (arm,), key = bundle.study.arms, bundle.key.items
    without, _ = run("ProtoPNet", "without", task=task, items=4, salt=bundle.key.salt)
    assert arm.items == without.study.arms[0].items
    assert len({key[item.id].image for item in (*arm.items, *arm.checks)}) == 10
    (caught,) = [item for item in arm.checks if key[item.id].catch]
    assert [item.attention is None for item in arm.checks] == [item is caught for item in arm.checks]
    rows = {f"similarity.{row.id}": row for option in caught.options for row in option.rows}
    names = [one for row in rows.values() for one in row.pictures]
    own = np.asarray(Image.open(bundle.folder / "media" / caught.photo).resize((32, 32)), int)
    for question, allowed in key[caught.id].catch.items():
        shown = [Image.open(bundle.folder / "media" / name) for name in rows[question].pictures]
        photo, region, piece, source = (np.asarray(picture.resize((32, 32)), int) for picture in shown)
        alike = [abs(one - other).mean() < 8 for one, other in ((photo, source), (region, piece))]
        assert alike == [allowed == ["4"]] * 2
        assert np.median(abs(photo - own)) < 8  # it is about the photo of the item, with a box
        assert allowed in (["4"], ["1", "2"])
        assert all(names.count(one) == 1 for one in rows[question].pictures)  # twice would give the row away
    for policy in ("noisy", "straight_liner"):
        simulate(bundle.folder, tmp_path / f"{policy}.sqlite", SimulatedParticipant(policy), 2)
        summary = analyse(bundle.folder, tmp_path / f"{policy}.sqlite", tmp_path / policy)
        assert ("failed_catch" in summary["participants"]["flags"]) == (policy == "straight_liner")
    _, people, visits = read_database(tmp_path / "noisy.sqlite")
    graded = grade(bundle, people, visits)
    assert [{one.item.id for one in person.checks} for person in graded] == [{item.id for item in arm.checks}] * 2
    assert [sum(one.key.right for one in person.items) for person in graded] == [2, 2]
    assert [len(person.items) for person in graded] == [4, 4]
    table = [row for row in read_rows(tmp_path / "noisy/answers.csv") if row["prediction"] == "check"]
    assert {row["item"] for row in table} == {item.id for item in arm.checks}
    assert {row["right"] for row in table} == {""}
    way = steps_of(bundle.study, people[0])
    given = {visit.step: visit.answers for visit in visits if visit.number == 1}
    assert " of 4 " in ShownPages(bundle)._result(way, arm, given)
