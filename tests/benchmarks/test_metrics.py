"""The benchmark of metrics feeds every metric what it reads."""

import pytest

from benchmarks import metrics


@pytest.mark.parametrize("make", [metrics.map_work, metrics.saliency_work, metrics.perturbation_work])
def test_all_work_can_be_done(make, monkeypatch):
    monkeypatch.setattr(metrics, "SEEN", 2)
    for work in make(1).values():
        work()
