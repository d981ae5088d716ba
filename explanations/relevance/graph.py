"""What a network computed on the way from images to latent, recorded while it ran, and the walk back along it.

The model's own forward pass runs once; every operation on a tensor that depends on the images is noted with the rule by
which relevance passes it, which holds what it needs to know of the images. Nothing is traced beforehand, so there is no
graph that could differ from what was computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, cast
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from explanations.relevance.operations import HANDLERS, Bounds, Context, Node
from explanations.relevance.rules import Filters, Scale, Weighted
from explanations.relevance.window import Window, narrowed
from lightning_modules.contract import InterpretableModel, ModelOutput

_OUT_OF_PLACE = {"add_": torch.add, "relu_": torch.relu}
_UNCHANGED = ("contiguous", "float", "dropout", "dropout1d", "dropout2d", "dropout3d")  # if they return their input


class OverwrittenError(ValueError):
    """A model reads a tensor that it changed in place, so that recording would change what it computes."""


class _Recorder(TorchFunctionMode):
    """Notes every operation on tensors that depend on the images.

    Operations in place run out of place, since what the rules saw must not change.
    """

    def __init__(self, images: Tensor, scheme: Bounds) -> None:
        super().__init__()
        extremes = torch.tensor([0.0, 1.0], device=images.device).view(2, 1, 1, 1)
        root = Node("images", non_negative=True, bounds=extremes.expand(2, images.shape[1], 1, 1))
        self.order = [root]
        self.of = WeakTensorKeyDictionary({images: root})
        self.scheme: Bounds = scheme
        self.place = ("", "")
        self._overwritten = WeakTensorKeyDictionary()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operation and note it."""
        options = dict(kwargs or {})
        sources = [tensor for tensor in _tensors((*args, *options.values())) if tensor in self.of]
        if not sources:
            return func(*args, **options)
        name = func.__name__
        in_place = args and args[0] is sources[0] and (name in _OUT_OF_PLACE or options.pop("inplace", False))
        func = cast(Callable[..., Any], _OUT_OF_PLACE.get(name, func) if in_place else func)
        winners = None
        if name == "max_pool2d" and not options.get("return_indices"):
            output, winners = F.max_pool2d(*args, **options | {"return_indices": True})
        else:
            output = func(*args, **options)
        same = any(output is tensor for tensor in sources)
        if (same and name in _UNCHANGED) or not _tensors((output,)):
            return output
        self._refuse_overwritten(name, sources)
        if in_place:
            self._overwritten[args[0]] = True
        node = self._note(Node(name, tuple(self.of[tensor] for tensor in sources), place=self.place), output)
        if isinstance(output, Tensor) and not same and name in HANDLERS:
            context = Context(node, func, sources, output, winners, self.scheme)
            node.rule = HANDLERS[name](context, *args, **options)
        return output

    def _note(self, node: Node, output: Any) -> Node:
        for source in node.inputs:
            source.readers += 1
        for tensor in _tensors((output,)):
            self.of[tensor] = node
        self.order.append(node)
        return node

    def _refuse_overwritten(self, name: str, sources: list[Tensor]) -> None:
        if any(tensor in self._overwritten for tensor in sources):
            raise OverwrittenError(
                "Expected a model that does not read a tensor again after changing it in place, but "
                f"{name!r} in {self.place[0]!r} does."
            )

    @contextmanager
    def places(self, model: nn.Module) -> Iterator[None]:
        """Note with every operation which module it runs in."""
        stack = [self.place]

        def enter(place: tuple[str, str], *_: object) -> None:
            stack.append(place)
            self.place = place

        def leave(*_: object) -> None:
            stack.pop()
            self.place = stack[-1]

        handles = []
        for path, module in model.named_modules():
            handles.append(module.register_forward_pre_hook(partial(enter, (path, type(module).__name__))))
            handles.append(module.register_forward_hook(leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among some values and in the lists among them."""
    flat = chain.from_iterable(value if isinstance(value, list | tuple) else (value,) for value in values)
    return [value for value in flat if isinstance(value, Tensor)]


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
    """What changes when a tensor of the model is changed or replaced; not equal to itself if that cannot be told."""
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
    """The operations between the images of one batch and the latent, each with its rule.

    Args:
        model: what was recorded.
        images: ``(B, 3, H, W)``.
        scheme: where pixel bounds come from.
        nodes: in the order of computation, the images first.
        latent: the last one that matters.
    """

    def __init__(self, model: nn.Module, images: Tensor, scheme: Bounds, nodes: list[Node], latent: Node) -> None:
        self.images, self.scheme, self.latent = images, scheme, latent
        self._model, self._state = ref(model), _state(model)
        self._root = nodes[0]
        wanted = {latent}
        for node in reversed(nodes):
            if node in wanted:
                wanted.update(self._sources(node))
        self.nodes = [node for node in nodes[1:] if node in wanted]
        self._fold()

    def _sources(self, node: Node) -> tuple[Node, ...]:
        """Where relevance goes; that of a layer that sees pixels goes to them at once."""
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
    def obstacle(self) -> Node | None:
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
            ``(B, H, W)``, summed over RGB; and, of every layer some outputs of which are carried by their bias, its
            weight and the sum of |R| of these outputs.
        """
        first = None if cells is None else Window.of_cells(cells, (start.shape[2], start.shape[3]))
        waiting: dict[Node, tuple[Tensor, Window | None]] = {
            self.latent: (start if first is None else first.take(start), first)
        }
        bypass = []
        for node in reversed(self.nodes):
            relevance, window = waiting.pop(node)
            rule, inner = cast(Any, node.rule), cast("list[Window | None]", [None] * len(self._sources(node)))
            if window is not None:
                if (cut := narrowed(rule, window)) is None:
                    relevance = window.put(relevance)
                else:
                    rule, inner[:] = cut
            if isinstance(rule, Weighted) and (carried := rule.bypass(relevance)) is not None:
                bypass.append((rule.filters.weight, carried))
            for source, share, where in zip(self._sources(node), rule(relevance), inner, strict=True):
                part = share.sum(1, keepdim=True) if source is self._root else share
                waiting[source] = _added(waiting.get(source), part, where)
        pixels, window = waiting[self._root]
        return (pixels if window is None else window.put(pixels)).sum(1), bypass


def _added(
    found: tuple[Tensor, Window | None] | None, part: Tensor, window: Window | None
) -> tuple[Tensor, Window | None]:
    """Relevance that waits for an operation, and another share of it; both whole if their windows differ."""
    if found is None:
        return part, window
    tensor, other = found
    if other is not window:
        tensor, part = (whole if w is None else w.put(whole) for whole, w in ((tensor, other), (part, window)))
        window = None
    return tensor.add_(part), window


def record(
    model: InterpretableModel, images: Tensor, scheme: Bounds = "channel", places: bool = False
) -> tuple[ModelOutput, Tape | None]:
    """Run a model and note how it came to its latent.

    Args:
        model: in evaluation mode.
        images: ``(B, 3, H, W)`` float32 in [0, 1].
        scheme: bounds of the pixels: black and white of every channel, or the same two numbers for all channels and no
            ladder, as released code has it.
        places: note which module each operation runs in, which costs a little.

    Returns:
        What ``model(images)`` returns, and the tape, or None if the output has no latent that depends on the images.

    Raises:
        OverwrittenError: if the model reads a tensor that it changed in place.
    """
    module = cast(nn.Module, model)
    recorder = _Recorder(images, scheme)
    with recorder.places(module) if places else nullcontext(), torch.no_grad(), recorder:
        output = model(images)
    latent = output.latent
    last: Node | None = recorder.of[latent] if latent is not None and latent in recorder.of else None
    return output, None if last is None else Tape(module, images, scheme, recorder.order, last)
