"""The drawing of a tree, against one drawn by hand."""

from __future__ import annotations

import pytest

from protometry.studies.tree import draw


def test_a_path_is_where_its_decisions_lead():
    """Leaves at 7, 21, 35, 49, 63; absent to the left. The second level and below are left to the participant."""
    tree = draw("nlnnllnll", ["present"], has_open=True)
    assert [leaf.x for leaf in tree.leaves] == [7, 21, 35, 49, 63]
    assert tree.decided == [(24.5, 15)]
    assert tree.open == [(42, 45), (28, 75), (56, 75)]
    assert tree.taken == "M24.5 15L42 45"
    assert tree.branches.count("M") == 8
    assert (tree.nodes, tree.width, tree.height) == (4, 70, 135)


@pytest.mark.parametrize(
    ("shape", "decisions", "has_open"),
    [
        ("nl", [], False),
        ("nlll", [], False),
        ("nxl", [], False),
        ("nll", ["absent", "absent"], False),
        ("nll", ["absent"], True),
        ("nlnll", [], True),
    ],
)
def test_what_is_no_tree_or_another_one_is_refused(shape, decisions, has_open):
    with pytest.raises(ValueError, match="the"):
        draw(shape, decisions, has_open)
