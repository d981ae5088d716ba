"""Errors as the shell sees them."""

import pytest

from callbacks.run.command_line import from_shell


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (ValueError("Expected argument `x` to be 1, but got 2."), 2, "error: Expected argument `x` to be 1, but got"),
        (FileNotFoundError("Expected a file."), 2, "error: Expected a file.\n"),
    ],
)
def test_the_shell_sees_one_line(raised, code, said, capsys):
    def command():
        try:
            raise raised
        except type(raised) as cause:
            raise ValueError("Does not validate against any of the Union subtypes") from cause

    with pytest.raises(SystemExit) as end:
        from_shell(command)
    assert end.value.code == code
    assert capsys.readouterr().err.startswith(said)


def test_other_errors_keep_their_traceback():
    def command():
        raise ValueError("too many values to unpack")

    with pytest.raises(ValueError, match="too many values"):
        from_shell(command)
