"""Concept embedding model (Espinosa Zarlenga et al. 2022): a bottleneck whose concepts are vectors.

Source: *Concept Embedding Models: Beyond the Accuracy-Explainability Trade-Off*.

Embeddings, mixture, random corrections in training and phases, from top to bottom; data, concept labels and corrected
values are those of :class:`~protometry.lightning_modules.concept_bottleneck.ConceptBottleneck`.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.interpretable import LossTerm
from protometry.lightning_modules.bases.losses import cross_entropy
from protometry.lightning_modules.concept_bottleneck import ConceptBottleneck
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.lightning_modules.phases import OptimizerSpec, Phase, PhasePlan, one_cycle
from protometry.metrics.primitives.checks import check_at_least
from protometry.metrics.primitives.perturbation import keyed_uniform

_RANDINT_SEED = 1 << 40  # draws of RandInt must not repeat those of label noise
_OF_CUB = 112  # concepts over which the released code averages the concept loss
_EVERYTHING = dict.fromkeys(("backbone", "concepts", "head"), 1e-2)
_ORIGINAL = Phase(
    "joint",
    300,
    _EVERYTHING,
    {"cross_entropy": 1.0, "concept_bce": 5 / _OF_CUB},
    weight_decay=dict.fromkeys(_EVERYTHING, 4e-6),
    optimizer=OptimizerSpec("SGD", {"momentum": 0.9}),
    selectable=True,
)
_SKETCH = dict.fromkeys(_EVERYTHING, 3e-3)


class ConceptEmbeddings(nn.Module):
    """Two embeddings of every concept in every cell, and one scoring function for all concepts.

    Args:
        channels: D of the latent.
        num_concepts: L.
        size: m, numbers of one embedding.
    """

    def __init__(self, channels: int, num_concepts: int, size: int) -> None:
        super().__init__()
        self.shape = (num_concepts, 2 * size)
        self.embed = nn.Conv2d(channels, num_concepts * 2 * size, 1)
        self.score = nn.Conv2d(2 * size, 1, 1)

    def forward(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Of ``(B, D, h, w)`` the mean embeddings ``(B, L, 2, m)`` and the concept logit of each cell (B, L, h, w)."""
        images, grid = latent.shape[0], latent.shape[2:]  # len() would fix the number of images in an export
        cells = F.leaky_relu(self.embed(latent)).view(images, *self.shape, *grid)
        maps = self.score(cells.flatten(0, 1)).view(images, -1, *grid)
        return cells.mean(dim=(3, 4)).view(images, self.shape[0], 2, -1), maps


class CEM(ConceptBottleneck):
    """Backbone, two embeddings per concept, their mixture by the probability of the concept, linear head.

    Source: Espinosa Zarlenga et al. 2022. With the latent z, a concept l has the embeddings
    [c⁺_l; c⁻_l] = mean over cells of LeakyReLU(V_l z + b_l) for its presence and its absence, the probability
    p_l = σ(w·[c⁺_l; c⁻_l] + b) by one scoring function for all concepts, and the mixture
    c_l = p_l c⁺_l + (1 - p_l) c⁻_l; logits are Σ_l W_l c_l + β. ``scores`` are the p_l. The head reads the embeddings,
    too, which are in ``extras["context"]``: a concept adds W_kl·c_l to the logit of class k, and no weight matrix says
    how much a concept counts in every image.

    Deviations: an embedding is the mean over cells of activated embeddings of the cells, where the paper activates an
    embedding of the mean; the score is linear in it, so that the concept logit of an image is the mean of its map
    exactly. RandInt draws for each image and concept, as in the paper; the released code draws concepts for a whole
    batch. The learning rate of ``original`` is constant; the code divides it by 10 when the training loss stagnates
    and stops when the validation loss does.

    Presets: ``original`` is the published schedule for CUB; ``sketch`` (from scratch) and ``pretrained`` (a pretrained
    backbone) are ours.

    Args:
        num_concepts: L, linked from the data.
        embedding_size: m.
        correct: probability that training replaces p_l by the true label in ``cross_entropy`` (RandInt).
        preset: name of a phase plan.
        kwargs: of :class:`~protometry.lightning_modules.concept_bottleneck.ConceptBottleneck`; rare concepts weigh
            more by default in ``original``.

    Raises:
        ValueError: if ``embedding_size`` is below 1 or ``correct`` is not in [0, 1).

    Example:
        >>> model = CEM(num_concepts=5, num_classes=4, image_size=(32, 32), embedding_size=3)
        >>> output = model(torch.rand(2, 3, 32, 32))
        >>> output.scores.shape, output.extras["context"].shape
        (torch.Size([2, 5]), torch.Size([2, 5, 2, 3]))
        >>> corrected = model.intervene(output.scores, torch.ones(2, 5, dtype=torch.bool), torch.arange(5) == 3)
        >>> model.head(corrected, output.extras["context"]).shape
        torch.Size([2, 4])
    """

    card = Card(
        name="CEM",
        units="concepts of the data, each with two embeddings",
        decision="linear head over mixed embeddings",
        paper="Espinosa Zarlenga et al. 2022",
        url="https://arxiv.org/abs/2209.09056",
        page="cem.md",
        tiny={"embedding_size": 4},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": PhasePlan((_ORIGINAL,)),
        "sketch": PhasePlan(
            (one_cycle("joint", 12, _SKETCH, {"cross_entropy": 1.0, "concept_bce": 0.1}, selectable=True),)
        ),
        "pretrained": PhasePlan(
            (
                one_cycle(
                    "joint",
                    15,
                    _SKETCH | {"backbone": 3e-4},
                    {"cross_entropy": 1.0, "concept_bce": 0.1},
                    bn="eval",
                    selectable=True,
                ),
            )
        ),
    }
    weighing: ClassVar[frozenset[str]] = frozenset({"original"})

    def __init__(
        self,
        num_concepts: int,
        embedding_size: int = 16,
        correct: float = 0.25,
        preset: str = "sketch",
        **kwargs: Any,
    ) -> None:
        super().__init__(num_concepts, preset=preset, **kwargs)
        check_at_least("embedding_size", embedding_size, 1)
        if not 0 <= correct < 1:
            raise ValueError(f"Expected argument `correct` to be at least 0 and below 1, but got {correct}.")
        self.correct = correct
        self.independent, self.values = True, "binary"  # scores are probabilities
        self.concepts = ConceptEmbeddings(self.backbone.out_channels, len(self.known), embedding_size)
        self.linear = nn.Linear(len(self.known) * embedding_size, self.num_classes)

    # -- decision ----------------------------------------------------------------------------------------------------
    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, embeddings and concept logit of every cell, means over cells, mixture, linear head."""
        latent = self.backbone(images)
        context, maps = self.concepts(latent)
        pooled = maps.mean(dim=(2, 3))
        scores = pooled.sigmoid()
        return ModelOutput(self.head(scores, context), scores, maps, latent, {"pooled": pooled, "context": context})

    def head(self, scores: Tensor, context: Tensor | None = None) -> Tensor:
        """Logits ``(..., K)`` of probabilities ``(..., L)`` and embeddings ``(..., L, 2, m)``, presence first.

        Raises:
            TypeError: without the embeddings.
        """
        logits: Tensor = self.linear(mixed_embeddings(scores, context).flatten(-2))
        return logits

    def contributions(self, output: ModelOutput, classes: Tensor) -> Tensor:
        """``(B, L)``: W_kl·c_l for one class k per image; rows sum to the logit less its bias."""
        mixed = mixed_embeddings(output.scores, output.extras.get("context"))
        weight = self.linear.weight.view(self.num_classes, *mixed.shape[1:])
        return (weight[classes] * mixed).sum(dim=2)

    def units(self) -> UnitTable:
        """The concepts of the data that are used; a class may use any of them, in each image differently."""
        active = torch.ones_like(self.known, dtype=torch.bool)
        return UnitTable("concept", active, active[:, None].expand(-1, self.num_classes), "mean", concepts=self.known)

    # -- training ----------------------------------------------------------------------------------------------------
    def reads_scores_only(self) -> bool:
        """False: the head reads embeddings, too."""
        return False

    def randomly_chosen(self, batch: dict[str, Any]) -> Tensor:
        """``(B, L)`` bool, the concepts that RandInt corrects, of those that are known of the image.

        The draws are a function of (``noise_seed``, optimiser step, sample, concept).
        """
        keys = batch["sample_key"]
        steps = torch.full_like(keys, self.global_step)[:, None]
        draws = keyed_uniform(keys, steps, tuple(self.known.shape), self.noise_seed + _RANDINT_SEED)[:, 0]
        return (draws < 2 * self.correct - 1) & ~self.training_concepts(batch).isnan()

    def randomly_corrected(self, scores: Tensor, batch: dict[str, Any]) -> Tensor:
        """RandInt: scores ``(B, L)``, a share of them replaced by the labels."""
        return torch.where(self.randomly_chosen(batch), self.training_concepts(batch).to(scores.dtype), scores)

    def loss_terms(self) -> dict[str, LossTerm]:
        """``concept_bce`` as in a bottleneck; ``cross_entropy`` of the logits after RandInt."""
        terms = super().loss_terms()
        del terms["truth_cross_entropy"]  # a head on labels alone would need embeddings, too

        def corrected_cross_entropy(output: ModelOutput, batch: dict[str, Any]) -> Tensor:
            scores = self.randomly_corrected(output.scores, batch)
            logits = self.head(scores, output.extras["context"])
            return cross_entropy(logits, batch["label"], batch.get("class_targets"), self.class_weights)

        return terms | {"cross_entropy": corrected_cross_entropy}


def mixed_embeddings(scores: Tensor, context: Tensor | None) -> Tensor:
    """``(..., L, m)``: p c⁺ + (1 - p) c⁻."""
    if context is None:
        raise TypeError(
            "Expected argument `context` to hold the embeddings of the images, because scores alone decide nothing "
            'here, but got None. Pass `output.extras["context"]`, or call `contract.logits_of`.'
        )
    present, absent = context.unbind(dim=-2)
    return scores[..., None] * present + (1 - scores[..., None]) * absent
