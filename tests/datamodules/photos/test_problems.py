"""One error says everything that is wrong."""

import pytest

from protometry.datamodules.photos.problems import Problems


def test_counts_all_and_lists_a_hundred():
    problems = Problems("toy data", "Get it again.")
    for number in range(102):
        problems.wrong(f"row {number}")
    with pytest.raises(ValueError, match=r"(?s)102 problems:.*row 0\.\n.*row 99\.\n  \.\.\. and 2 more\n") as caught:
        problems.raise_any()
    assert "row 100" not in str(caught.value)


def test_missing_file_decides_the_type():
    problems = Problems("toy data", "Get it again.")
    problems.wrong("a")
    problems.missing("b is missing")
    with pytest.raises(FileNotFoundError, match="2 problems"):
        problems.raise_any()
