"""The explainers of relevance propagation: PRP for the evidence of a unit, LRP for the evidence of a class.

Both start in the cells in which units found their evidence (:mod:`protometry.explanations.relevance.start`) and pass
relevance backwards by one rule per operation (:mod:`protometry.explanations.relevance.prp_and_lrp_rules` and
``convolution_rules``).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, cast, get_args

import torch
from torch import Tensor, nn

from protometry.explanations.explainer import Kind, Question
from protometry.explanations.relevance.operations import Bounds
from protometry.explanations.relevance.propagation import Propagation, class_start, misfit, unit_start
from protometry.explanations.relevance.recorder import OverwrittenError, record
from protometry.explanations.relevance.tape import Tape
from protometry.lightning_modules.contract import InterpretableModel, ModelOutput
from protometry.metrics.primitives.checks import check_choice

Start = Literal["one", "score"]


@dataclass(frozen=True, kw_only=True)
class RecordedOutput(ModelOutput):
    """What a model sees, and how it came to its latent.

    Args:
        tape: the operations between images and latent; None if the latent does not come from the images.
    """

    tape: Tape | None


class _RecordedPropagation(Propagation):
    """What PRP and LRP share: the recording and the walk back."""

    def __init__(self, bounds: Bounds = "channel") -> None:
        super().__init__()
        check_choice("bounds", bounds, get_args(Bounds))
        self.bounds: Bounds = bounds
        self._started: Tensor | float = 0.0
        self._carried: Counter[str] = Counter()  # of scalar tensors: counting must not wait for the device

    @property
    def bypass(self) -> dict[str, float]:
        """Module path -> share of all relevance explained so far that this layer passed on by the ladder.

        It is the relevance of outputs that are carried by their bias; layers without any are left out.
        """
        return {path: float(carried / self._started) for path, carried in self._carried.items() if carried}

    def observe(self, model: InterpretableModel, images: Tensor) -> ModelOutput:
        """The model's forward pass, recorded; bit for bit what ``model(images)`` returns."""
        output, tape = record(model, images, self.bounds)
        return RecordedOutput(**{part.name: getattr(output, part.name) for part in fields(ModelOutput)}, tape=tape)

    def reusable(self, model: InterpretableModel, images: Tensor, output: ModelOutput) -> bool:
        """Whether the output was recorded from these images and weights."""
        tape = output.tape if isinstance(output, RecordedOutput) else None
        return tape is not None and tape.fits(cast(nn.Module, model), images, self.bounds)

    @torch.no_grad()
    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        tape = cast(RecordedOutput, question.output).tape
        if tape is None or tape.obstacle is not None:
            raise ValueError(f"Expected a model that explainer {self.key!r} supports, but {self._obstacle(model)}.")
        start = self._start(model, question.output, question.ids)
        size = start.abs().sum((1, 2, 3))
        one_cell = question.kind == "unit" and model.units().pool != "mean" and question.output.cells is None
        maps, carried = tape.backward(start, start.abs().sum(1).flatten(1).argmax(1) if one_cell else None)
        self._count(model, size, carried)
        self._note_amplified(maps, size)
        return maps

    def _start(self, model: InterpretableModel, output: ModelOutput, ids: Tensor) -> Tensor:
        """Relevance of the latent ``(B, D, h, w)`` for one target per image."""
        raise NotImplementedError

    def _obstacle(self, model: InterpretableModel) -> str | None:
        black = torch.zeros(1, 3, *model.geometry.image, device=model.input_std.device)
        try:
            output, tape = record(model, black, places=True)
        except OverwrittenError as error:
            return f"relevance propagation cannot record it. {error}"
        if output.latent is None or tape is None:
            return "the model has no latent" if output.latent is None else "its latent is not computed from the images"
        if (node := tape.obstacle) is not None:
            path, kind = node.place
            return f"relevance cannot pass {path!r} ({kind}, operation {node.operation!r})"
        return misfit(model, output)

    def _count(self, model: InterpretableModel, size: Tensor, carried: list[tuple[Tensor, Tensor]]) -> None:
        self._started = self._started + size.sum().double()
        if carried:
            paths = {id(weight): path.rpartition(".")[0] for path, weight in cast(nn.Module, model).named_parameters()}
            self._carried.update({paths.get(id(weight), "?"): amount.double() for weight, amount in carried})


class PRP(_RecordedPropagation):
    """Prototypical relevance propagation: the pixels that made a unit's best cell what it is.

    Source: Gautam et al. (2023), "This looks more like that: enhancing self-explaining models by prototypical relevance
    propagation": the relevance of a prototype starts in its best cell and runs to the pixels by the rules of layer-wise
    relevance propagation (α1β0, and zᴮ for the pixels). Deviations: α1β0 honours the sign of inputs; bounds of the
    pixels are per channel; relevance of an output that is carried by its bias stays in its window (``bypass`` says how
    much); units other than prototypes have a start too, see
    :func:`~protometry.explanations.relevance.start.relevance_start`.

    Maps sum to their start up to 1e-4, with ``bounds="channel"``.

    Args:
        bounds: ``"channel"``: black and white of each channel. ``"scalar"``: -2.118 and 2.640 for all channels of the
            normalised image and no ladder, as in released code; only to compare with published numbers.
        start: what a map sums to: ``"one"``, or the unit's ``"score"``.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import ProtoPNet
        >>> model, images = ProtoPNet(num_classes=4, image_size=(32, 32)).eval(), torch.rand(2, 3, 32, 32)
        >>> explainer, targets = PRP(), Targets("unit", torch.tensor([[3, 8], [5, -1]]))
        >>> output = explainer.observe(model, images)  # the one forward, shared by any number of calls
        >>> explainer.attribute(model, images, targets, output=output).sum((2, 3)).round(decimals=3)
        tensor([[1., 1.],
                [1., nan]])
    """

    key: ClassVar[str] = "prp"
    explains: ClassVar[frozenset[Kind]] = frozenset({"unit"})

    def __init__(self, bounds: Bounds = "channel", start: Start = "one") -> None:
        super().__init__(bounds)
        check_choice("start", start, get_args(Start))
        self.start: Start = start

    def _start(self, model: InterpretableModel, output: ModelOutput, ids: Tensor) -> Tensor:
        scores = output.scores.gather(1, ids[:, None])[:, 0]
        return unit_start(model, output, ids, scores if self.start == "score" else torch.ones_like(scores))


class LRP(_RecordedPropagation):
    """Layer-wise relevance propagation of a class: the starts of all units, weighted by their contributions.

    Source: Bach et al. (2015), "On pixel-wise explanations for non-linear classifier decisions by layer-wise relevance
    propagation", with the rules and deviations of :class:`PRP`. Maps are signed and sum to the contributions: the logit
    without the bias. Where contributions do not add up to a logit (trees), they are what is explained.

    Args:
        bounds: as in :class:`PRP`.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import ProtoPNet
        >>> model, images = ProtoPNet(num_classes=4, image_size=(32, 32)).eval(), torch.rand(2, 3, 32, 32)
        >>> maps = LRP().attribute(model, images, Targets("class", torch.tensor([[3], [0]])))
        >>> bool(torch.isclose(maps[1, 0].sum(), model(images).logits[1, 0], rtol=1e-3))
        True
    """

    key: ClassVar[str] = "lrp"
    explains: ClassVar[frozenset[Kind]] = frozenset({"class"})

    def _start(self, model: InterpretableModel, output: ModelOutput, ids: Tensor) -> Tensor:
        return class_start(model, output, ids)
