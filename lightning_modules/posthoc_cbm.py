"""Post-hoc concept bottleneck (Yuksekgonul et al. 2023, *Post-hoc Concept Bottleneck Models*) on any backbone.

The bank of concept vectors and the head are fitted to the embeddings of all training images; projection, head, residual
and editing are in :mod:`~protometry.lightning_modules.bases.projected_concepts`.
"""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.projected_concepts import ProjectedConcepts
from protometry.lightning_modules.bases.training_inputs import data_of, refuse_unfit_concepts
from protometry.lightning_modules.contract import UnitTable
from protometry.lightning_modules.heads.concept_bank import Examples, fit_concept_bank
from protometry.metrics.primitives.checks import check_choice

Projection = Literal["raw", "unit", "margin"]


class PosthocCBM(ProjectedConcepts):
    """Post-hoc concept bottleneck model.

    Source: Yuksekgonul et al. 2023; raw projection and class-level evaluation: Aysel et al. 2025. Presets: ``plain``,
    and ``hybrid`` with a residual from the embedding to the logits, trained after everything else is fixed.

    With the embedding f = mean over cells of the latent z, a concept l with vector v_l and intercept b_l scores u_l =
    v_l·f (``raw``), v_l·f / ‖v_l‖ (``unit``) or (v_l·f + b_l) / ‖v_l‖ (``margin``, as the released code); its map is
    the same of z in every cell, and u_l is the mean of the map. Logits are W u + b, of the hybrid model
    W u + b + W_r f + b_r.

    Args:
        num_concepts: L, linked from the data.
        projection: how a score follows from vector and embedding.
        positives: training images with a concept for fitting its vector, and as many for validation.
        negatives: the same for images without it.
        svm_c: C of the support vector machines; Aysel et al. call it λ.
        head: ``softmax_elastic_net``, the only one.
        penalty: λ of the head, for standardised scores.
        l1_ratio: α of the elastic net, in [0, 1]; 0 for squares only.

    Raises:
        ValueError: for fewer than 2 concepts, an unknown or non-positive option, or multilabel data.

    Example:
        >>> model = PosthocCBM(num_classes=4, num_concepts=6, image_size=(32, 32)).eval()
        >>> output = model(torch.rand(2, 3, 32, 32))
        >>> output.scores.shape, torch.equal(output.maps.mean((2, 3)), output.scores)
        (torch.Size([2, 6]), True)
    """

    card = Card(
        name="Post-hoc concept bottleneck",
        units="annotated concepts, directions in the embedding",
        decision="sparse linear head over projections",
        paper="Yuksekgonul et al. 2023",
        url="https://arxiv.org/abs/2205.15480",
        page="posthoc_cbm.md",
    )
    examples: Tensor
    accuracies: Tensor
    margins: Tensor

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        num_concepts: int,
        projection: Projection = "raw",
        positives: int = 100,
        negatives: int = 100,
        svm_c: float = 1.0,
        head: str = "softmax_elastic_net",
        penalty: float = 2e-4,
        l1_ratio: float = 0.99,
        preset: str = "plain",
        **kwargs: Any,
    ) -> None:
        super().__init__(preset=preset, num_concepts=num_concepts, **kwargs)
        if num_concepts < 2:
            raise ValueError(
                f"Expected argument `num_concepts` to be at least 2, but got {num_concepts}. PosthocCBM needs data "
                "with annotated concepts, such as SketchBirds, Cub200 or AwA2."
            )
        check_choice("projection", projection, get_args(Projection))
        if head != "softmax_elastic_net":
            raise ValueError(
                f"Expected argument `head` to be 'softmax_elastic_net', but got {head!r}. "
                "For squares only, set `l1_ratio: 0`."
            )
        for name, size in (("positives", positives), ("negatives", negatives), ("svm_c", svm_c)):
            if not size > 0:
                raise ValueError(f"Expected argument `{name}` to be above 0, but got {size}.")
        self.make_layers(num_concepts, penalty, l1_ratio)
        self.projection: Projection = projection
        self.drawn = Examples(positives, negatives, svm_c)
        unknown = torch.full((num_concepts, 2), torch.nan)
        self.register_buffer("examples", torch.zeros(num_concepts, 2, 2, dtype=torch.int64))
        self.register_buffer("accuracies", unknown)
        self.register_buffer("margins", unknown.clone())

    def _directions(self) -> tuple[Tensor, Tensor]:
        """Weight ``(L, D)`` and offset ``(L,)`` of the projection; both 0 for a concept without a vector."""
        if self.projection == "raw":
            return self.vectors, torch.zeros_like(self.intercepts)
        norm = self.vectors.norm(dim=1).where(self._active(), 1.0)
        shift = self.intercepts / norm if self.projection == "margin" else torch.zeros_like(norm)
        return self.vectors / norm[:, None], shift

    def units(self) -> UnitTable:
        """Concepts; a class owns those with a positive weight. Those without a vector are inactive."""
        active, weight = self._active(), self.linear.weight
        concepts = torch.arange(len(active), device=active.device)
        return UnitTable(
            "concept", active, weight.T > 0, "mean", weight, self.vectors, comparison="projection", concepts=concepts
        )

    def setup(self, stage: str) -> None:
        """Also refuse data with other concepts than the model, before anything is trained."""
        super().setup(stage)
        if stage == "fit":
            refuse_unfit_concepts(data_of(self.trainer), self.num_classes, self.num_concepts)

    # -- fitting -----------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def fit_concepts(self, embeddings: Tensor, concepts: Tensor, targets: Tensor, seed: int) -> dict[str, float]:
        """Learn the bank of concept vectors, then the head on the projected embeddings.

        Args:
            embeddings: ``(n, D)`` float32 of the training images, possibly mapped from a file.
            concepts: ``(n, L)`` bool, or float with NaN where unknown.
            targets: ``(n,)`` int64 classes, or ``(n, K)`` float probabilities.
            seed: of the draw of examples.

        Returns:
            concepts, left_out and fewer_examples (concepts), mean accuracies of the vectors on the images they were
            learnt from and, where there are any, on others, weights_used (share of the head's), violation (of its
            optimality conditions), and head_accuracy on the training images (by the likeliest class).

        Raises:
            ValueError: if fewer than 2 concepts have images with and without them, or the table has other concepts.
        """
        if concepts.shape[1] != self.num_concepts:
            raise ValueError(f"Expected images with {self.num_concepts} concepts, but got {concepts.shape[1]}.")
        options = Examples(self.drawn.positives, self.drawn.negatives, self.drawn.svm_c, seed)
        bank = fit_concept_bank(embeddings, concepts, options)
        if (learnt := int(bank.found.sum())) < 2:
            raise ValueError(
                f"Expected at least 2 concepts that some training images show and others do not, and whose embeddings "
                f"differ, but got {learnt} of {self.num_concepts}. Choose other concepts, more classes, or a backbone "
                "that tells the images apart."
            )
        for name in ("vectors", "intercepts", "examples", "accuracies", "margins"):
            getattr(self, name).copy_(getattr(bank, name))
        fit = self._fit_head(embeddings, targets)
        asked = torch.tensor([options.negatives, options.positives])
        accuracies = zip(("train", "validation"), bank.accuracies[bank.found].nanmean(dim=0).tolist(), strict=True)
        return {
            "concepts": float(learnt),
            "left_out": float(self.num_concepts - learnt),
            "fewer_examples": float((bank.found & (bank.examples < asked).any(dim=2).any(dim=1)).sum()),
            **{f"{name}_accuracy": value for name, value in accuracies if math.isfinite(value)},
            **fit,
        }

    def concept_bank(self) -> dict[str, Tensor]:
        """For every concept: whether it is fitted, numbers of examples, accuracies and margins, each ``(L,)``."""
        columns: dict[str, Tensor] = {"fitted": self._active()}
        for row, split in enumerate(("train", "validation")):
            columns |= {f"{split}_{side}s": self.examples[:, row, i] for i, side in enumerate(("negative", "positive"))}
            columns[f"{split}_accuracy"] = self.accuracies[:, row]
        return columns | {f"margin_of_{side}s": self.margins[:, i] for i, side in enumerate(("negative", "positive"))}
