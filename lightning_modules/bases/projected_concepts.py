"""What post-hoc bottlenecks have in common: concepts are projections of an embedding that is not trained.

Projection, sparse head, residual and their two schedules; a model adds how it learns the directions of its concepts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.nn import functional as F

from protometry.lightning_modules.bases.interpretable import InterpretableModule, LossTerm, Task
from protometry.lightning_modules.contract import ModelOutput
from protometry.lightning_modules.heads.sparse_head import HeadProblem, fit_sparse_head
from protometry.lightning_modules.phases import Phase, PhasePlan

CONVERGED = 1e-4  # largest violation of the head's optimality conditions
_BLOCK = 4096  # embeddings projected at once

# the epoch only measures; without anything to train, several processes could not share it
_FIT = Phase("fit", 1, {"head": 0.0}, {"cross_entropy": 1.0}, bn="eval", on_enter=("fit_concepts",), selectable=True)
_RESIDUAL = Phase(
    "residual", 20, {"residual": 1e-2}, {"cross_entropy": 1.0, "residual_l2": 1e-3}, bn="eval", selectable=True
)


class ProjectedConcepts(InterpretableModule):
    """Backbone, linear projection of every cell on L directions, mean over cells, sparse linear head.

    A model calls ``make_layers`` when it is made. Presets: ``plain``, and ``hybrid`` with a residual from the embedding
    to the logits, trained after everything else is fixed (Yuksekgonul et al. 2023).
    """

    presets: ClassVar[dict[str, PhasePlan]] = {
        "plain": PhasePlan((_FIT,)),
        "hybrid": PhasePlan((replace(_FIT, selectable=False), _RESIDUAL)),
    }
    tasks: ClassVar[tuple[Task, ...]] = ("multiclass",)
    vectors: Tensor
    intercepts: Tensor

    def make_layers(self, directions: int, penalty: float, l1_ratio: float) -> None:
        """Directions, head and, where the plan trains one, residual.

        Args:
            directions: L; they are random until they are fitted, a control.
            penalty: λ of the head, for standardised scores.
            l1_ratio: α of the elastic net, in [0, 1]; 0 for squares only.

        Raises:
            ValueError: for a penalty that is not positive, or an α out of range.
        """
        if not penalty > 0:
            raise ValueError(f"Expected argument `penalty` to be above 0, but got {penalty}.")
        if not 0 <= l1_ratio <= 1:
            raise ValueError(f"Expected argument `l1_ratio` to be at least 0 and at most 1, but got {l1_ratio}.")
        self.penalty, self.l1_ratio = penalty, l1_ratio
        channels = self.backbone.out_channels
        self.register_buffer("vectors", torch.randn(directions, channels) / channels**0.5)
        self.register_buffer("intercepts", torch.zeros(directions))
        self.linear = nn.Linear(directions, self.num_classes)
        self.residual: nn.Linear | None = None
        if any("residual" in phase.trainable for phase in self.plan.phases):
            self.residual = nn.Linear(channels, self.num_classes)
            nn.init.zeros_(self.residual.weight)  # until it is trained, only concepts decide
            nn.init.zeros_(self.residual.bias)

    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, projection of every cell, mean over cells, linear head, residual of the mean of all cells."""
        latent = self.backbone(images)
        weight, bias = self._directions()
        maps = F.conv2d(latent, weight[:, :, None, None], bias)
        scores = maps.mean(dim=(2, 3))
        logits = self.head(scores)
        if self.residual is None:
            return ModelOutput(logits, scores, maps, latent)
        residual = self.residual(latent.mean(dim=(2, 3)))
        return ModelOutput(logits + residual, scores, maps, latent, {"residual": residual})

    def _directions(self) -> tuple[Tensor, Tensor]:
        """Weight ``(L, D)`` and offset ``(L,)`` of the projection; both 0 for a concept without a vector."""
        return self.vectors, self.intercepts

    def _active(self) -> Tensor:
        return (self.vectors != 0).any(dim=1)

    def head(self, scores: Tensor) -> Tensor:
        """The part of the logits ``(B, K)`` that comes from scores ``(B, U)``: all of it without a residual."""
        return self.linear(scores)  # type: ignore[no-any-return]

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Groups ``backbone``, ``head`` and, where the plan trains one, ``residual``."""
        groups = super().parameter_groups()
        return groups if self.residual is None else groups | {"residual": list(self.residual.parameters())}

    def loss_terms(self) -> dict[str, LossTerm]:
        """``residual_l2`` is the mean of the squared weights of the residual."""
        if (residual := self.residual) is None:
            return super().loss_terms()
        return super().loss_terms() | {"residual_l2": lambda output, batch: residual.weight.float().square().mean()}

    def _fit_head(self, embeddings: Tensor, targets: Tensor) -> dict[str, float]:
        weight, bias = self._directions()
        scores = torch.cat(
            [F.linear(rows.to(weight), weight, bias) for rows in embeddings.chunk(1 + len(embeddings) // _BLOCK)]
        )
        problem = HeadProblem(scores, targets, self.num_classes, self.penalty, self.l1_ratio)
        solved = fit_sparse_head(problem)
        if not solved.violation <= CONVERGED:
            rank_zero_warn(
                f"The head violates its optimality conditions by {solved.violation:.1e} after {solved.evaluations} "
                f"passes. Raise `penalty` (now {self.penalty})."
            )
        raw_weight, raw_bias = problem.on_raw_scores(solved.weight, solved.bias)
        self.linear.weight.copy_(raw_weight)
        self.linear.bias.copy_(raw_bias)
        labels = problem.targets if targets.ndim == 1 else problem.targets.argmax(dim=1)
        return {
            "weights_used": (solved.weight != 0).double().mean().item(),
            "violation": solved.violation,
            "head_accuracy": (self.head(scores).argmax(dim=1) == labels).double().mean().item(),
        }

    @torch.no_grad()
    def edit(self, removed: Tensor, renormalize: bool = False) -> None:
        """Concept editing: classes no longer read some concepts (Yuksekgonul et al. 2023, section 5).

        Args:
            removed: ``(K, L)`` bool, weights to set to 0.
            renormalize: whether the other weights of each class are scaled so that their absolute sum stays.

        Raises:
            ValueError: for another shape, or if a class to be renormalised would read no concept any more.
        """
        weight = self.linear.weight
        if removed.shape != weight.shape:
            raise ValueError(
                f"Expected argument `removed` to have the shape {tuple(weight.shape)}, but got {tuple(removed.shape)}."
            )
        before, kept = weight.abs().sum(dim=1), weight.masked_fill(removed.to(weight.device), 0.0)
        after = kept.abs().sum(dim=1)
        if renormalize and (empty := (before > 0) & (after == 0)).any():
            raise ValueError(
                f"Expected argument `removed` to leave every class a concept with a weight, but the classes "
                f"{empty.nonzero().flatten().tolist()} have none left. Pass `renormalize=False`, or remove less."
            )
        scale = before / after.where(after > 0, 1.0) if renormalize else torch.ones_like(after)
        weight.copy_(kept * scale[:, None])
