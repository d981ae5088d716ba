"""AttnLRP: relevance propagation through attention, normalisation, gates and smooth activations."""

from __future__ import annotations

from typing import ClassVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from protometry.explanations.explainer import Kind, Question
from protometry.explanations.grad_cam_and_gradient import GraphExplainer, GraphOutput, run_with_graph
from protometry.explanations.relevance.attn_lrp_rules import GradientRules, NoRuleError, quotient
from protometry.explanations.relevance.propagation import Propagation, class_start, misfit, unit_start
from protometry.lightning_modules.contract import InterpretableModel, ModelOutput

_attention: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


class AttnLRP(Propagation, GraphExplainer):
    """Attention-aware relevance propagation: the pixels that made the cells of a unit or a class what they are.

    Source: Achtibat et al. (2024), "AttnLRP: attention-aware layer-wise relevance propagation for transformers". It
    starts as :class:`~protometry.explanations.PRP` does for units and :class:`~protometry.explanations.LRP` for
    classes. Rules: ε for sums and, with γ = 0, linear layers; γ for convolutions and linear layers, for both signs
    (Andéol et al. 2021), a BatchNorm being part of its convolution; identity for activations; Taylor for softmax;
    uniform for products of two tensors (attention, gates, squeeze-and-excite); standard deviations and other divisors
    are constants. The pixels that relevance is shared by are normalised ones.

    Maps sum to their start less what biases, softmax and channels that are exactly zero absorb (``absorbed``).

    Args:
        gamma_conv: γ of convolutions, >= 0.
        gamma_linear: γ of linear layers, >= 0. Both defaults are values of the released code for vision transformers.

    Raises:
        ValueError: if an argument is negative.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import ProtoPNet
        >>> backbone = {"name": "timm/test_vit"}
        >>> model = ProtoPNet(num_classes=4, image_size=(32, 32), backbone=backbone).eval()
        >>> explainer, targets = AttnLRP(), Targets("unit", torch.tensor([[3, 8], [5, -1]]))
        >>> explainer.attribute(model, torch.rand(2, 3, 32, 32), targets).shape
        torch.Size([2, 2, 32, 32])
    """

    key: ClassVar[str] = "attn_lrp"
    explains: ClassVar[frozenset[Kind]] = frozenset({"unit", "class"})

    def __init__(self, gamma_conv: float = 0.25, gamma_linear: float = 0.05) -> None:
        super().__init__()
        for name, gamma in (("gamma_conv", gamma_conv), ("gamma_linear", gamma_linear)):
            if not gamma >= 0:
                raise ValueError(f"Expected argument `{name}` to be >= 0, but got {gamma}.")
        self.gamma_conv, self.gamma_linear = gamma_conv, gamma_linear
        self._started: Tensor | float = 0.0
        self._arrived: Tensor | float = 0.0

    @property
    def absorbed(self) -> float:
        """Share of all relevance explained so far that did not reach the pixels; negative if more arrived."""
        return float(1 - self._arrived / self._started)

    def finds_attention(self, model: InterpretableModel) -> bool:
        """Whether it supports the model and relevance passes attention on its way to the pixels."""
        return self.supports(model) is None and _attention[cast(nn.Module, model)]

    @property
    def _changes(self) -> object:
        return self.gamma_conv, self.gamma_linear

    def _run(self, model: InterpretableModel, pixels: Tensor) -> tuple[ModelOutput, Tensor]:
        rules = GradientRules(pixels, self.gamma_conv, self.gamma_linear)
        with torch.compiler.set_stance("force_eager"), rules:  # compiled code shows no operation
            return run_with_graph(model, pixels), rules.pixels

    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        kept = cast(GraphOutput, question.output)
        with torch.no_grad():
            if question.kind == "unit":
                start = unit_start(model, kept, question.ids, torch.ones_like(kept.scores[:, 0]))
            else:
                start = class_start(model, kept, question.ids)
        maps = _propagated(kept.graph, start, kept.pixels)
        self._started = self._started + start.sum().double()
        self._arrived = self._arrived + maps.sum().double()
        self._note_amplified(maps, start.abs().sum((1, 2, 3)))
        return maps

    def _obstacle(self, model: InterpretableModel) -> str | None:
        module = cast(nn.Module, model)
        with torch.inference_mode(False), torch.enable_grad():
            black = torch.zeros(1, 3, *model.geometry.image, device=model.input_std.device, requires_grad=True)
            rules = GradientRules(black, self.gamma_conv, self.gamma_linear)
            try:
                with rules.places(module), torch.compiler.set_stance("force_eager"), rules:
                    output = run_with_graph(model, black)
                if output.latent is None:
                    return "the model has no latent"
                if output.latent not in rules.known:
                    return "its latent is not computed from the images"
                _propagated(output, torch.ones_like(output.latent), rules.pixels)
            except NoRuleError as error:
                return str(error)
            except RuntimeError as error:
                return f"it has no gradient: {str(error).splitlines()[0]}"
        _attention[module] = rules.attention
        return misfit(model, output)


def _propagated(graph: ModelOutput, start: Tensor, pixels: Tensor) -> Tensor:
    """Relevance of the pixels ``(B, H, W)``, summed over RGB, for relevance of the latent: input × gradient."""
    latent = cast(Tensor, graph.latent)
    with torch.inference_mode(False), torch.enable_grad():
        gradient = torch.autograd.grad(latent, pixels, quotient(start, latent), retain_graph=True)[0]
    return (pixels.detach() * gradient).sum(1)
