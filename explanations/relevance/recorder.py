"""Recording of a forward pass: every operation on the way from images to latent, noted while it runs.

The model's own forward pass runs once; every operation on a tensor that depends on the images is noted with the rule by
which relevance passes it, which holds what it needs to know of the images. Nothing is traced beforehand, so there is no
graph that could differ from what was computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from protometry.explanations.relevance.operations import HANDLERS, Bounds, Context, Operation
from protometry.explanations.relevance.tape import Tape
from protometry.lightning_modules.contract import InterpretableModel, ModelOutput

_OUT_OF_PLACE = {"add_": torch.add, "relu_": torch.relu}
_UNCHANGED = ("contiguous", "float", "dropout", "dropout1d", "dropout2d", "dropout3d")  # if they return their input


class OverwrittenError(ValueError):
    """A model reads a tensor that it changed in place, so that recording would change what it computes."""


class PlacedMode(TorchFunctionMode):
    """A mode that can know which module an operation runs in.

    Attributes:
        place: path and type of the module.
    """

    place = ("", "")

    @contextmanager
    def places(self, model: nn.Module) -> Iterator[None]:
        """Keep ``place`` up to date."""
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


class _Recorder(PlacedMode):
    """Notes every operation on tensors that depend on the images.

    Operations in place run out of place, since what the rules saw must not change.
    """

    def __init__(self, images: Tensor, scheme: Bounds) -> None:
        super().__init__()
        extremes = torch.arange(2.0, device=images.device).view(2, 1, 1, 1)
        root = Operation("images", non_negative=True, bounds=extremes.expand(2, images.shape[1], 1, 1))
        self.order = [root]
        self.of = WeakTensorKeyDictionary({images: root})
        self.scheme: Bounds = scheme
        self._overwritten = WeakTensorKeyDictionary()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operation and note it."""
        options = dict(kwargs or {})
        sources = [tensor for tensor in tensors_in((*args, *options.values())) if tensor in self.of]
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
        if (same and name in _UNCHANGED) or not tensors_in((output,)):
            return output
        self._refuse_overwritten(name, sources)
        if in_place:
            self._overwritten[args[0]] = True
        node = self._note(Operation(name, tuple(self.of[tensor] for tensor in sources), place=self.place), output)
        if isinstance(output, Tensor) and not same and name in HANDLERS:
            context = Context(node, func, sources, output, winners, self.scheme)
            node.rule = HANDLERS[name](context, *args, **options)
        return output

    def _note(self, node: Operation, output: Any) -> Operation:
        for source in node.inputs:
            source.readers += 1
        for tensor in tensors_in((output,)):
            self.of[tensor] = node
        self.order.append(node)
        return node

    def _refuse_overwritten(self, name: str, sources: list[Tensor]) -> None:
        if any(tensor in self._overwritten for tensor in sources):
            raise OverwrittenError(
                "Expected a model that does not read a tensor again after changing it in place, but "
                f"{name!r} in {self.place[0]!r} does."
            )


def tensors_in(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among some values and in the lists among them."""
    flat = chain.from_iterable(value if isinstance(value, list | tuple) else (value,) for value in values)
    return [value for value in flat if isinstance(value, Tensor)]


def record(
    model: InterpretableModel, images: Tensor, scheme: Bounds = "channel", places: bool = False
) -> tuple[ModelOutput, Tape | None]:
    """Run a model and note how it came to its latent, and in which module each operation runs if ``places``.

    Returns:
        What ``model(images)`` returns, uncompiled, and the tape, or None if no latent depends on the images.

    Raises:
        OverwrittenError: if the model reads a tensor that it changed in place.
    """
    module = cast(nn.Module, model)
    recorder = _Recorder(images, scheme)
    uncompiled = torch.compiler.set_stance("force_eager")  # compiled code shows no operation
    with recorder.places(module) if places else nullcontext(), torch.no_grad(), uncompiled, recorder:
        output = model(images)
    latent = output.latent
    last: Operation | None = recorder.of[latent] if latent is not None and latent in recorder.of else None
    return output, None if last is None else Tape(module, images, scheme, recorder.order, last)
