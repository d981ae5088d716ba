"""The format of ProtoTree in the released code of Nauta et al. 2021, with the positions of its nodes.

Its state dict names leaves by their path from the root, which pruning shortens, and keeps the prototypes in an order
that follows from addresses in memory. A file must therefore contain the ``index`` of every remaining node, in pre-order
of the complete tree, and the prototype of every index (``out_map``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.lightning_modules.prototree import ProtoTree
from protometry.lightning_modules.released.format import Contents, Format
from protometry.run_folder.schema import Record, check_content

LEAF = "._dist_params"
LEAST = 1e-10  # added by the released code to a share before its logarithm


class Structure(Record):
    """The content of a file other than tensors."""

    nodes: dict[str, int]
    out_map: dict[int, int]
    kontschieder_normalization: bool


def heap_positions(depth: int) -> list[int]:
    """The position in heap order of every node and leaf of a complete tree, given in pre-order.

    Example:
        >>> heap_positions(2)
        [0, 1, 3, 4, 2, 5, 6]
    """
    positions, waiting = [], [0]
    while waiting:
        position = waiting.pop()
        positions.append(position)
        if position < 2**depth - 1:
            waiting += [2 * position + 2, 2 * position + 1]
    return positions


def _in_heap_order(model: ProtoTree, contents: Contents, form: Format) -> dict[str, Tensor]:
    """Prototypes and leaves at their positions; a subtree that the file lacks is cut off."""
    remedy = (
        "Without it no state dict of a ProtoTree is complete: its prototypes are stored in no particular order. Write "
        f"it where the authors' code can be imported, with these three lines: {form.lines(contents.file)}"
    )
    check_content(Structure, dict(contents.settings), contents.file, remedy)
    tensors = {name: tensor for name, tensor in contents.tensors.items() if not name.endswith(LEAF)}
    leaves = {name.removesuffix(LEAF): t for name, t in contents.tensors.items() if name.endswith(LEAF)}
    rows, positions = _structure(model, contents, list(leaves))
    if "prototypes.vectors" in tensors:
        tensors["prototypes.vectors"] = tensors["prototypes.vectors"][rows]
    known = torch.stack(list(leaves.values()))
    if contents.settings["kontschieder_normalization"]:  # shares of a sum instead of a softmax
        known = (known / known.sum(dim=1, keepdim=True) + LEAST).log()
    number = len(model.tree.leaf_logits)
    model.tree.keep(torch.zeros(number, dtype=torch.bool).index_fill(0, positions, True))
    every = known.new_zeros(number, known.shape[1]).index_copy(0, positions, known)
    structure = {"tree.leaf_logits": every, "tree.route": model.tree.route, "prototypes.active": model.tree.active()}
    return tensors | structure


def _structure(model: ProtoTree, contents: Contents, leaves: list[str]) -> tuple[list[int], Tensor]:
    """The row of the prototype of every node in heap order, and the position of every remaining leaf."""
    nodes, rows = contents.settings["nodes"], contents.settings["out_map"]
    if len(rows) != model.tree.nodes:
        raise ValueError(
            f"Expected argument `depth` to be {len(rows).bit_length()}, as in {contents.file}, which has {len(rows)} "
            f"prototypes, but got {model.tree.depth}."
        )
    heap = heap_positions(model.tree.depth)
    row_of_node = {heap[index]: row for index, row in rows.items() if 0 <= index < len(heap)}
    positions = [heap[nodes[name]] - model.tree.nodes for name in leaves if 0 <= nodes.get(name, -1) < len(heap)]
    whole = sorted(row_of_node) == sorted(row_of_node.values()) == list(range(model.tree.nodes))
    if (
        not whole
        or len(positions) != len(leaves)
        or len(set(positions)) != len(positions)
        or min(positions, default=-1) < 0
    ):
        raise ValueError(f"Expected `nodes` and `out_map` in {contents.file} to be of one tree, but they are not.")
    return [row_of_node[position] for position in range(model.tree.nodes)], torch.tensor(positions)


FORMAT = Format(
    code="released code of Nauta et al. 2021",
    names={"_net.": "backbone.net.", "_add_on.": "addon.", "prototype_layer.prototype_vectors": "prototypes.vectors"},
    arguments={"backbone.strides": ("standard",)},
    sizes=("backbone.name", "depth", "prototype_channels"),
    whole="model.pth",
    settings='{"nodes": {name: m.index for name, m in model.named_modules() if name.startswith("_root")}, "out_map": '
    '{m.index: row for m, row in model._out_map.items()}, "kontschieder_normalization": '
    "model._kontschieder_normalization}",
    adapt=_in_heap_order,
)
