"""Concept bottleneck model (Koh et al. 2020, *Concept Bottleneck Models*): classes are predicted from named concepts.

Architecture, losses, corrections and phases, from top to bottom. Deviations from the released code: no auxiliary head,
no nonlinear label head, and BatchNorm keeps its running statistics where the backbone is frozen. A corrected concept
takes percentiles of the logits of training images; the released code uses the evaluated images.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.interpretable import InterpretableModule, LossTerm, Task
from protometry.lightning_modules.bases.losses import concept_bce, cross_entropy
from protometry.lightning_modules.bases.training_inputs import data_of, refuse_unfit_concepts
from protometry.lightning_modules.contract import ModelOutput, UnitTable, Values
from protometry.lightning_modules.phases import OptimizerSpec, Phase, PhasePlan, SchedulerSpec, one_cycle
from protometry.metrics.primitives.checks import check_choice
from protometry.metrics.primitives.perturbation import keyed_uniform
from protometry.metrics.primitives.truth import truth_of

ConceptWeights = Literal["equal", "imbalance"]
PERCENTILES = "concept_percentiles"  # action: stores the values of corrected concepts
_CONCEPTS, _EVERYTHING = ("backbone", "concepts"), ("backbone", "concepts", "head")
_CONCEPT_LOSS, _TRUTH, _LABELS = {"concept_bce": 1.0}, {"truth_cross_entropy": 1.0}, {"cross_entropy": 1.0}
_LAST: dict[str, Any] = {"bn": "eval", "on_enter": (PERCENTILES,), "selectable": True}  # settings of a last phase
_STEPS = SchedulerSpec("MultiStepLR", {"milestones": [21, 41], "gamma": 0.1})  # as released, never below 1e-4
_OF_CUB = 112  # concepts of Koh et al., over which their losses are divided
_JOINT = {"cross_entropy": 1 / (1 + 0.01 * _OF_CUB), "concept_bce": 0.01 / (1 + 0.01 * _OF_CUB)}


def _published(name: str, epochs: int, groups: tuple[str, ...], rate: float, decay: float, **changes: Any) -> Phase:
    rates, decays = dict.fromkeys(groups, rate), dict.fromkeys(groups, decay)
    optimizer = OptimizerSpec("SGD", {"momentum": 0.9})
    return Phase(name, epochs, rates, weight_decay=decays, optimizer=optimizer, **changes)


def _ours_in_turn(concepts: Phase, losses: dict[str, float]) -> PhasePlan:
    """Concepts first, then labels from them; the percentiles no longer change."""
    labels = one_cycle("labels", 5, {"head": 3e-2}, losses, **_LAST)
    return PhasePlan((concepts, labels))


def _ending(phase: Phase) -> PhasePlan:
    """All at once, then an epoch that changes nothing, so that selected checkpoints match their percentiles."""
    last = Phase("measure", 1, {"head": 0.0}, _LABELS, **_LAST)
    return PhasePlan((phase, last))


_SKETCH, _TUNED = dict.fromkeys(_CONCEPTS, 3e-3), {"backbone": 3e-4, "concepts": 3e-3}
_FROM_SCRATCH = one_cycle("concepts", 10, _SKETCH, _CONCEPT_LOSS)
_FROM_WEIGHTS = one_cycle("concepts", 15, _TUNED, _CONCEPT_LOSS, bn="eval")

_BOTTLENECK = _published("concepts", 1000, _CONCEPTS, 1e-2, 4e-5, losses={"concept_bce": 1 / _OF_CUB})
_OF_THE_PAPER = {
    "independent": PhasePlan((_BOTTLENECK, _published("labels", 500, ("head",), 1e-3, 5e-5, losses=_TRUTH, **_LAST))),
    "sequential": PhasePlan((_BOTTLENECK, _published("labels", 1000, ("head",), 1e-3, 4e-5, losses=_LABELS, **_LAST))),
    "joint": _ending(_published("joint", 1000, _EVERYTHING, 1e-3, 4e-4, losses=_JOINT)),
    "standard": _ending(_published("joint", 1000, _EVERYTHING, 1e-2, 4e-5, losses=_LABELS, scheduler=_STEPS)),
}


class ConceptBottleneck(InterpretableModule):
    """Backbone, mean over cells, linear layer to L concepts, linear head from concepts to classes.

    Source: Koh et al. 2020. The concept logits of a cell are its map, bias included, and their mean over cells is the
    concept logit of the image. The preset decides what the head consumes:

    - *independent*: trained on the true concepts of training images, 0 or 1; at test, and for a concept that is unknown
      of a training image (ours), it consumes the sigmoid of the logits. ``scores`` are these probabilities in either
      mode of the module, the mean of a map is in ``extras["pooled"]``.
    - *sequential*: trained on the concept logits of a finished bottleneck; ``scores`` are logits.
    - *joint*: everything at once on ``cross_entropy`` and ``concept_bce``; ``scores`` are logits.
    - *standard*: joint without a concept loss.

    Presets: ``independent``, ``sequential``, ``joint`` and ``standard`` are from the paper (with coefficients for
    its 112 concepts); ``sketch_…`` (from scratch) and ``pretrained_…`` (a pretrained backbone) are ours.

    Args:
        num_concepts: L, linked from the data.
        concept_weights: v_l of ``concept_bce``: 1, or with ``"imbalance"`` n / n_l - 1 of n training images, n_l of
            which have the concept by the data's class table. None for the published choice of the preset:
            ``"imbalance"`` for the paper's presets, ``"equal"`` for ours.
        label_noise: probability that a concept label of a training image is flipped; a function of (``noise_seed``,
            sample, concept), so that it is the same in every epoch and process and after a resume. Class labels stay
            clean.
        noise_seed: of the flips.
        known: positions of the U concepts of the data that the model is to use, each once; None for all L.
        preset: name of a phase plan, which ends with the input of the head.

    Raises:
        ValueError: if the data have no concepts, ``known`` names none or others, ``label_noise`` is not a probability
            or ``concept_weights`` unknown; in ``setup``, if the concept table of the data does not fit the classes.

    Example:
        >>> model = ConceptBottleneck(num_concepts=5, num_classes=4, image_size=(32, 32))
        >>> output = model(torch.rand(2, 3, 32, 32))
        >>> output.scores.shape, torch.allclose(output.maps.mean((2, 3)).sigmoid(), output.scores)
        (torch.Size([2, 5]), True)
        >>> corrected = model.intervene(output.scores, torch.ones(2, 5, dtype=torch.bool), torch.arange(5) == 3)
        >>> corrected[:, 3].tolist(), torch.equal(corrected[:, :3], output.scores[:, :3])
        ([1.0, 1.0], True)
    """

    card = Card(
        name="Concept bottleneck",
        units="concepts of the data",
        decision="linear head over concepts",
        paper="Koh et al. 2020",
        url="https://arxiv.org/abs/2007.04612",
        page="concept_bottleneck.md",
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        **_OF_THE_PAPER,
        "sketch_independent": _ours_in_turn(_FROM_SCRATCH, _TRUTH),
        "sketch_sequential": _ours_in_turn(_FROM_SCRATCH, _LABELS),
        "sketch_joint": _ending(
            one_cycle("joint", 12, _SKETCH | {"head": 3e-3}, {"cross_entropy": 1.0} | _CONCEPT_LOSS)
        ),
        "pretrained_independent": _ours_in_turn(_FROM_WEIGHTS, _TRUTH),
        "pretrained_sequential": _ours_in_turn(_FROM_WEIGHTS, _LABELS),
        "pretrained_joint": _ending(
            one_cycle("joint", 15, _TUNED | {"head": 3e-3}, {"cross_entropy": 1.0, "concept_bce": 0.1}, bn="eval")
        ),
    }
    tasks: ClassVar[tuple[Task, ...]] = ("multiclass",)
    groups: ClassVar[dict[str, str]] = {"backbone": "backbone", "concepts": "concepts", "head": "linear"}
    weighing: ClassVar[frozenset[str]] = frozenset(_OF_THE_PAPER)  # presets in which rare concepts weigh more
    concepts: Any  # a linear layer; subclasses have others
    concept_weights: Tensor | None
    percentiles: Tensor
    known: Tensor

    def __init__(
        self,
        num_concepts: int,
        concept_weights: ConceptWeights | None = None,
        label_noise: float = 0.0,
        noise_seed: int = 0,
        known: list[int] | None = None,
        preset: str = "sketch_independent",
        **kwargs: Any,
    ) -> None:
        super().__init__(preset=preset, num_concepts=num_concepts, **kwargs)
        if num_concepts < 1:
            raise ValueError(
                f"Expected argument `num_concepts` to be at least 1, but got {num_concepts}: the data have no "
                f"concepts. {type(self).__name__} needs SketchBirds, AwA2 with `task: single`, or CUB-200-2011 with "
                "its attributes."
            )
        chosen = concept_weights or ("imbalance" if preset in self.weighing else "equal")
        check_choice("concept_weights", chosen, get_args(ConceptWeights))
        if not 0 <= label_noise <= 1:
            raise ValueError(f"Expected argument `label_noise` to be in [0, 1], but got {label_noise}.")
        if not 0 <= noise_seed < 2**63:
            raise ValueError(f"Expected argument `noise_seed` to be at least 0 and below 2^63, but got {noise_seed}.")
        self.label_noise, self.noise_seed = label_noise, noise_seed
        self.independent = preset.endswith("independent")
        self.values: Values = "binary" if self.independent else "percentiles"
        self.register_buffer("known", _positions(known, num_concepts), persistent=False)
        units = len(self.known)
        self.concepts = nn.Linear(self.backbone.out_channels, units)
        self.linear = nn.Linear(units, self.num_classes)
        self.register_buffer("concept_weights", torch.ones(units) if chosen == "imbalance" else None)
        self.register_buffer("percentiles", torch.full((2, units), torch.nan))

    # -- decision ----------------------------------------------------------------------------------------------------
    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, concept layer in every cell, mean over cells, sigmoid if independent, linear head."""
        latent = self.backbone(images)
        maps = self.concepts(latent.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        pooled = maps.mean(dim=(2, 3))
        scores = pooled.sigmoid() if self.independent else pooled
        return ModelOutput(self.head(scores), scores, maps, latent, {"pooled": pooled})

    def head(self, scores: Tensor) -> Tensor:
        """Logits ``(..., K)`` of scores ``(..., L)``."""
        return self.linear(scores)  # type: ignore[no-any-return]

    def units(self) -> UnitTable:
        """The concepts of the data that are used; a class owns those with a positive weight."""
        weight = self.linear.weight
        active = torch.ones(weight.shape[1], dtype=torch.bool, device=weight.device)
        return UnitTable(
            kind="concept",
            active=active,
            owner=weight.T > 0,
            pool="mean",
            weight=weight,
            vectors=self.concepts.weight,
            comparison="projection",
            concepts=self.known,
        )

    # -- corrections -------------------------------------------------------------------------------------------------
    def concept_probabilities(self, scores: Tensor) -> Tensor:
        """Probabilities of the concepts, of the shape of ``scores``."""
        return scores if self.independent else scores.sigmoid()

    def intervene(self, scores: Tensor, truth: Tensor, mask: Tensor, values: Values | None = None) -> Tensor:
        """Scores in which some concepts are replaced by their true values.

        Source: Koh et al. 2020, section 3 (test-time intervention). With ``"binary"`` values a concept becomes 1 where
        it is true and 0 elsewhere, with ``"percentiles"`` the 95th or the 5th percentile of its logits over the
        training images (their sigmoid if independent).

        Args:
            scores: ``(..., L)`` float, what the head consumes.
            truth: ``(..., L)`` bool, broadcast against ``scores``.
            mask: ``(..., L)`` bool, which concepts are replaced.
            values: None for binary ones of the independent model and percentiles of the others.

        Returns:
            Scores of the common shape; those not replaced are the same, bit for bit.

        Raises:
            ValueError: if percentiles are needed before they were stored.
        """
        if (values or self.values) == "binary":
            return torch.where(mask, truth.to(scores.dtype), scores)
        if not self.percentiles.isfinite().all():
            raise ValueError(
                "Expected the percentiles of the training logits to be stored before a concept is replaced by them, "
                f"but they are not. Train a phase with `on_enter: [{PERCENTILES}]`, or pass values='binary'."
            )
        low, high = self.percentiles.sigmoid() if self.independent else self.percentiles
        return torch.where(mask, torch.where(truth, high, low), scores)

    def load_percentiles(self, low: Tensor, high: Tensor) -> None:
        """Store the 5th and the 95th percentile ``(L,)`` of the concept logits of training images."""
        self.percentiles.copy_(torch.stack([low, high]))

    # -- training ----------------------------------------------------------------------------------------------------
    def setup(self, stage: str) -> None:
        """Learn how often a concept is present.

        Raises:
            ValueError: also if the data have other concepts than the model.
        """
        super().setup(stage)
        if stage == "predict":
            return
        datamodule = data_of(self.trainer)
        table, units = datamodule.tables.class_concepts_binary, self.num_concepts
        if stage == "fit":
            refuse_unfit_concepts(datamodule, self.num_classes, units)
        elif table is not None and table.shape[1] != units:
            raise ValueError(
                f"Expected {type(datamodule).__name__} to have the {units} concepts of the model, or none, but got "
                f"{table.shape[1]}. Evaluate on data whose concepts the model is made of."
            )
        if self.concept_weights is not None and stage == "fit":
            by_image = datamodule.capabilities("train").concepts_image is True
            strength = datamodule.tables.class_concepts if by_image else datamodule.tables.class_truth
            if strength is None:
                raise ValueError(
                    f"Expected {type(datamodule).__name__} to say how often the images of a class have each concept, "
                    "because rare concepts weigh more (`model.concept_weights: imbalance`). Pass "
                    "`--model.concept_weights equal`."
                )
            images = 1 / datamodule.class_weights.double()  # in proportion to those of the class
            known = (images / images.sum()) @ (~strength.isnan()).double()
            frequency = ((images / images.sum()) @ strength.double().nan_to_num() / known).nan_to_num()
            weights = 1 / frequency.clamp_min(1 / len(datamodule.dataset("train"))) - 1
            self.concept_weights.copy_(weights[self.known])

    def training_concepts(self, batch: dict[str, Any]) -> Tensor:
        """``(B, U)`` float 0 or 1, NaN where unknown, the labels of the concepts that are used, with their noise."""
        truth, keys = truth_of(batch, "concepts"), batch["sample_key"]
        draws = keyed_uniform(keys, torch.zeros_like(keys)[:, None], truth.shape[1:], self.noise_seed)[:, 0]
        noisy = (truth == 1) ^ (draws < 2 * self.label_noise - 1)  # draws are uniform on [-1, 1)
        return noisy.float().masked_fill(truth.isnan(), torch.nan).index_select(1, self.known)

    def loss_terms(self) -> dict[str, LossTerm]:
        """Adds ``concept_bce``, and ``truth_cross_entropy`` of the class logits that true concepts would give.

        A concept that is unknown of an image is left out of the one, and what the model predicts for it stands in for
        it in the other, as in a correction.
        """

        def true_concepts(output: ModelOutput, batch: dict[str, Any]) -> Tensor:
            truth = self.training_concepts(batch)
            return torch.where(truth.isnan(), self.concept_probabilities(output.scores.detach()).to(truth), truth)

        return super().loss_terms() | {
            "concept_bce": lambda output, batch: concept_bce(
                output.extras["pooled"], self.training_concepts(batch), self.concept_weights
            ),
            "truth_cross_entropy": lambda output, batch: cross_entropy(
                self.head(true_concepts(output, batch)),
                batch["label"],
                batch.get("class_targets"),
                self.class_weights,
            ),
        }


def _positions(known: list[int] | None, num_concepts: int) -> Tensor:
    """``(U,)`` int64, the concepts that a model uses."""
    if known is None:
        return torch.arange(num_concepts)
    if not known or sorted({*known} & {*range(num_concepts)}) != sorted(known):
        raise ValueError(
            f"Expected argument `known` to hold different positions of the {num_concepts} concepts, from 0, but got "
            f"{known}."
        )
    return torch.tensor(known)
