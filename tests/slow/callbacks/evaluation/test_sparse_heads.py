from tests.callbacks.evaluation.test_sparse_heads import assert_reads_no_other_unit


def test_both_metrics_share_the_heads_where_all_units_stand_for_concepts(monkeypatch):
    assert_reads_no_other_unit(monkeypatch, others=0)
