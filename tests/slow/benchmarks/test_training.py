"""The benchmark of training runs prints its table."""

SMALL = ["--backbone", "sketch", "--pixels", "40", "--classes", "4", "--batch", "4", "--steps", "1", "--repeats", "1"]


def test_the_table_is_printed(training, capsys):
    training.main([*SMALL, "--threads", "1"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if " | " in line][1:]
    assert [row[0].removeprefix("| ") for row in rows] == training.MODELS
    assert all(float(row[6]) > 0 for row in rows)
