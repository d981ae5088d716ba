"""The base of all explainers: (model, images, targets) -> signed maps in pixel space.

Maps are signed and unscaled, RGB summed to one channel. ReLU, percentiles, min-max and colour belong to the reader of a
map, never to the explainer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, cast, get_args

import torch
from torch import Tensor, nn

from protometry.lightning_modules.contract import InterpretableModel, ModelOutput
from protometry.metrics.primitives.checks import check_choice, check_tensor

Kind = Literal["unit", "class"]


@dataclass(frozen=True)
class Targets:
    """What to explain in each image.

    Args:
        ids: ``(B, k)`` int64, one row per image; -1 is an empty slot, whose map is NaN.

    Raises:
        ValueError: if an argument differs from the above.
    """

    kind: Kind
    ids: Tensor

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        check_tensor("ids", self.ids, ("B", "k"), "int64")


@dataclass(frozen=True)
class Question:
    """One target in each image, and everything needed to explain it.

    Args:
        output: what ``observe`` returned for the images.
    """

    images: Tensor
    kind: Kind
    ids: Tensor
    output: ModelOutput
    sample_ids: Tensor | None

    @property
    def size(self) -> tuple[int, int]:
        """``(H, W)`` pixels of the images."""
        return self.images.shape[2], self.images.shape[3]


def refuse_training(model: InterpretableModel) -> None:
    """Refuse a model in training mode, which one image would change, with a ``ValueError``."""
    if cast(nn.Module, model).training:
        raise ValueError("Expected argument `model` to be in evaluation mode, but it is in training mode.")


class Explainer(ABC):
    """Base of all explainers; a subclass fills ``key``, ``explains`` and ``_maps``.

    ``observe`` is the one forward: its output can be given to ``attribute`` any number of times, so that all targets of
    a batch, and every metric, share it.

    Attributes:
        key: name in results.
        explains: what it can explain.
    """

    key: ClassVar[str]
    explains: ClassVar[frozenset[Kind]]

    def supports(self, model: InterpretableModel) -> str | None:
        """None if the explainer works on this model, or the reason why not."""
        return None

    def observe(self, model: InterpretableModel, images: Tensor) -> ModelOutput:
        """The model's forward pass, with what ``attribute`` needs of it kept in the output."""
        with torch.no_grad():
            return model(images)

    def attribute(
        self,
        model: InterpretableModel,
        images: Tensor,
        targets: Targets,
        *,
        output: ModelOutput | None = None,
        sample_ids: Tensor | None = None,
    ) -> Tensor:
        """Explain targets.

        Args:
            model: the bare module, in evaluation mode, outside autocast.
            images: ``(B, 3, H, W)`` float32 in [0, 1].
            targets: k units or classes per image.
            output: what ``observe`` returned for these images; None to run it here.
            sample_ids: ``(B,)`` int64, the data set's ``sample_key``; only random explainers need it.

        Returns:
            ``(B, k, H, W)`` float32, signed; NaN in empty slots.

        Raises:
            ValueError: if the model, the images or the targets are not as above, or the explainer does not support the
                model or the kind of target.
        """
        self._check(model, images, targets)
        if reason := self.supports(model):
            raise ValueError(f"Expected a model that explainer {self.key!r} supports, but {reason}.")
        if output is None or not self.reusable(model, images, output):
            output = self.observe(model, images)
        maps = []
        for ids in targets.ids.unbind(dim=1):
            question = Question(images, targets.kind, ids.clamp(min=0), output, sample_ids)
            maps.append(self._maps(model, question).masked_fill((ids < 0)[:, None, None], torch.nan))
        return torch.stack(maps, dim=1) if maps else images.new_zeros(len(images), 0, *images.shape[2:])

    def reusable(self, model: InterpretableModel, images: Tensor, output: ModelOutput) -> bool:
        """Whether ``output`` holds what ``observe`` would; otherwise the images are observed again."""
        return True

    @abstractmethod
    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        """Maps ``(B, H, W)``, one per image."""

    def _check(self, model: InterpretableModel, images: Tensor, targets: Targets) -> None:
        refuse_training(model)
        if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.float32:
            raise ValueError(
                f"Expected argument `images` to be of shape (B, 3, H, W) and dtype float32, but got "
                f"{tuple(images.shape)} {images.dtype}."
            )
        if torch.is_autocast_enabled(images.device.type):
            raise ValueError("Expected explanations outside autocast, but it is enabled.")
        if targets.kind not in self.explains:
            raise ValueError(
                f"Expected targets among {sorted(self.explains)} for {self.key!r}, but got {targets.kind}."
            )
        ids = targets.ids
        if len(ids) != len(images):
            raise ValueError(f"Expected one row of `targets.ids` per image, but got {len(ids)} for {len(images)}.")
        units = model.units()
        known = units.active if targets.kind == "unit" else torch.ones_like(units.owner[0])
        bad = (ids < -1) | (ids >= len(known)) | ~known[ids.clamp(0, len(known) - 1)] & (ids >= 0)
        if bad.any():
            raise ValueError(
                f"Expected `targets.ids` to name active units or classes below {len(known)}, but got "
                f"{sorted(set(ids[bad].tolist()))}."
            )
