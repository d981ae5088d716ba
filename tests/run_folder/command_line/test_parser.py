"""Errors as the shell sees them."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from lightning.fabric.utilities.data import suggested_max_num_workers
from lightning.fabric.utilities.exceptions import MisconfigurationException

from protometry.lightning_modules import InterpretableModule
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.messages import ListError
from protometry.run_folder.command_line.parser import StrictParser


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (ValueError("Expected argument `x` to be 1, but got 2."), 2, "error: Expected argument `x` to be 1, but got"),
        (FileNotFoundError("Expected a file."), 2, "error: Expected a file.\n"),
        (RuntimeError("Expected a finite loss,\nbut got nan."), 2, "error: Expected a finite loss, but got nan.\n"),
        (
            ListError("Expected \x1b:\n  row  1\n  b\nMend."),
            2,
            "error: Expected \\x1b:\n  row 1\n  b\nMend.\n",
        ),
        (OSError(errno.ENOSPC, "No space", "a.csv"), 2, "error: [Errno 28] No space: 'a.csv'. Free some space"),
        (PermissionError(errno.EACCES, "Denied", "runs"), 2, "error: [Errno 13] Denied: 'runs'. Make the folder wri"),
        (RuntimeError("can't allocate memory: 9 GB"), 2, "error: Out of memory, or a number too large: can't allocate"),
        (RuntimeError("failed to listen. port: 80, name: EADDRINUSE"), 2, "error: Expected a free port by which the"),
        (RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "), 2, "error: Another process of this"),
        (RuntimeError("[gloo/pair.cc:561] Connection closed by peer"), 2, "error: Another process of this run has end"),
        (MisconfigurationException("`a` and `b` exclude"), 2, "error: `a` and `b` exclude\n"),
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


BOMB = b"b0: &b0 [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]\n"
BOMB += b"".join(b"b%d: &b%d [%s]\n" % (k, k, b", ".join([b"*b%d" % (k - 1)] * 10)) for k in range(1, 9))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"a: 1\nb: {c: 2, c: 3}\n", "Expected every key once, but `c` appears twice in FILE, line 2, column 11"),
        (b"a:\n\tb: 1\n", "cannot start any token in FILE, line 2, column 1"),
        (b"a: [1\n", "in FILE, line 1, column 4"),
        (b"", "FILE: Expected settings as `key: value`, but got only"),
        (b"\xff\xfe\x00", "FILE: Expected a text file in UTF-8"),
        (b"&a a: *a\nx: 1\n", "Option 'x' is not accepted"),
        (b"a: 1\nb: &b {c: [*b]}\n", "Expected no anchor to hold a reference to itself, but one does in FILE, line 2,"),
        (b"a: .inf\n", "Expected finite numbers only, but got inf as `a`"),
        (BOMB, "Expected at most 100,000 values, repeated ones counted, but got more in FILE, line 5, column 5"),
        (BOMB + b"? *b8\n: 1\n", "Expected at most 100,000 values"),  # as a key
        (b"a: " + b"[" * 65 + b"]" * 65, "Expected at most 64 levels, but got more in FILE, line 1, column 67"),
    ],
)
def test_an_error_in_a_config_names_file_and_line(text, said, tmp_path, capsys):
    parser = StrictParser()
    parser.add_argument("--config", action="config")
    parser.add_argument("--a", type=float | str)
    parser.add_argument("--b", type=dict)
    (tmp_path / "x.yaml").write_bytes(text)
    with pytest.raises(SystemExit):
        parser.parse_args(["--config", str(tmp_path / "x.yaml")])
    _, error = capsys.readouterr().err.splitlines()
    assert said.replace("FILE", str(tmp_path / "x.yaml")) in error


class Reader:
    def __init__(self, files: dict[str, str]):
        self.files = files


def test_a_home_folder_is_expanded_whatever_the_argument(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.yaml").write_text("place: {ours: ~/c, theirs: [~/d, ~nobody-here/e]}\n")
    parser, command = StrictParser(), StrictParser()
    command.add_argument("--config", action="config")
    command.add_argument("runs", nargs="+", type=str)
    command.add_argument("--out", type=Path | None)
    command.add_argument("--place", type=dict[str, str | list[str]])
    command.add_subclass_arguments(Reader, "read")
    parser.add_subcommands().add_subcommand("go", command)
    words = [
        "go",
        "~/a",
        "~",
        "b~",
        "--config=~/x.yaml",
        "--out=~/b",
        f"--read={__name__}.Reader",
        "--read.files={x: ~/f}",
    ]
    config = parser.parse_args(words).go
    assert config.runs == [f"{tmp_path}/a", str(tmp_path), "b~"]
    assert config.out == tmp_path / "b"
    assert config.place == {"ours": f"{tmp_path}/c", "theirs": [f"{tmp_path}/d", "~nobody-here/e"]}
    assert config.read.init_args.files == {"x": f"{tmp_path}/f"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train.py fit", "x'. Name another folder with `--runs` or `--experiment`.\n"),
        ("evaluate.py explain --output=x", "x'. Name another folder with `--output`.\n"),
        ("evaluate.py run", "x'. Name another folder.\n"),
    ],
)
def test_the_remedy_names_flags_of_the_command(words, said, monkeypatch, capsys):
    def command():
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory", "x")

    monkeypatch.setattr(sys, "argv", words.split())
    with pytest.raises(SystemExit):
        from_shell(command)
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.parametrize("call", ["from_shell(stop)", "expect_signals() or stop()"])
def test_an_interrupt_takes_one_line(call):
    code = [
        "import signal; from protometry.run_folder.command_line.ending import *",
        "signal.signal(signal.SIGINT, signal.default_int_handler)",  # which a process in the background lacks
        "stop = lambda: signal.raise_signal(signal.SIGINT)",
    ]
    result = subprocess.run(
        [sys.executable, "-c", "\n".join([*code, call])], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (130, "Stopped by Ctrl-C. Run the command again.\n")


def test_a_reader_that_has_seen_enough_is_no_error():
    code = "from protometry.run_folder.command_line.ending import from_shell; from_shell(lambda: print('x' * 10**6))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize("start", ["from_shell(show)", "look_at_names({'×': ''})", "studies.main(['--help'])"])
def test_an_output_that_is_not_utf8_ends_no_command(start):
    code = f"""
import sys
from protometry.lightning_modules import InterpretableModule
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.command_line.first_look import look_at_names
from protometry.studies import __main__ as studies
studies.COMMANDS["plan"] = ("×", "")
show = lambda: print("32 × 32 pixels")
sys.argv[1:] = ["--help"]
{start}
"""
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True).stdout
    assert b"?" in shown


def test_other_errors_keep_their_traceback():
    def command():
        raise ValueError("too many values to unpack")

    with pytest.raises(ValueError, match="too many values"):
        from_shell(command)


def test_what_lightning_itself_refuses_needs_no_traceback(capsys):
    with pytest.raises(SystemExit):
        from_shell(lambda: suggested_max_num_workers(0))
    assert capsys.readouterr().err == "error: `local_world_size` should be >= 1, got 0.\n"


def test_a_class_that_lacks_methods_is_refused_with_their_names(capsys):
    parser = StrictParser()
    parser.add_subclass_arguments(InterpretableModule, "model")
    with pytest.raises(SystemExit):
        parser.parse_args(["--model=protometry.lightning_modules.InterpretableModule"])
    assert "InterpretableModule to define `forward`, `head`, `units`, but it does not" in capsys.readouterr().err
