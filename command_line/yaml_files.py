"""Yaml files, in which a key may occur once, for parsers and where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from jsonargparse import get_loader, set_loader

from protometry.command_line.former_names import with_current_names

_load = get_loader("yaml")


def read_yaml(file: str | Path) -> Any:
    """The content of a yaml file, before a parser that knows its keys is imported, or where there is none.

    Raises:
        ValueError: if it is not yaml, or a key occurs twice.
    """
    try:
        text = Path(file).read_text("utf-8")
        _refuse_duplicates(text)
        return with_current_names(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).replace('"<unicode string>"', str(file)).split())
        raise ValueError(f"Expected {file} to be a yaml file, but {reason}.") from error


def load_yaml(text: str) -> Any:
    """The content of a text, as parsers read it.

    Raises:
        ValueError: if a key occurs twice.
    """
    _refuse_duplicates(text)
    return with_current_names(_load(text))


def _refuse_duplicates(text: str) -> None:
    """Refuse duplicate keys, where the parser would silently take the last value, and anchors that hold themselves."""
    nodes: list[tuple[Any, frozenset[int]]] = [(yaml.compose(text, Loader=yaml.CSafeLoader), frozenset())]
    seen = set()
    while nodes:
        node, above = nodes.pop()
        if id(node) in above:
            raise ValueError(
                f'Expected no anchor to hold a reference to itself, but one does in "<unicode string>", {_place(node)}'
            )
        if id(node) in seen or not isinstance(node, yaml.CollectionNode):
            continue
        seen.add(id(node))
        above |= {id(node)}
        if not isinstance(node, yaml.MappingNode):
            nodes += [(item, above) for item in node.value]
            continue
        keys = [str(key.value) for key, _ in node.value]
        for index, (key, value) in enumerate(node.value):
            if keys[index] in keys[:index]:
                raise ValueError(
                    f'Expected every key once, but `{keys[index]}` appears twice in "<unicode string>", {_place(key)}'
                )
            nodes.append((value, above))


def _place(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"


set_loader("yaml", load_yaml, exceptions=(yaml.YAMLError,))
