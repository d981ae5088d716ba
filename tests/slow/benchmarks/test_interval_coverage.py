import pytest

from benchmarks.interval_coverage import CASES
from tests.benchmarks.test_interval_coverage import test_nine_of_ten_intervals_hold_the_truth_from_30_images_on as held


@pytest.mark.parametrize("case", [case for case in CASES if "100 classes" in case.name and case.claimed])
def test_many_classes(case):
    held(case)
