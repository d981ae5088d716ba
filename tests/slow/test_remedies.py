"""What a message advises can be typed: the commands, flags and settings that it names in backticks exist."""

import ast
import io
import re
from contextlib import redirect_stdout, suppress
from inspect import signature
from itertools import chain

import pytest

import protometry.studies.__main__
import protometry.sweeps.__main__
from protometry import datamodules, lightning_modules
from protometry.datamodules.__main__ import main as check
from protometry.scripts import evaluate, train
from tests.pages import ROOT
from tests.test_architecture import MAY_IMPORT

COMMANDS = {
    "train.py": (train.main, ("fit",)),  # the others have fewer
    "evaluate.py": (evaluate.main, evaluate.COMMANDS),
    "datamodules": (check, ("check",)),
    "studies": (protometry.studies.__main__.main, protometry.studies.__main__.COMMANDS),
    "sweeps": (protometry.sweeps.__main__.main, protometry.sweeps.__main__.COMMANDS),
}


OF_TRAINING = ("callbacks", "train.py", "run_folder/folder.py")  # which only train.py uses


NAMED = re.compile(r"(train\.py|evaluate\.py|datamodules|studies|sweeps) (\w+)")


FLAG = re.compile(r"--([a-z_]+(?:\.[a-z_]+)*)")


SETTING = re.compile(r"^((?:model|data|trainer|evaluation)\.[a-z_]+(?:\.[a-z_]+)*)")


def advice(path):
    """The texts in backticks of a source file, without docstrings; values are shown as ``{}``."""
    tree = ast.parse(path.read_text("utf-8"))
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and id(node) not in left_out else None
        if isinstance(node, ast.JoinedStr):
            left_out |= {id(value) for value in node.values}
            text = "".join(value.value if isinstance(value, ast.Constant) else "{}" for value in node.values)
        yield from re.findall(r"`([^`]+)`", text) if isinstance(text, str) else ()


@pytest.fixture(scope="module")
def flags():
    """The flags of every command, as its help lists them."""
    known = {}
    for main, (call, names) in COMMANDS.items():
        for name in names:
            with redirect_stdout(io.StringIO()) as said, suppress(SystemExit):
                call([name, "--help"])
            known[main, name] = {*FLAG.findall(said.getvalue())}
    return known


def unknown(text, known):
    """The flags and settings in a text that no command takes."""
    classes = {"model": lightning_modules, "data": datamodules}
    named = [*FLAG.findall(text), *SETTING.findall(text)]
    for name in named:
        part, _, argument = re.sub(r"init_args\.?", "", name).partition(".")
        if part in classes:
            kinds = (getattr(classes[part], each) for each in classes[part].__all__)
            bases = {base for kind in kinds for base in getattr(kind, "__mro__", ())}
            if argument and not any(argument.split(".")[0] in signature(b.__init__).parameters for b in bases):
                yield name
        elif name not in known:
            yield name


def test_a_message_names_only_what_can_be_typed(flags):
    sources = chain(*((ROOT / name).rglob("*.py") for name in MAY_IMPORT), [ROOT / "train.py", ROOT / "evaluate.py"])
    wrong = []
    for path in sources:
        name = path.relative_to(ROOT).as_posix()
        for text in advice(path):
            command = NAMED.search(text)
            if command and command.groups() not in flags:
                wrong.append((name, text))
                continue
            training = flags["train.py", "fit"]
            known = training if name.startswith(OF_TRAINING) else training.union(*flags.values())
            wrong += [(name, each) for each in unknown(text, flags[command.groups()] if command else known)]
    assert wrong == []
    found = unknown("--trainer.epochs and --model.phases.joint and --data.rot", flags["train.py", "fit"])
    assert list(found) == ["trainer.epochs", "data.rot"]
