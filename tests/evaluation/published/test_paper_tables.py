"""The tables of papers: every published number has one place, and a wrong name is answered with the nearest."""

import pytest

from protometry.evaluation.published.paper_tables import TABLES, of_headings, paper_table


@pytest.mark.parametrize("name", TABLES)
def test_every_number_of_a_table_has_one_place(name):
    table = TABLES[name]
    places = [column.key + ending for column in table.columns for ending in table.rows.values()]
    keys = {record.metric_key for record in table.records}
    others = {key for key in keys if "cgim" in key and key.split("[")[0].endswith("class") != (name[-1] in "78")}
    assert (len(set(places)), keys - others) == (len(places), keys & set(places))
    assert table.records
    assert all(column.unit or column.key.startswith(("study/", "class_representation/")) for column in table.columns)


def test_directions_and_units_are_those_of_the_metrics():
    columns = {column.heading: column for column in TABLES["quanproto/5"].columns}
    assert (columns["VLC"].unit, columns["VLC"].higher_is_better) == ("fraction", False)
    assert (columns["IORD"].unit != "fraction", columns["IORD"].higher_is_better) == (True, True)
    risks = {column.higher_is_better for column in TABLES["hive/A4"].columns}
    assert (risks, TABLES["hive/1"].columns[0].higher_is_better) == ({None}, True)


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"one of quanproto/2, .* got 'quanprot/2'. Did you mean 'quanproto/2'"):
        paper_table("quanprot/2")
    with pytest.raises(ValueError, match=r"of quanproto/2, accuracy, .* got 'spars'. Did you mean 'sparsity'"):
        of_headings(paper_table("quanproto/2"), ["NPR", "spars"])
