"""Explainers that differentiate the model: Grad-CAM, input × gradient and integrated gradients.

The model runs with detached parameters, so that no gradient can reach them and no graph holds on to them. All of it
works inside inference mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from explanations.explainer import Conserved, Explainer, Kind, Targets
from explanations.upsample import Mode, check_choice, upsample_maps
from lightning_modules.contract import InterpretableModel, ModelOutput

_has_latent: WeakKeyDictionary[InterpretableModel, bool] = WeakKeyDictionary()  # what a forward pass has shown


@dataclass(frozen=True, kw_only=True)
class GraphOutput(ModelOutput):
    """What a model sees, and how it came about.

    The inherited tensors are detached.

    Args:
        graph: the same output with its graph down to ``pixels``.
        pixels: ``(B, 3, H, W)`` the images, as the leaf of the graph.
    """

    graph: ModelOutput
    pixels: Tensor


def _differentiable(tensor: Tensor) -> Tensor:
    """The tensor without its history; a copy of one made in inference mode, which no graph could save."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def _run(model: InterpretableModel, pixels: Tensor) -> ModelOutput:
    """The forward pass with a graph that ends at ``pixels``."""
    module = cast(nn.Module, model)
    state = (*module.named_parameters(), *module.named_buffers())
    output: ModelOutput = functional_call(module, {name: _differentiable(value) for name, value in state}, (pixels,))
    return output


def _values(output: ModelOutput, kind: Kind) -> Tensor:
    return output.scores if kind == "unit" else output.logits


def _gradient(output: ModelOutput, kind: Kind, ids: Tensor, at: Tensor, keep: bool) -> Tensor:
    """The gradient of one unit's score or one class's logit per image, of the shape of ``at``."""
    values = _values(output, kind)
    chosen = torch.zeros_like(values).scatter_(1, ids[:, None], 1)
    return torch.autograd.grad(values, at, chosen, retain_graph=keep)[0]


class _GraphExplainer(Explainer):
    """Base of the explainers whose targets share one forward pass with a graph."""

    def observe(self, model: InterpretableModel, images: Tensor) -> GraphOutput:
        """The model's forward pass, bit for bit, with its graph kept.

        Args:
            model: in evaluation mode.
            images: ``(B, 3, H, W)`` float32 in [0, 1].

        Returns:
            The output; it holds the activations of the whole model until it is dropped.
        """
        with torch.inference_mode(False), torch.enable_grad():
            pixels = _differentiable(images).requires_grad_()
            seen = _run(model, pixels)
            _has_latent[model] = seen.latent is not None
            return GraphOutput(
                seen.logits.detach(),
                seen.scores.detach(),
                seen.maps.detach(),
                None if seen.latent is None else seen.latent.detach(),
                {name: value.detach() for name, value in seen.extras.items()},
                graph=seen,
                pixels=pixels,
            )

    def attribute(
        self,
        model: InterpretableModel,
        images: Tensor,
        targets: Targets,
        *,
        output: ModelOutput | None = None,
        sample_ids: Tensor | None = None,
    ) -> Tensor:
        """As in the base; an ``output`` without a graph cannot be differentiated and is observed again."""
        kept = output if isinstance(output, GraphOutput) else None
        return super().attribute(model, images, targets, output=kept, sample_ids=sample_ids)


class GradCAM(_GraphExplainer):
    """Gradient-weighted class activation map at ``latent``.

    Source: Selvaraju et al. (2017), "Grad-CAM: visual explanations from deep networks via gradient-based localization",
    equations 1 and 2: α_c = mean over cells of ∂y/∂A_c, map = ReLU(Σ_c α_c A_c), then enlarged. y is the logit, or the
    score of a unit. Deviation: the layer is always ``latent``, which for prototype models lies behind the add-on
    layers.

    Args:
        relu: keep only what speaks for the target, as the paper does; False for signed maps.
        mode: how cells become pixels.

    Raises:
        ValueError: if ``mode`` is unknown; from ``supports``, if a model not seen before is in training mode.

    Example:
        >>> from lightning_modules import Classifier
        >>> model, images = Classifier(num_classes=4, image_size=(32, 48)).eval(), torch.rand(2, 3, 32, 48)
        >>> explainer, targets = GradCAM(), Targets("class", torch.tensor([[0, 3], [1, -1]]))
        >>> output = explainer.observe(model, images)  # shared by any number of calls
        >>> explainer.attribute(model, images, targets, output=output).shape
        torch.Size([2, 2, 32, 48])
    """

    key: ClassVar[str] = "grad_cam"
    explains: ClassVar[frozenset[Kind]] = frozenset({"unit", "class"})

    def __init__(self, relu: bool = True, mode: Mode = "bilinear") -> None:
        check_choice("mode", mode, get_args(Mode))
        self.relu = relu
        self.mode: Mode = mode

    def supports(self, model: InterpretableModel) -> str | None:
        """None if the model has a latent; a model not observed before is shown one black image to find out."""
        if model not in _has_latent:
            if cast(nn.Module, model).training:
                raise ValueError("Expected argument `model` to be in evaluation mode, but it is in training mode.")
            with torch.no_grad():
                black = torch.zeros(1, 3, *model.geometry.image, device=model.input_std.device)
                _has_latent[model] = model(black).latent is not None
        return None if _has_latent[model] else "the model has no latent"

    def _maps(
        self,
        model: InterpretableModel,
        images: Tensor,
        kind: Kind,
        ids: Tensor,
        output: ModelOutput,
        sample_ids: Tensor | None,
    ) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            graph = cast(GraphOutput, output).graph
            gradient = _gradient(graph, kind, ids, cast(Tensor, graph.latent), keep=True)
        cam = (gradient.mean(dim=(2, 3), keepdim=True) * cast(Tensor, output.latent)).sum(dim=1)
        return upsample_maps(cam.relu() if self.relu else cam, (images.shape[2], images.shape[3]), self.mode)


class InputXGradient(_GraphExplainer):
    """Pixel value times gradient, summed over RGB.

    Source: Shrikumar et al. (2016), "Not just a black box: learning important features through propagating activation
    differences": x ⊙ ∂y/∂x. x is RGB in [0, 1], before the normalisation inside the model: a black pixel gets 0.

    Example:
        >>> from lightning_modules import Classifier
        >>> model, images = Classifier(num_classes=4, image_size=(32, 32)).eval(), torch.zeros(1, 3, 32, 32)
        >>> bool(InputXGradient().attribute(model, images, Targets("class", torch.tensor([[0]]))).any())
        False
    """

    key: ClassVar[str] = "ixg"
    explains: ClassVar[frozenset[Kind]] = frozenset({"unit", "class"})

    def _maps(
        self,
        model: InterpretableModel,
        images: Tensor,
        kind: Kind,
        ids: Tensor,
        output: ModelOutput,
        sample_ids: Tensor | None,
    ) -> Tensor:
        kept = cast(GraphOutput, output)
        with torch.inference_mode(False), torch.enable_grad():
            gradient = _gradient(kept.graph, kind, ids, kept.pixels, keep=True)
        return (kept.pixels.detach() * gradient).sum(dim=1)


class IntegratedGradients(Explainer):
    """Gradients integrated along the straight line from a baseline to the image.

    Source: Sundararajan et al. (2017), "Axiomatic attribution for deep networks", equation 1:
    (x - x0) ⊙ ∫ ∇y(x0 + a (x - x0)) da, summed over RGB. Deviation: the midpoint rule, a = (i + 1/2) / ``steps``.
    Every target costs ``steps`` forward and backward passes. The sum of a map is y(x) - y(x0) only in the limit;
    ``completeness_gap`` says by how much it is missed.

    Args:
        steps: points on the line.
        baseline: x0: ``"black"``, a colour as three numbers in [0, 1] (such as the data set's mean), or a tensor
            ``(3, 1, 1)`` or ``(3, H, W)``.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> from lightning_modules import Classifier
        >>> model, images = Classifier(num_classes=4, image_size=(32, 32)).eval(), torch.rand(1, 3, 32, 32)
        >>> explainer, targets = IntegratedGradients(steps=64), Targets("class", torch.tensor([[0]]))
        >>> maps = explainer.attribute(model, images, targets)
        >>> gap, difference = explainer.completeness_gap(model, images, targets, maps)
        >>> torch.equal(gap, (maps.sum(dim=(2, 3)) - difference).abs())
        True
    """

    key: ClassVar[str] = "ig"
    explains: ClassVar[frozenset[Kind]] = frozenset({"unit", "class"})
    conserves: ClassVar[Conserved] = "difference"

    def __init__(self, steps: int = 50, baseline: Literal["black"] | Sequence[float] | Tensor = "black") -> None:
        if steps < 1:
            raise ValueError(f"Expected argument `steps` to be at least 1, but got {steps}.")
        self.steps = steps
        self.baseline = _baseline(baseline)

    def completeness_gap(
        self, model: InterpretableModel, images: Tensor, targets: Targets, maps: Tensor
    ) -> tuple[Tensor, Tensor]:
        """By how much maps miss the difference they should sum to.

        Args:
            model: in evaluation mode.
            images: ``(B, 3, H, W)`` float32 in [0, 1].
            targets: k units or classes per image.
            maps: ``(B, k, H, W)``, what ``attribute`` returned for them.

        Returns:
            |Σ map - (y(x) - y(x0))| and y(x) - y(x0), ``(B, k)`` each; NaN in empty slots.

        Raises:
            ValueError: as in ``attribute``.
        """
        self._check(model, images, targets)
        with torch.no_grad():
            at_image, at_baseline = (_values(model(x), targets.kind) for x in (images, self._start(images)))
            difference = (at_image - at_baseline).gather(1, targets.ids.clamp(min=0))
            difference = difference.masked_fill(targets.ids < 0, torch.nan)
        return (maps.sum(dim=(2, 3)) - difference).abs(), difference

    def _start(self, images: Tensor) -> Tensor:
        if self.baseline.shape[1:] not in ((1, 1), images.shape[2:]):
            raise ValueError(
                f"Expected argument `baseline` to be of the images' size {tuple(images.shape[2:])}, but got "
                f"{tuple(self.baseline.shape[1:])}."
            )
        return self.baseline.to(images).expand_as(images)

    def _maps(
        self,
        model: InterpretableModel,
        images: Tensor,
        kind: Kind,
        ids: Tensor,
        output: ModelOutput,
        sample_ids: Tensor | None,
    ) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            images = _differentiable(images)
            start, total = self._start(images), torch.zeros_like(images)
            for step in range(self.steps):
                pixels = torch.lerp(start, images, (step + 0.5) / self.steps).requires_grad_()
                total += _gradient(_run(model, pixels), kind, ids, pixels, keep=False)
        return ((images - start) * total).sum(dim=1) / self.steps


def _baseline(baseline: str | Sequence[float] | Tensor) -> Tensor:
    """The baseline as ``(3, 1, 1)`` or ``(3, H, W)``."""
    if isinstance(baseline, str):
        check_choice("baseline", baseline, ("black",))
        return torch.zeros(3, 1, 1)
    tensor = baseline if isinstance(baseline, Tensor) else torch.tensor(baseline, dtype=torch.float32).view(-1, 1, 1)
    if tensor.ndim != 3 or len(tensor) != 3 or not bool(((tensor >= 0) & (tensor <= 1)).all()):
        raise ValueError(
            "Expected argument `baseline` to be 'black', three numbers or a tensor (3, 1, 1) or (3, H, W), all in "
            f"[0, 1], but got {baseline!r}."
        )
    return tensor
