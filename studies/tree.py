"""The shape of a decision tree, and the path of a photo in it, as a drawing.

A shape is a word of ``n`` for a node and ``l`` for a leaf: first the node, then all that follows the absence of its
unit, then all that follows its presence. ``nnlll`` is a tree of two nodes; the second follows an absence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

STEP = (14, 30)  # between neighbouring leaves and between levels


class Point(NamedTuple):
    """A place in the drawing."""

    x: float
    y: float


@dataclass(frozen=True)
class Drawing:
    """A tree with the path of a photo.

    Attributes:
        width: of the drawing.
        height: of the drawing.
        branches: all edges, as the ``d`` of an SVG path.
        taken: the edges on the path of the photo.
        decided: nodes that have been decided.
        open: nodes that are left to the participant.
        leaves: all leaves.
        nodes: number of nodes.
    """

    width: float
    height: float
    branches: str
    taken: str
    decided: list[Point]
    open: list[Point]
    leaves: list[Point]
    nodes: int


@dataclass
class _Node:
    place: Point
    children: list[_Node] = field(default_factory=list)


def draw(shape: str, decisions: Sequence[str | None], has_open: bool) -> Drawing:
    """Draw a tree.

    Args:
        shape: of the whole tree.
        decisions: ``present`` or ``absent`` from the first node on.
        has_open: whether the node after them and its two successors are left to the participant.

    Example:
        >>> tree = draw("nnlll", ["absent", "present"], has_open=False)
        >>> tree.nodes, len(tree.leaves), tree.taken
        (2, 3, 'M24.5 15L14 45M14 45L21 75')

    Raises:
        ValueError: if the shape is none, or the decisions lead beyond it.
    """
    rest, leaves, every = iter(shape), list[_Node](), list[_Node]()
    root = _grow(rest, 0, leaves, every)
    taken = [root]
    for decision in decisions:
        if not taken[-1].children:
            raise ValueError("the decisions continue past the end of the tree")
        taken.append(taken[-1].children[decision == "present"])
    after = [taken[-1], *taken[-1].children] if has_open else []
    if next(rest, None) is not None or any(not one.children for one in after) or len(after) == 1:
        raise ValueError("the shape belongs to another tree")
    edges = [(one.place, child.place) for one in every for child in one.children]
    levels = max(one.place.y for one in every)
    return Drawing(
        width=len(leaves) * STEP[0],
        height=levels + STEP[1],
        branches=_lines(edges),
        taken=_lines([(one.place, child.place) for one, child in pairwise(taken)]),
        decided=[one.place for one in taken[:-1]],
        open=[one.place for one in after],
        leaves=[one.place for one in leaves],
        nodes=len(every) - len(leaves),
    )


def _grow(shape: Iterator[str], level: int, leaves: list[_Node], every: list[_Node]) -> _Node:
    """The node or leaf that a shape begins with; it and all below it are added to ``every``."""
    kind, y = next(shape, ""), STEP[1] * (level + 0.5)
    if kind == "n":
        children = [_grow(shape, level + 1, leaves, every) for _ in range(2)]
        node = _Node(Point(sum(child.place.x for child in children) / 2, y), children)
    elif kind == "l":
        node = _Node(Point(STEP[0] * (len(leaves) + 0.5), y))
        leaves.append(node)
    else:
        raise ValueError("the shape is not a word of n and l that ends with its last leaf")
    every.append(node)
    return node


def _lines(edges: Sequence[tuple[Point, Point]]) -> str:
    return "".join(f"M{start.x:g} {start.y:g}L{end.x:g} {end.y:g}" for start, end in edges)
