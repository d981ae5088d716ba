"""The observer of a model in an evaluation: forwards and explanations in chunks of one fixed size.

Convolutions differ in their last bits between batch sizes, which is enough to swap the ranks of two units. Every
forward of an evaluation, clean or perturbed, therefore has the same shape: the last chunk is padded and cut. Equal
images then give equal bits, in whatever batch, order or process they come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor

from protometry.callbacks.forward.untrained_backbone import UntrainedBackbone
from protometry.explanations import BoxMaps, Explainer, InputXGradient, Targets
from protometry.explanations.grad_cam_and_gradient import gradient_of
from protometry.lightning_modules.contract import InterpretableModel, ModelOutput, ScoresUnits
from protometry.metrics.functional import gather_units, masked_projected_gradient, top_units
from protometry.metrics.primitives.regions import all_finite


@dataclass(frozen=True)
class Images:
    """Images of one batch with what identifies them.

    Args:
        pixels: ``(B, 3, H, W)`` float32 in [0, 1].
        keys: ``(B,)`` int64, the data set's ``sample_key``.
        names: B sample ids, for error messages.
    """

    pixels: Tensor
    keys: Tensor
    names: list[str]


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model on B images.

    Args:
        logits: ``(B, K)``.
        scores: ``(B, U)``.
        unit_ids: ``(B, k)`` int64, the units looked at; -1 for an empty slot.
        maps: ``(B, k, h, w)`` at ``unit_ids``.
        latent: ``(B, D, h, w)`` or None.
        residual: ``(B, K)``, the part of the logits that bypasses the units, or None.
        context: what the head reads of the images besides their scores, or None.
        all_maps: ``(B, U, h, w)`` if requested.
        saliency: ``(B, k, H, W)`` if requested, signed; of the predicted class, k = 1, if only classes are explained.
        class_maps: ``(B, c, H, W)`` of the requested classes, signed; NaN in empty slots.
        class_regions: ``(B, c, H, W)`` bool that boxes cover, or None where there are no boxes.
    """

    logits: Tensor
    scores: Tensor
    unit_ids: Tensor
    maps: Tensor
    latent: Tensor | None = None
    residual: Tensor | None = None
    context: Tensor | None = None
    all_maps: Tensor | None = None
    saliency: Tensor | None = None
    class_maps: Tensor | None = None
    class_regions: Tensor | None = None


class Observer:
    """Shows images to a model, always in chunks of the same size.

    Args:
        model: in evaluation mode.
        explainer: how ``saliency`` is made.
        chunk: images per forward.
        top_k: units looked at per image.
        class_explainer: how ``class_maps`` are made, or None.
    """

    def __init__(
        self,
        model: InterpretableModel,
        explainer: Explainer,
        chunk: int,
        top_k: int,
        class_explainer: Explainer | None = None,
    ) -> None:
        self.model = model
        self.explainer = explainer
        self.class_explainer = class_explainer
        self.chunk = chunk
        self.top_k = top_k
        self.active = model.units().active
        self._candidates = self.active.nonzero().squeeze(1)
        self._broken: list[tuple[Tensor, list[str]]] = []  # whose outputs are not finite, of images with these ids
        self._untrained: dict[int | None, UntrainedBackbone] = {}
        self.signed = torch.zeros((), dtype=torch.bool, device=self.active.device)  # a map below zero was seen

    def see(
        self,
        images: Images,
        unit_ids: Tensor | None = None,
        explain: bool = False,
        keep_maps: bool = False,
        classes: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> Outputs:
        """One forward per image, and one explanation per image and unit if requested.

        Args:
            images: B images.
            unit_ids: ``(B, k)`` units to look at; the top units of each image by default.
            explain: whether to make ``saliency``.
            keep_maps: whether to keep ``all_maps``.
            classes: of rows of the images and their predicted classes, the classes to explain, ``(rows, c)`` int64; -1
                is an empty slot.

        Outputs that are not finite are noted for :meth:`refuse_broken`.

        Raises:
            ValueError: if an explanation of a class is not finite, with its explainer and the sample ids; before that
                as :meth:`refuse_broken`.
        """
        parts: list[dict[str, Tensor | None]] = []
        broken = []
        for rows, count in self.chunks(len(images.pixels)):
            pixels, keys = images.pixels[rows], images.keys[rows]
            explainer = self.explainer if explain else None
            if explainer is None and classes is not None:
                explainer = self.class_explainer
            output = explainer.observe(self.model, pixels) if explainer else self.model(pixels)
            ids = top_units(output.scores, self.top_k, self._candidates) if unit_ids is None else unit_ids[rows]
            fields = {
                "logits": output.logits,
                "scores": output.scores,
                "unit_ids": ids,
                "maps": gather_units(output.maps, ids),
                "latent": output.latent,
                "residual": output.extras.get("residual"),
                "context": output.extras.get("context"),
                "all_maps": output.maps if keep_maps else None,
                "saliency": self._saliency(pixels, ids, output, keys) if explain else None,
            }
            if classes is not None:
                ids = classes(rows, output.logits.argmax(dim=1))
                fields |= self._classes(pixels, ids, output, keys)
            parts.append({name: None if values is None else values[:count] for name, values in fields.items()})
            finite = [_finite(values) for values in (output.logits, output.scores, output.maps)]
            self.signed |= (cast(Tensor, fields["maps"]) < 0).any()
            broken.append(~torch.stack(finite).all(0)[:count])
        self._broken.append((torch.cat(broken), images.names))
        joined: dict[str, Any] = {
            name: None if first is None else torch.cat([cast(Tensor, part[name]) for part in parts])
            for name, first in parts[0].items()
        }
        if classes is not None:
            self.refuse_broken()
            self._refuse_unexplained(joined.pop("unexplained"), images.names)
        return Outputs(**joined)

    def untrained_saliency(self, images: Images, unit_ids: Tensor, seed: int, stages: int | None = None) -> Tensor:
        """``(B, k, H, W)``, the ``saliency`` of units ``(B, k)`` if the backbone had random weights of this seed.

        Args:
            images: B images.
            unit_ids: ``(B, k)`` units.
            seed: of the weights.
            stages: how many of its last stages had them; None for all of it.
        """
        if stages not in self._untrained:
            self._untrained[stages] = UntrainedBackbone(self.model, seed, stages)
        other = copy(self)
        other._broken, other.signed = [], self.signed.clone()  # what it sees is not of the model
        with self._untrained[stages]:
            saliency = other.see(images, unit_ids, explain=True).saliency
        return cast(Tensor, saliency)

    def refuse_broken(self) -> None:
        """Refuse outputs of earlier calls that were not finite; in one read, since an accelerator has to wait for it.

        Raises:
            ValueError: with the sample ids.
        """
        names = chain.from_iterable(names for _, names in self._broken)
        broken = torch.cat([flags for flags, _ in self._broken]).tolist() if self._broken else []
        self._broken = []
        if named := list(dict.fromkeys(name for name, is_bad in zip(names, broken, strict=True) if is_bad)):
            raise ValueError(
                "Expected finite model outputs, but got NaN or infinity for the samples "
                f"{', '.join(named[:10])}{' ...' if len(named) > 10 else ''}. The checkpoint is damaged or training "
                "diverged."
            )

    def attack(self, images: Images, unit_ids: Tensor, mask: Tensor, start: Tensor, settings: Attack) -> Tensor:
        """Images on which a unit scores less although only the pixels of a mask changed.

        Args:
            images: B images.
            unit_ids: ``(B,)`` unit to attack in each.
            mask: ``(B, 1, H, W)`` bool, pixels that may change.
            start: ``(B, 3, H, W)`` first change.
            settings: of :func:`protometry.metrics.functional.masked_projected_gradient`.

        Returns:
            ``(B, 3, H, W)``.
        """
        attacked = []
        for rows, count in self.chunks(len(images.pixels)):
            column = unit_ids[rows][:, None]

            def scores(pixels: Tensor, column: Tensor = column) -> Tensor:
                ids = column.clone()  # made in inference mode, it could not be part of a gradient
                if isinstance(self.model, ScoresUnits):
                    return self.model.unit_scores(pixels, ids)
                return self.model(pixels).scores.gather(1, ids)

            result = masked_projected_gradient(
                scores,
                images.pixels[rows],
                mask[rows],
                settings.epsilon,
                settings.step_size,
                settings.steps,
                start[rows],
            )
            attacked.append(result[:count])
        return torch.cat(attacked)

    def pixel_gradients(self, images: Images, unit_ids: Tensor) -> Tensor:
        """``(B, k, H, W)``, how much the score of each unit ``(B, k)`` depends on a pixel; NaN in empty slots.

        The sum over RGB of the absolute gradient: one forward for all units, and one backward for each.
        """
        parts = []
        for rows, count in self.chunks(len(images.pixels)):
            output = InputXGradient().observe(self.model, images.pixels[rows])
            with torch.inference_mode(False), torch.enable_grad():
                gradients = [
                    gradient_of(output.graph, "unit", unit, output.pixels, keep=True).abs().sum(dim=1)
                    for unit in unit_ids[rows].clamp(min=0).unbind(dim=1)
                ]
            parts.append(torch.stack(gradients, dim=1)[:count])
        return torch.cat(parts).masked_fill((unit_ids < 0)[:, :, None, None], torch.nan)

    def latent_gradients(self, images: Images, classes: Tensor) -> Tensor:
        """``(B, D)``, the gradient of the logit of a class ``(B,)`` by the latent, summed over cells."""
        parts = []
        for rows, count in self.chunks(len(images.pixels)):
            graph = InputXGradient().observe(self.model, images.pixels[rows]).graph
            assert graph.latent is not None
            with torch.inference_mode(False), torch.enable_grad():
                gradients = gradient_of(graph, "class", classes[rows], graph.latent, keep=False)
            parts.append(gradients.sum(dim=(2, 3))[:count])
        return torch.cat(parts)

    def chunks(self, images: int) -> Iterator[tuple[Tensor, int]]:
        """Rows of each chunk, the last image repeated to fill the last one, and how many of them count."""
        for begin in range(0, images, self.chunk):
            rows = torch.arange(begin, begin + self.chunk, device=self.active.device)
            yield rows.clamp(max=images - 1), min(self.chunk, images - begin)

    def _refuse_unexplained(self, broken: Tensor, names: list[str]) -> None:
        """Refuse explanations that are not finite, which metrics would mistake for maps that mark nothing."""
        if named := [name for name, is_bad in zip(names, broken.tolist(), strict=True) if is_bad]:
            raise ValueError(
                f"Expected finite explanations, but those by explainer {cast(Explainer, self.class_explainer).key!r} "
                f"hold NaN or infinity for the samples {', '.join(named[:10])}{' ...' if len(named) > 10 else ''}. "
                "Choose another explainer, or leave these samples out of the split."
            )

    def _classes(self, pixels: Tensor, ids: Tensor, output: ModelOutput, keys: Tensor) -> dict[str, Tensor | None]:
        """``class_maps`` and ``class_regions``, and ``(B,)`` bool, whose maps are ``unexplained``: not finite."""
        explainer = cast(Explainer, self.class_explainer)
        maps = explainer.attribute(self.model, pixels, Targets("class", ids), output=output, sample_ids=keys)
        size = (pixels.shape[2], pixels.shape[3])
        boxes = explainer.region(self.model, output, ids, size) if isinstance(explainer, BoxMaps) else None
        unexplained = (~all_finite(maps) & (ids >= 0)).any(dim=1)
        return {"class_maps": maps, "class_regions": boxes, "unexplained": unexplained}

    def _saliency(self, pixels: Tensor, ids: Tensor, output: ModelOutput, keys: Tensor) -> Tensor:
        units = "unit" in self.explainer.explains
        targets = Targets("unit", ids) if units else Targets("class", output.logits.argmax(1, keepdim=True))
        return self.explainer.attribute(self.model, pixels, targets, output=output, sample_ids=keys)


@dataclass(frozen=True)
class Attack:
    """Size, step size and number of steps of :meth:`Observer.attack`.

    Args:
        epsilon: ``(3, 1, 1)`` largest change of a pixel.
        step_size: ``(3, 1, 1)`` change per step.
        steps: number of steps; with 0 the start alone.
    """

    epsilon: Tensor
    step_size: Tensor
    steps: int


def _finite(values: Tensor) -> Tensor:
    """``(B,)`` bool, whether every value of an image is finite, by minimum and maximum, which propagate NaN."""
    rows = values.flatten(1)
    return rows.amin(dim=1).isfinite() & rows.amax(dim=1).isfinite()
