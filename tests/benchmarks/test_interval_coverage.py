import pytest

from benchmarks.interval_coverage import CASES, coverage

CLAIMED = [case for case in CASES if case.claimed and "100 classes" not in case.name]  # which tests/slow has


@pytest.mark.parametrize("case", CLAIMED, ids=lambda case: case.name)
def test_nine_of_ten_intervals_hold_the_truth_from_30_images_on(case):
    result = coverage(case, 400)
    held = [share for n, (share, _) in result.items() if n >= 30 or "classes" in case.name]
    assert min(held) >= 0.9 - 2 * 0.015  # two standard errors of 400 draws
