"""Recorded operations between images and latent, and the walk of relevance back along them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary, ref

from torch import Tensor, nn

from protometry.explanations.relevance.convolution_rules import Filters, Scale, Weighted
from protometry.explanations.relevance.operations import Bounds, Operation
from protometry.explanations.relevance.prp_and_lrp_rules import Branching, settle
from protometry.explanations.relevance.window import Window, narrowed


@dataclass(eq=False)
class _State:
    """The tensors of a model at one moment, and its filters.

    Args:
        key: identity, address and version of every parameter and buffer.
        tensors: their values, which keeps the addresses from being used again.
        filters: by the identity of a weight and of the variance of the BatchNorm folded into it.
    """

    key: tuple[tuple[int, int, object], ...]
    tensors: list[Tensor]
    filters: dict[tuple[int, int | None], Filters] = field(default_factory=dict)

    def filters_of(self, weight: Tensor, scale: Scale | None) -> Filters:
        """The filters of a layer, made once if its weight belongs to the model."""
        name = (id(weight), None if scale is None else id(scale[0]))
        filters = self.filters.get(name) or Filters(weight, scale)
        if any(entry[0] == id(weight) for entry in self.key):
            self.filters[name] = filters
        return filters


_states: WeakKeyDictionary[nn.Module, _State] = WeakKeyDictionary()


def _key(model: nn.Module) -> tuple[tuple[int, int, object], ...]:
    """What changes when a tensor of the model is changed or replaced; not equal to itself if that is unknown."""
    return tuple(
        (id(tensor), tensor.data_ptr(), object() if tensor.is_inference() else tensor._version)
        for tensor in chain(model.parameters(), model.buffers())
    )


def _state(model: nn.Module) -> _State:
    key = _key(model)
    if model not in _states or _states[model].key != key:
        _states[model] = _State(key, [tensor.detach() for tensor in chain(model.parameters(), model.buffers())])
    return _states[model]


class Tape:
    """The operations between the images of one batch and the latent, each with its rule."""

    def __init__(
        self, model: nn.Module, images: Tensor, scheme: Bounds, nodes: list[Operation], latent: Operation
    ) -> None:
        self.images, self.scheme, self.latent = images, scheme, latent
        self._model, self._state = ref(model), _state(model)
        self._root = nodes[0]
        wanted = {latent}
        for node in reversed(nodes):
            if node in wanted:
                wanted.update(self._sources(node))
        self.nodes = [node for node in nodes[1:] if node in wanted]
        self._fold()

    def _sources(self, node: Operation) -> tuple[Operation, ...]:
        """Where relevance goes; from a layer that sees pixels, directly to them."""
        sees_pixels = isinstance(node.rule, Weighted) and node.rule.bounds is not None
        return (self._root,) if sees_pixels else node.inputs

    def _fold(self) -> None:
        """Give every layer its filters, times the factor of the BatchNorm that alone reads it."""
        scales = {node.inputs[0]: node.scale for node in self.nodes if node.scale and node.inputs[0].readers == 1}
        for node in self.nodes:
            if isinstance(node.rule, Weighted):
                weight, scale = node.rule.filters.weight, scales.get(node)
                node.rule.filters = self._state.filters_of(weight, scale)

    @property
    def obstacle(self) -> Operation | None:
        """The first operation that relevance cannot pass."""
        return next((node for node in self.nodes if node.rule is None), None)

    def fits(self, model: nn.Module, images: Tensor, scheme: Bounds) -> bool:
        """Whether this is what the model, as it is now, computes for these images."""
        same = self._model() is model and self.images is images and self.scheme == scheme
        return same and self._state.key == _key(model)

    def backward(self, start: Tensor, cells: Tensor | None = None) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Pass relevance from the latent to the pixels.

        Args:
            start: ``(B, D, h, w)``, relevance of the latent; overwritten.
            cells: ``(B,)`` int64, the one cell (row times w plus column) of each image with relevance, if it is one:
                layers near the latent are then computed where relevance is, only.

        Returns:
            ``(B, H, W)``, summed over RGB; and, for every layer with outputs carried by their bias, its weight and the
            sum of |R| of these outputs.
        """
        first = None if cells is None else Window.of_cells(cells, (start.shape[2], start.shape[3]))
        waiting: dict[Operation, tuple[Tensor, Window | None]] = {
            self.latent: (start if first is None else first.take(start), first)
        }
        bypass = []
        steps = self._steps(first)
        settle(rule for _, rule, _ in steps if isinstance(rule, Branching))
        for node, rule, inner in steps:
            relevance, window = waiting.pop(node)
            if window is not None and inner[0] is None:
                relevance = window.put(relevance)
            if isinstance(rule, Weighted) and (carried := rule.bypass(relevance)) is not None:
                bypass.append((rule.filters.weight, carried))
            for source, share, where in zip(self._sources(node), rule(relevance), inner, strict=True):
                part = share.sum(1, keepdim=True) if source is self._root else share
                waiting[source] = _added(waiting.get(source), part, where)
        pixels, window = waiting[self._root]
        return (pixels if window is None else window.put(pixels)).sum(1), bypass

    def _steps(self, first: Window | None) -> list[tuple[Operation, Any, Sequence[Window | None]]]:
        """Every operation on the way back, with the rule within its window and the windows of what it reads."""
        windows: dict[Operation, Window | None] = {self.latent: first}
        steps: list[tuple[Operation, Any, Sequence[Window | None]]] = []
        for node in reversed(self.nodes):
            window, sources = windows.pop(node), self._sources(node)
            cut = None if window is None else narrowed(node.rule, window)
            rule: Any
            inner: Sequence[Window | None]
            rule, inner = (node.rule, [None] * len(sources)) if cut is None else cut
            for source, where in zip(sources, inner, strict=True):
                windows[source] = where if windows.get(source, where) is where else None
            steps.append((node, rule, inner))
        return steps


def _added(
    earlier: tuple[Tensor, Window | None] | None, part: Tensor, window: Window | None
) -> tuple[Tensor, Window | None]:
    """Relevance that waits for an operation, and another share of it; both whole if their windows differ."""
    if earlier is None:
        return part, window
    tensor, other = earlier
    if other is not window:
        tensor, part = (whole if w is None else w.put(whole) for whole, w in ((tensor, other), (part, window)))
        window = None
    return tensor.add_(part), window
