"""The contract of all models, which makes metrics, projection, reports and studies independent of the model.

A model provides its outputs (``forward -> ModelOutput``), its units (``units() -> UnitTable``), their decision
(``head`` and ``contributions``), the place of a cell in the image (``geometry``) and its training schedule (``phases``
and ``parameter_groups``). Shape letters: B images, K classes, U units, D latent channels, ``h w`` latent grid, ``H W``
image.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from protometry.lightning_modules.bases.geometry import Geometry
from protometry.lightning_modules.heads.feature_constants import FeatureSums
from protometry.lightning_modules.heads.tree import SoftTree
from protometry.lightning_modules.phases import HeadSpec, PhasePlan

UnitKind = Literal["prototype", "concept", "feature", "class"]
Pool = Literal["max", "mean", "focal", "sum"]
Comparison = Literal["distance", "projection"]
Values = Literal["binary", "percentiles"]
LeftOut = Literal[
    "", "too long", "a class", "like a class", "like another word", "no image shows it", "not interpretable"
]


@dataclass(frozen=True)
class ModelOutput:
    """The outputs of a model for a batch.

    Args:
        logits: ``(B, K)`` float, the input of the arg-max.
        scores: ``(B, U)`` float, exactly what the head consumes; 0 for inactive units.
        maps: ``(B, U, h, w)`` float, larger means more present; ``scores`` is their pool for active units.
        latent: ``(B, D, h, w)`` float, the space in which units are compared, or None.
        extras: further tensors with B rows, such as ``pooled`` (B, U); ``abstain`` (B,) bool marks images without a
            decision, with equal logits for all classes; ``context`` is what the head reads of an image besides its
            scores, see :func:`logits_of`.
        cells: ``(B, U, P)`` int64, the flat cells (row·w + column) that the P parts of each unit were found in, the
            nearest ones for places between cells; None if units have one part, which is found where their map is
            largest (everywhere if their pool is a mean), and in training. The map of a unit with several parts is
            largest at the cell around which they lie or, if its pool is a sum, at the part that adds most. Metrics of
            places look there.
    """

    logits: Tensor
    scores: Tensor
    maps: Tensor
    latent: Tensor | None = None
    extras: dict[str, Tensor] = field(default_factory=dict)
    cells: Tensor | None = None


torch.export.register_dataclass(ModelOutput, serialized_type_name="protometry.ModelOutput")  # returned by exports


@dataclass(frozen=True)
class SourceTable:
    """Where each unit was projected from; the identity of a source is ``(sample_key, row, col)``.

    For units with several parts, this is the cell around which they lie or, in ProtoViT, the cell of the first part.

    Args:
        sample_key: ``(U,)`` int64, -1 where the unit has no source.
        sample_id: U strings, empty where there is no source.
        row: ``(U,)`` int64 grid row.
        col: ``(U,)`` int64 grid column.
        label: ``(U,)`` int64 class of the source image, -1 without source.
        distance: ``(U,)`` float32, distance of the unit to its patch before it was copied; inf without source.
        box: ``(U, 4)`` int64 inclusive pixels (x0, y0, x1, y1) of the cell in the evaluation transform's frame.
    """

    sample_key: Tensor
    sample_id: list[str]
    row: Tensor
    col: Tensor
    label: Tensor
    distance: Tensor
    box: Tensor

    @property
    def found(self) -> Tensor:
        """``(U,)`` bool, True where the unit has a source."""
        return self.sample_key >= 0

    def duplicates(self) -> list[list[int]]:
        """Groups of at least two units that share one source patch, ordered by their first member."""
        groups: dict[tuple[int, int, int], list[int]] = {}
        rows = zip(self.sample_key.tolist(), self.row.tolist(), self.col.tolist(), strict=True)
        for unit, identity in enumerate(rows):
            if identity[0] >= 0:
                groups.setdefault(identity, []).append(unit)
        return [members for members in groups.values() if len(members) > 1]


@dataclass(frozen=True)
class UnitTable:
    """The units of a model.

    Args:
        active: ``(U,)`` bool; inactive units score 0 and are left out by every metric.
        owner: ``(U, K)`` bool, the relation to classes that metrics use.
        weight: ``(K, U)`` float head weights, or None for models without a weight matrix.
        vectors: ``(U, P·D)`` float stored vectors the latent is compared with, part by part, or None.
        source: where the units were projected from, or None before projection.
        comparison: how ``vectors`` are compared with the latent: by distance, or by an inner product (cosine included).
        presence: ``(K, U)`` bool, which classes a pool of shared units is assigned to, or None for units that are not
            assigned; a unit counts as used where it is assigned, even with weight 0.
        concepts: ``(U,)`` int64, the concept of the data set that each unit stands for, -1 for none; None for models
            that do not name their units.
        names: U words for the units of a model that has its own, or None.
        parts: P, the parts of a unit, each of which is compared with a cell of its own.
    """

    kind: UnitKind
    active: Tensor
    owner: Tensor
    pool: Pool
    weight: Tensor | None = None
    vectors: Tensor | None = None
    source: SourceTable | None = None
    comparison: Comparison = "distance"
    presence: Tensor | None = None
    concepts: Tensor | None = None
    names: tuple[str, ...] | None = None
    parts: int = 1


@runtime_checkable
class InterpretableModel(Protocol):
    """The five questions every model answers (see the module docstring)."""

    def __call__(self, images: Tensor) -> ModelOutput:
        """Process RGB images ``(B, 3, H, W)`` in [0, 1]."""
        ...

    def head(self, scores: Tensor) -> Tensor:
        """Map scores ``(B, U)`` to logits ``(B, K)``."""
        ...

    def contributions(self, output: ModelOutput, classes: Tensor) -> Tensor:
        """``(B, U)`` contribution of every unit to the logit of ``classes`` (B,)."""
        ...

    def probabilities(self, logits: Tensor) -> Tensor:
        """Probabilities ``(B, K)`` of logits ``(B, K)``."""
        ...

    def units(self) -> UnitTable:
        """What the units are."""
        ...

    @property
    def geometry(self) -> Geometry:
        """Where a latent cell lies in the image."""
        ...

    @property
    def input_std(self) -> Tensor:
        """``(3, 1, 1)`` standard deviations of the input normalisation, for noise in normalised units."""
        ...

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Every parameter, once, by group name."""
        ...

    def phases(self) -> PhasePlan:
        """What is trained when."""
        ...


@runtime_checkable
class Projectable(Protocol):
    """A model whose units are vectors that can be replaced by latent patches of training images."""

    def embed(self, images: Tensor) -> Tensor:
        """What units may become at each cell, ``(B, P·D, h, w)``: the latent, or that of the parts around the cell."""
        ...

    def distance_maps(self, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """Exact distances ``(B, U, h, w)`` float32 of every cell to every unit, or to n ``units`` (B, n) per image."""
        ...

    def allowed(self, targets: Tensor) -> Tensor:
        """``(B, U)`` bool: may the unit be projected onto an image with this target (``(B,)`` or ``(B, K)``)?"""
        ...

    def load_patches(self, patches: Tensor, valid: Tensor, source: SourceTable) -> None:
        """Copy ``patches`` (U, P·D) into the units where ``valid`` (U,) and store ``source``."""
        ...


@runtime_checkable
class ScoresUnits(Protocol):
    """A model that can score some of its units without the others."""

    def unit_scores(self, images: Tensor, units: Tensor) -> Tensor:
        """Scores ``(B, k)`` of the given units ``(B, k)`` int64 of each image, as in the forward pass."""
        ...


@runtime_checkable
class Intervenable(Protocol):
    """A model whose units are predictions of concepts that a person can correct.

    Args:
        percentiles: ``(2, U)`` float, 5th and 95th percentile of the pooled maps of training images; NaN before they
            are stored.
    """

    values: Values
    if TYPE_CHECKING:  # isinstance sees no buffers from Python 3.12 on
        percentiles: Tensor

    def concept_probabilities(self, scores: Tensor) -> Tensor:
        """Probabilities ``(..., U)`` of the concepts by their scores."""
        ...

    def intervene(self, scores: Tensor, truth: Tensor, mask: Tensor, values: Values | None = None) -> Tensor:
        """Scores ``(..., U)`` in which the concepts of ``mask`` are replaced by ``truth`` (both bool)."""
        ...

    def load_percentiles(self, low: Tensor, high: Tensor) -> None:
        """Store percentiles, ``(U,)`` each."""
        ...


@runtime_checkable
class FitsConcepts(Protocol):
    """A model whose units are fitted to concepts at once, on the embeddings of all training images."""

    def fit_concepts(self, embeddings: Tensor, concepts: Tensor, targets: Tensor, seed: int) -> dict[str, float]:
        """Fit to ``embeddings`` (n, D), ``concepts`` (n, L; NaN: unknown), ``targets`` (n,) or (n, K); figures."""
        ...

    def concept_bank(self) -> Mapping[str, Any]:
        """Statistics of every concept: columns ``(L,)`` by name, tensors or lists."""
        ...

    def units(self) -> UnitTable:
        """What the units are."""
        ...


@dataclass(frozen=True)
class Words:
    """Concepts that no image is annotated with, and which of them are unfit by name.

    Args:
        names: L words or phrases.
        embeddings: file with what a text and an image tower make of them and of the training images.
        directions: whether units are learnt from the similarities of images to words, or are the texts themselves.
        longest: characters of a word.
        like_class: cosine to the name of a class from which on a word is unfit.
        like_another: cosine to another word from which on one of the two is unfit.
    """

    names: list[str]
    embeddings: str
    directions: Literal["learnt", "text"] = "learnt"
    longest: int = 30
    like_class: float = 0.85
    like_another: float = 0.9


@runtime_checkable
class FitsWords(Protocol):
    """A model that is fitted to words: ``fit_concepts`` is given the similarities ``(n, L)`` of images to them."""

    words: Words

    def load_words(self, unfit: list[LeftOut], linked: list[int], vectors: Tensor | None) -> None:
        """What is known of the L words before a fit.

        Args:
            unfit: why a word is unfit by name, "" for fit ones.
            linked: the concept of the data that has the name of the word, -1 for none.
            vectors: ``(L, D)`` text embeddings, only where they are the directions of the units.

        Raises:
            ValueError: if the embeddings do not suit the backbone.
        """


@runtime_checkable
class FitsHead(Protocol):
    """A model whose last layer can be solved on scores."""

    def fit_head(
        self, training: tuple[Tensor, Tensor], validation: tuple[Tensor, Tensor] | None, spec: HeadSpec
    ) -> list[dict[str, Any]]:
        """Solve it on scores ``(n, U)`` and targets; returns a row and the ``weight`` per penalty, one ``chosen``."""

    def calibrate(self, images: tuple[Tensor, Tensor]) -> float:
        """Divide its weights by the temperature that suits scores ``(n, U)`` and targets best; returns it."""


@runtime_checkable
class SelectsFeatures(Protocol):
    """A model that selects features by sums over training images."""

    def feature_sums(self) -> FeatureSums:
        """Empty sums, to be updated with the maps and labels of every training image."""
        ...

    def select(self, sums: FeatureSums) -> dict[str, float]:
        """Keep the best features; returns figures of the selection."""
        ...


@runtime_checkable
class DecidesByTree(Protocol):
    """A model whose units are the nodes of a binary tree, in heap order."""

    inference: str
    if TYPE_CHECKING:  # isinstance sees no submodules from Python 3.12 on
        tree: SoftTree


def logits_of(model: InterpretableModel, scores: Tensor, context: Tensor | None = None) -> Tensor:
    """The logits that images would have with other scores.

    Args:
        model: whose ``head`` takes ``context``, too, if it has one.
        scores: ``(B, ..., U)`` float.
        context: ``(B, ...)`` of the same images, from ``output.extras``; zeros for the logits to which contributions
            are added.

    Returns:
        ``(B, ..., K)``.

    Example:
        >>> from protometry.lightning_modules import CEM
        >>> model = CEM(num_concepts=5, num_classes=4, image_size=(32, 32)).eval()
        >>> output = model(torch.rand(2, 3, 32, 32))
        >>> torch.equal(logits_of(model, output.scores, output.extras["context"]), output.logits)
        True
    """
    head: Any = model.head
    if context is None:
        logits: Tensor = head(scores.flatten(0, -2))
        return logits.view(*scores.shape[:-1], -1)
    spread = context[(slice(None), *[None] * (scores.ndim - 2))]
    changed: Tensor = head(scores, spread)
    return changed


def predicted_classes(logits: Tensor, abstains: bool = False, threshold: Tensor | float | None = None) -> Tensor:
    """The predictions of a model.

    Args:
        logits: ``(B, K)`` float.
        abstains: whether equal logits for all classes are an abstention.
        threshold: the decision threshold of a multilabel model, else None.

    Returns:
        ``(B,)`` int64, the class with the largest logit, the first on ties, and -1 where the model abstains; if
        multilabel ``(B, K)`` bool, the logit is above the threshold.

    Example:
        >>> predicted_classes(torch.tensor([[1.0, 2.0], [0.0, 0.0]]), abstains=True).tolist()
        [1, -1]
    """
    if threshold is not None:
        return logits > threshold
    best = logits.argmax(dim=1)
    return best.masked_fill((logits == logits[:, :1]).all(dim=1), -1) if abstains else best


def owned_by_targets(owner: Tensor, targets: Tensor) -> Tensor:
    """``(B, U)`` bool: the unit is owned by the class ``(B,)`` of an image, or by any of its known labels ``(B, K)``.

    Example:
        >>> owner = torch.eye(3, dtype=torch.bool)
        >>> owned_by_targets(owner, torch.tensor([2])).tolist()
        [[False, False, True]]
        >>> owned_by_targets(owner, torch.tensor([[True, False, True]])).tolist()
        [[True, False, True]]
    """
    if targets.ndim == 1:
        return owner.T[targets]
    return ((targets == 1).float() @ owner.T.float()) > 0


def empty_sources(units: int) -> SourceTable:
    """A source table in which no unit has a source."""
    return SourceTable(
        sample_key=torch.full((units,), -1, dtype=torch.int64),
        sample_id=[""] * units,
        row=torch.full((units,), -1, dtype=torch.int64),
        col=torch.full((units,), -1, dtype=torch.int64),
        label=torch.full((units,), -1, dtype=torch.int64),
        distance=torch.full((units,), torch.inf),
        box=torch.full((units, 4), -1, dtype=torch.int64),
    )
