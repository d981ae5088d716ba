"""Random maps, the control that gives every metric on maps its chance level."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from protometry.explanations.explainer import Explainer, Kind, Question
from protometry.explanations.upsample import Placement, Upsample
from protometry.lightning_modules.contract import InterpretableModel
from protometry.metrics.primitives.checks import check_choice
from protometry.metrics.primitives.perturbation import keyed_noise
from protometry.metrics.primitives.upsample import Mode

Pattern = Literal["smooth", "pixel"]

_SEEDS = 2**32
_STREAM = 0x52414E44 * _SEEDS  # above every seed: no map is drawn from the noise of a perturbation


class Random(Explainer):
    """Normal noise that is a pure function of the seed, the sample and the unit or class.

    A unit's map in an image is the same in every call, for any rank of the unit and any change of the image: it is a
    control for overlap, localisation and consistency, in which an explainer that does not beat it says nothing, but
    scores 0, the best value, in VLC and VAC by construction. With ``"smooth"``, border cells are repeated
    outwards as in every enlarged map, so that extreme values are more frequent near the border.

    Args:
        pattern: ``"smooth"`` for an independent value per cell, enlarged like a similarity map (the fair control for
            regions and boxes); ``"pixel"`` for an independent value per pixel.
        seed: in [0, 2^32).
        mode: as in :class:`~protometry.explanations.upsample.Upsample`, for ``"smooth"``.
        placement: likewise.

    Raises:
        ValueError: if an argument differs from the above; in ``attribute``, if there is not one sample id per image.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import Classifier
        >>> model, images = Classifier(num_classes=4, image_size=(32, 48)).eval(), torch.rand(1, 3, 32, 48)
        >>> targets, key = Targets("unit", torch.tensor([[7, 5]])), torch.tensor([42])
        >>> maps = Random().attribute(model, images, targets, sample_ids=key)
        >>> swapped = Random().attribute(model, 1 - images, Targets("unit", targets.ids.flip(1)), sample_ids=key)
        >>> torch.equal(maps, swapped.flip(1))
        True
    """

    key: ClassVar[str] = "random"
    explains: ClassVar[frozenset[Kind]] = frozenset({"unit", "class"})

    def __init__(
        self,
        pattern: Pattern = "smooth",
        seed: int = 0,
        mode: Mode = "bicubic",
        placement: Placement = "resize",
    ) -> None:
        check_choice("pattern", pattern, get_args(Pattern))
        if not 0 <= seed < _SEEDS:
            raise ValueError(f"Expected argument `seed` to lie in [0, 2^32), but got {seed}.")
        self.pattern, self.mode, self.placement = pattern, mode, placement
        self.seed = seed
        self._upsample = Upsample(mode, placement)

    @torch.no_grad()
    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        keys = question.sample_ids
        if keys is None or keys.shape != question.ids.shape:
            raise ValueError(
                f"Expected argument `sample_ids` to be of shape ({len(question.ids)},), but got "
                f"{None if keys is None else tuple(keys.shape)}. Pass the batch's `sample_key`."
            )
        streams = question.ids if question.kind == "unit" else ~question.ids  # class 3 is not unit 3
        shape = question.images.shape[2:] if self.pattern == "pixel" else question.output.maps.shape[2:]
        noise = keyed_noise(keys, streams[:, None], tuple(shape), _STREAM + self.seed)[:, 0]
        return noise if self.pattern == "pixel" else self._upsample.enlarge(model, noise, question.images)
