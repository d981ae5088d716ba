"""Mistakes end in one clear error: settings before work, bad numbers at once."""

from tests.tiny_runs import fit_args, start


def test_a_mistake_in_a_process_of_its_own(tmp_path):
    process = start(*fit_args(tmp_path / "run", "--model.preset=fast"), stderr=-1)
    _, said = process.communicate()
    assert process.returncode == 2
    assert said.splitlines()[-1].startswith("error: Expected argument `preset` to be one of")
    assert "Traceback" not in said
