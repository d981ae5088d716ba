"""Yaml files, in which a key may occur once, for parsers and where there is none."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader, set_loader

from protometry.run_folder.command_line.former_names import with_current_names

DEEPEST, MOST = 64, 100_000  # levels and values of a file
_load = get_loader("yaml")


def read_yaml(file: str | Path) -> Any:
    """The content of a yaml file, before a parser that knows its keys is imported, or where there is none.

    Raises:
        ValueError: if it is not yaml, a key occurs twice, or it holds too much, see :func:`load_yaml`.
    """
    try:
        text = Path(file).read_text("utf-8")
        _check(text)
        return with_current_names(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).replace('"<unicode string>"', str(file)).split())
        raise ValueError(f"Expected {file} to be a yaml file, but {reason}.") from error


def load_yaml(text: str) -> Any:
    """The content of a text, as parsers read it.

    Raises:
        ValueError: if a key occurs twice, or there are more than 64 levels or 100,000 values, each counted as often as
            aliases repeat it: ten lines can hold billions.
    """
    _check(text)
    return with_current_names(_load(text))


def _check(text: str) -> None:
    """Refuse keys that occur twice, where the parser would silently take the last, and what cannot be read in time.

    Raises:
        ValueError: see above; for anchors that hold themselves, too many levels, or too many values.
    """
    _values(yaml.compose(text, Loader=yaml.CSafeLoader), frozenset(), {})


def _values(node: yaml.Node | None, above: frozenset[int], known: dict[int, int]) -> int:
    """How many values a node has, each as often as aliases repeat it.

    Args:
        node: to look at; None for an empty text.
        above: the nodes that it lies in.
        known: numbers of the nodes that were looked at, which are added to.
    """
    if id(node) in above:
        raise ValueError(f"Expected no anchor to hold a reference to itself, but one does in {_place(node)}")
    if id(node) in known or not isinstance(node, yaml.CollectionNode):
        return known.get(id(node), 1)
    inner = list(chain(*node.value)) if isinstance(node, yaml.MappingNode) else node.value
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise ValueError(f"Expected every key once, but `{key.value}` appears twice in {_place(key)}")
            seen.add(key.value)
    if len(above) == DEEPEST:
        raise ValueError(f"Expected at most {DEEPEST} levels, but got more in {_place(node)}")
    known[id(node)] = 1 + sum(_values(each, above | {id(node)}, known) for each in inner)
    if known[id(node)] > MOST:
        raise ValueError(f"Expected at most {MOST:,} values, repeated ones counted, but got more in {_place(node)}")
    return known[id(node)]


def _place(node: yaml.Node) -> str:
    return f'"<unicode string>", line {node.start_mark.line + 1}, column {node.start_mark.column + 1}'


set_loader("yaml", load_yaml, exceptions=(yaml.YAMLError,))
