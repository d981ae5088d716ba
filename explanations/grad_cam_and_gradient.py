"""Gradient-based explainers: Grad-CAM and input × gradient.

The model runs with detached parameters, so that no gradient can reach them and no graph holds on to them. All of it
works inside inference mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.func import functional_call

from protometry.explanations.explainer import Explainer, Kind, Question, refuse_training
from protometry.lightning_modules.contract import InterpretableModel, ModelOutput
from protometry.metrics.primitives.checks import check_choice
from protometry.metrics.primitives.upsample import Mode, upsample_maps

_has_latent: WeakKeyDictionary[InterpretableModel, bool] = WeakKeyDictionary()  # what a forward pass has shown


@dataclass(frozen=True, kw_only=True)
class GraphOutput(ModelOutput):
    """What a model sees, and how it came about.

    The inherited tensors are detached.

    Args:
        graph: the same output with its graph down to ``pixels``.
        pixels: ``(B, 3, H, W)``, the leaf of the graph: the images, or normalised images.
        changes: what the explainer did to gradients; None if nothing.
    """

    graph: ModelOutput
    pixels: Tensor
    changes: object = None


def differentiable(tensor: Tensor) -> Tensor:
    """The tensor without its history; a copy of one made in inference mode, which no graph could save."""
    return tensor.clone() if tensor.is_inference() else tensor.detach()


def run_with_graph(model: InterpretableModel, pixels: Tensor) -> ModelOutput:
    """The forward pass with a graph that ends at ``pixels``."""
    module = cast(nn.Module, model)
    state = (*module.named_parameters(), *module.named_buffers())
    output: ModelOutput = functional_call(module, {name: differentiable(value) for name, value in state}, (pixels,))
    return output


def values_of(output: ModelOutput, kind: Kind) -> Tensor:
    """Scores ``(B, U)`` or logits ``(B, K)``, by the kind of target."""
    return output.scores if kind == "unit" else output.logits


def gradient_of(output: ModelOutput, kind: Kind, ids: Tensor, at: Tensor, keep: bool) -> Tensor:
    """The gradient of one unit's score or one class's logit per image, of the shape of ``at``."""
    values = values_of(output, kind)
    chosen = torch.zeros_like(values).scatter_(1, ids[:, None], 1)
    return torch.autograd.grad(values, at, chosen, retain_graph=keep)[0]


class GraphExplainer(Explainer):
    """Base of the explainers whose targets share one forward pass with a graph."""

    @property
    def _changes(self) -> object:
        """What this explainer does to gradients; None for nothing."""
        return None

    def _run(self, model: InterpretableModel, pixels: Tensor) -> tuple[ModelOutput, Tensor]:
        """The forward pass with its graph, and the leaf of the graph."""
        return run_with_graph(model, pixels), pixels

    def observe(self, model: InterpretableModel, images: Tensor) -> GraphOutput:
        """The model's forward pass, bit for bit, with its graph kept.

        The output holds the activations of the whole model until it is dropped.
        """
        with torch.inference_mode(False), torch.enable_grad():
            pixels = differentiable(images).requires_grad_()
            output, pixels = self._run(model, pixels)
            _has_latent[model] = output.latent is not None
            return GraphOutput(
                logits=output.logits.detach(),
                scores=output.scores.detach(),
                maps=output.maps.detach(),
                latent=None if output.latent is None else output.latent.detach(),
                cells=output.cells,
                extras={name: value.detach() for name, value in output.extras.items()},
                graph=output,
                pixels=pixels,
                changes=self._changes,
            )

    def reusable(self, model: InterpretableModel, images: Tensor, output: ModelOutput) -> bool:
        """Whether the output has a graph with the gradients of this explainer."""
        return isinstance(output, GraphOutput) and output.changes == self._changes


class GradCAM(GraphExplainer):
    """Gradient-weighted class activation map at ``latent``.

    Source: Selvaraju et al. (2017), "Grad-CAM: visual explanations from deep networks via gradient-based localization",
    equations 1 and 2: α_c = mean over cells of ∂y/∂A_c, map = ReLU(Σ_c α_c A_c), then enlarged. y is the logit, or the
    score of a unit. Deviation: the layer is always ``latent``, which for prototype models lies behind the add-on
    layers.

    Args:
        relu: keep only evidence for the target, as the paper does; False for signed maps.
        mode: how cells become pixels.

    Raises:
        ValueError: if ``mode`` is unknown; from ``supports``, if a model not seen before is in training mode.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import Classifier
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
            refuse_training(model)
            with torch.no_grad():
                black = torch.zeros(1, 3, *model.geometry.image, device=model.input_std.device)
                _has_latent[model] = model(black).latent is not None
        return None if _has_latent[model] else "the model has no latent"

    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            graph = cast(GraphOutput, question.output).graph
            gradient = gradient_of(graph, question.kind, question.ids, cast(Tensor, graph.latent), keep=True)
        cam = (gradient.mean(dim=(2, 3), keepdim=True) * cast(Tensor, question.output.latent)).sum(dim=1)
        return upsample_maps(cam.relu() if self.relu else cam, question.size, self.mode, model.geometry.lattice)


class InputXGradient(GraphExplainer):
    """Pixel value times gradient, summed over RGB.

    Source: Shrikumar et al. (2016), "Not just a black box: learning important features through propagating activation
    differences": x ⊙ ∂y/∂x. x is RGB in [0, 1], before the normalisation inside the model: a black pixel gets 0.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import Classifier
        >>> model, images = Classifier(num_classes=4, image_size=(32, 32)).eval(), torch.zeros(1, 3, 32, 32)
        >>> bool(InputXGradient().attribute(model, images, Targets("class", torch.tensor([[0]]))).any())
        False
    """

    key: ClassVar[str] = "ixg"
    explains: ClassVar[frozenset[Kind]] = frozenset({"unit", "class"})

    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        kept = cast(GraphOutput, question.output)
        with torch.inference_mode(False), torch.enable_grad():
            gradient = gradient_of(kept.graph, question.kind, question.ids, kept.pixels, keep=True)
        return (kept.pixels.detach() * gradient).sum(dim=1)
