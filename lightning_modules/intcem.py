"""Intervention-aware concept embedding model (Espinosa Zarlenga et al. 2023): a CEM trained to be corrected.

Source: *Learning to Receive Help: Intervention-Aware Concept Embedding Models*. From top to
bottom: the policy, the trajectory of corrections and the two losses. Everything else is as in
:class:`~protometry.lightning_modules.cem.CEM`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.interpretable import LossTerm
from protometry.lightning_modules.bases.losses import cross_entropy
from protometry.lightning_modules.cem import CEM, mixed_embeddings
from protometry.lightning_modules.contract import ModelOutput
from protometry.lightning_modules.phases import PhasePlan
from protometry.metrics.primitives.checks import check_at_least
from protometry.metrics.primitives.perturbation import keyed_uniform

_HORIZON_SEED, _GUMBEL_SEED = 1 << 41, 1 << 42  # draws must not repeat those of RandInt
_HALF_STEP = 2.0**-24  # of uniform draws, which without it would hold -1, whose Gumbel noise is infinite
_FIRST_LIMIT, _GROWTH = 2, 1.005  # of the horizon, per optimiser step


def _with_policy(plan: PhasePlan, rollout: float) -> PhasePlan:
    """The plan of a CEM in which the policy learns with the concepts."""
    (phase,) = plan.phases
    rates, decays = (
        values | {"policy": values["concepts"]} if values else values
        for values in (phase.trainable, phase.weight_decay)
    )
    losses = phase.losses | {"rollout": rollout}
    return PhasePlan((replace(phase, trainable=rates, weight_decay=decays, losses=losses),))


class IntCEM(CEM):
    """A CEM with a policy that says which concept to correct next, trained on corrections that the policy chooses.

    Source: Espinosa Zarlenga et al. 2023; details are those of the released code. A training image starts with the
    corrections μ₀ of RandInt. In each of T steps the policy reads the mixed embeddings and which concepts are
    corrected, and a hard Gumbel-softmax with a straight-through gradient draws from its logits ω_t the concept that is
    corrected next, which gives μ_(t+1). With CE of the logits o after corrections μ and the class y:

    - ``cross_entropy`` is (CE(o(μ₀), y) + γᵀ CE(o(μ_T), y)) / (1 + γᵀ), with γ = ``discount``;
    - ``rollout`` is the mean over t of CE(ω_t, l_t), where l_t is the concept whose correction would raise the
      probability of y most.

    A concept that is unknown of an image is never corrected.

    T is drawn uniformly from 1 to the integer part of 2 · 1.005ⁿ in optimiser step n, at most ``horizon`` and L, alike
    for all images.

    Deviations: the code corrects concepts by group, draws T below the limit and not up to it, starts with a few random
    corrections besides those of RandInt, may draw a concept twice, and takes the l_t of the largest logit of y; its
    policy has BatchNorm in front of each layer. Here an image's loss does not depend on the others of its batch. An
    image whose known concepts are all corrected adds 0 to ``rollout``.

    Args:
        num_concepts: L, linked from the data.
        discount: γ, above 0; above 1, the end of a trajectory counts more than its beginning.
        horizon: largest T.
        preset: name of a phase plan, as of a CEM.
        kwargs: of :class:`~protometry.lightning_modules.cem.CEM`.

    Raises:
        ValueError: if ``discount`` is not above 0 and finite, or ``horizon`` is below 1.

    Example:
        >>> model = IntCEM(num_concepts=5, num_classes=4, image_size=(32, 32), embedding_size=3)
        >>> output = model(torch.rand(2, 3, 32, 32))
        >>> truth = torch.ones(2, 5, dtype=torch.bool)
        >>> order = model.order_of_corrections(output.scores, truth, output.extras["context"])
        >>> order.sort(dim=1).values.tolist()
        [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]]
    """

    card = Card(
        name="IntCEM",
        units="as CEM's, with a policy that says which to correct next",
        decision="as CEM's",
        paper="Espinosa Zarlenga et al. 2023",
        url="https://arxiv.org/abs/2309.16928",
        page="cem.md#intcem-trained-to-be-corrected",
        tiny={"embedding_size": 4},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        name: _with_policy(plan, 5.0 if name == "original" else 0.1) for name, plan in CEM.presets.items()
    }
    groups: ClassVar[dict[str, str]] = CEM.groups | {"policy": "policy"}

    def __init__(
        self, num_concepts: int, discount: float = 1.1, horizon: int = 6, preset: str = "sketch", **kwargs: Any
    ) -> None:
        super().__init__(num_concepts, preset=preset, **kwargs)
        check_at_least("horizon", horizon, 1)
        if not 0 < discount < math.inf:
            raise ValueError(f"Expected argument `discount` to be above 0 and finite, but got {discount}.")
        self.discount, self.horizon = discount, horizon
        concepts = len(self.known)
        self.policy = nn.Sequential(
            nn.Linear(self.linear.in_features + concepts, 256),
            nn.LeakyReLU(),
            nn.Linear(256, 128),
            nn.LeakyReLU(),
            nn.Linear(128, concepts),
        )

    # -- policy ------------------------------------------------------------------------------------------------------
    def preferences(self, scores: Tensor, context: Tensor, corrected: Tensor, unknown: Tensor | None = None) -> Tensor:
        """Logits ``(B, L)`` float32 of the policy; those of corrected and of unknown concepts are the lowest there are.

        Args:
            scores: ``(B, L)``, with the corrections.
            context: ``(B, L, 2, m)``.
            corrected: ``(B, L)`` float, 0 or 1.
            unknown: ``(B, L)`` bool, which concepts cannot be corrected; None for none.
        """
        embeddings = mixed_embeddings(scores, context).flatten(1)
        logits: Tensor = self.policy(torch.cat([embeddings, corrected], dim=1)).float()
        closed = corrected > 0.5 if unknown is None else (corrected > 0.5) | unknown
        return logits.masked_fill(closed, torch.finfo(logits.dtype).min)

    @torch.no_grad()
    def order_of_corrections(self, scores: Tensor, truth: Tensor, context: Tensor) -> Tensor:
        """``(B, L)`` int64, the concepts in the order in which the policy asks for their true values.

        Args:
            scores: ``(B, L)`` float, predicted.
            truth: ``(B, L)`` bool, what the policy is told of each concept it has asked for.
            context: ``(B, L, 2, m)`` float.
        """
        corrected, order = torch.zeros_like(truth), []
        for _ in range(truth.shape[1]):
            current = self.intervene(scores, truth, corrected)
            order.append(self.preferences(current, context, corrected.to(scores.dtype)).argmax(dim=1))
            corrected = corrected.scatter(1, order[-1][:, None], True)
        return torch.stack(order, dim=1)

    # -- training ----------------------------------------------------------------------------------------------------
    def trajectory(self, output: ModelOutput, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Corrections before each of T steps and after the last, and the logits of the policy in each.

        Steps and draws are a function of (``noise_seed``, optimiser step, sample, concept).

        Returns:
            ``(T + 1, B, L)`` float, 0 or 1, and ``(T, B, L)`` float.
        """
        context, (truth, unknown) = output.extras["context"], self._truth(batch)
        corrected = [self.randomly_chosen(batch).float()]
        length, keys = self._length(), batch["sample_key"]
        steps, shape = torch.full_like(keys, self.global_step)[:, None], (length, truth.shape[1])
        draws = keyed_uniform(keys, steps, shape, self.noise_seed + _GUMBEL_SEED)[:, 0].double()
        gumbel = -(-((draws + 1 + _HALF_STEP) / 2).log()).log().float()
        preferences = []
        for noise in gumbel.unbind(dim=1):
            current = torch.lerp(output.scores.float(), truth, corrected[-1])
            preferences.append(self.preferences(current, context, corrected[-1], unknown))
            soft = (preferences[-1] + noise).softmax(dim=1)
            chosen = F.one_hot(soft.argmax(dim=1), soft.shape[1]) + (soft - soft.detach())
            corrected.append(corrected[-1] + chosen * ((corrected[-1] < 0.5) & ~unknown))
        return torch.stack(corrected), torch.stack(preferences)

    def _truth(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """The labels of the concepts, ``(B, L)`` float, 0 where unknown, and where that is, ``(B, L)`` bool."""
        truth = self.training_concepts(batch)
        return truth.nan_to_num(), truth.isnan()

    def _length(self) -> int:
        """T of the optimiser step."""
        step = torch.tensor([self.global_step], device="cpu")  # where reading it makes no accelerator wait
        limit = float((_FIRST_LIMIT * torch.tensor(_GROWTH, device="cpu").double() ** step).clamp(max=self.horizon))
        draw = keyed_uniform(step, torch.zeros_like(step)[:, None], (), self.noise_seed + _HORIZON_SEED)
        return 1 + int((float(draw) + 1) / 2 * min(int(limit), len(self.known)))

    @torch.no_grad()
    def most_helpful(self, output: ModelOutput, batch: dict[str, Any], corrected: Tensor) -> Tensor:
        """``(T, B)`` int64, the concept whose correction would raise the probability of the class most.

        Of those that are known and not corrected already, ``(T, B, L)`` float, 0 or 1. Memory: T·B·L·K numbers.
        """
        (truth, unknown), context = self._truth(batch), output.extras["context"]
        scores = torch.lerp(output.scores.float(), truth, corrected)
        present, absent = context.unbind(dim=2)
        weight = self.linear.weight.view(self.num_classes, *present.shape[1:])
        slopes = torch.einsum("klm,blm->blk", weight, present - absent)  # of the logits in the probability of a concept
        logits = self.head(scores, context)[:, :, None] + (truth - scores)[..., None] * slopes  # (T, B, L, K)
        labels = batch["label"][:, None, None].expand(*logits.shape[:3], 1)
        chances = logits.float().log_softmax(dim=3).gather(3, labels).squeeze(3)
        return chances.masked_fill((corrected > 0.5) | unknown, -torch.inf).argmax(dim=2)

    def loss_terms(self) -> dict[str, LossTerm]:
        """``concept_bce`` as in a CEM; ``cross_entropy`` at both ends of a trajectory, and the policy's ``rollout``."""

        def cross_entropy_of_ends(output: ModelOutput, batch: dict[str, Any]) -> Tensor:
            corrected, preferences = self.trajectory(output, batch)
            truth, labels, targets = self._truth(batch)[0], batch["label"], batch.get("class_targets")
            first, last = (
                cross_entropy(self.head(scores, output.extras["context"]), labels, targets, self.class_weights)
                for scores in (torch.lerp(output.scores.float(), truth, corrected[end]) for end in (0, -1))
            )
            growth = self.discount ** len(preferences)
            return (first + growth * last) / (1 + growth)

        def rollout(output: ModelOutput, batch: dict[str, Any]) -> Tensor:
            corrected, preferences = self.trajectory(output, batch)
            before = corrected[:-1].detach()
            helpful = self.most_helpful(output, batch, before)
            losses = F.cross_entropy(preferences.flatten(0, 1), helpful.flatten(), reduction="none").view_as(helpful)
            return losses.masked_fill(((before > 0.5) | self._truth(batch)[1]).all(dim=2), 0.0).mean()

        return super().loss_terms() | {"cross_entropy": cross_entropy_of_ends, "rollout": rollout}
