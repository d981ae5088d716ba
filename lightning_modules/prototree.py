"""ProtoTree (Nauta et al. 2021, *Neural Prototype Trees*): a soft decision tree with one prototype per node.

Architecture, training and phases top to bottom; the tree itself is in ``heads/tree.py``. Deviations from the released
code: routing is in log space with nodes in a fixed order; BatchNorm keeps its running statistics in frozen
blocks; the leaves also learn from soft targets; the pruning threshold depends on the number of classes; nodes that are
cut off are not projected.
"""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import torch
from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor, distributed, nn
from torch.nn import functional as F

from protometry.lightning_modules.backbones.sections import backbone_sections
from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.interpretable import InterpretableModule
from protometry.lightning_modules.contract import ModelOutput, UnitTable, owned_by_targets
from protometry.lightning_modules.heads.prototypes import ComparesPatches, PrototypeLayer
from protometry.lightning_modules.heads.tree import Inference, SoftTree
from protometry.lightning_modules.phases import OptimizerSpec, Phase, PhaseOverride, PhasePlan, SchedulerSpec, one_cycle
from protometry.metrics.primitives.checks import check_at_least, check_choice

LOSSES = {"cross_entropy": 1.0}
PRUNE = "prune_tree"
DEEPEST = 20  # a million leaves
PUBLISHED_DEPTH = 9  # for the 200 classes of CUB
FINISH = (PRUNE, "project")  # in this order: a node that is cut off needs no patch
MODES: tuple[Inference, ...] = get_args(Inference)


def _original(name: str, epochs: int, rates: dict[str, float], **changes: Any) -> Phase:
    rates = {"backbone_last": 1e-3, "addon": 1e-3, "prototypes": 1e-3} | rates
    optimizer = OptimizerSpec("AdamW", {"weight_decay": 0.0, "eps": 1e-7}, key="original")
    return Phase(name, epochs, rates, LOSSES, optimizer=optimizer, **changes)


def _sketch(name: str, epochs: int, action: str, **changes: Any) -> Phase:
    """A phase on a trained sketch backbone: one AdamW and one OneCycle throughout, the backbone slowly."""
    rates = {"backbone": 1e-3, "backbone_last": 2e-3, "addon": 3e-3, "prototypes": 1e-2}
    adam = OptimizerSpec("AdamW", {"weight_decay": 0.0}, "sketch")
    return one_cycle(name, epochs, rates, LOSSES, adam, on_enter=(action,), **changes)


def _pretrained(name: str, epochs: int, rates: dict[str, float], action: str, **changes: Any) -> Phase:
    """A phase that fine-tunes a pretrained backbone on few images: frozen BatchNorm, one OneCycle a phase."""
    rates, adam = {"addon": 3e-4, "prototypes": 1e-2} | rates, OptimizerSpec("AdamW", {"weight_decay": 0.0}, name)
    return one_cycle(name, epochs, rates, LOSSES, adam, bn="eval", on_enter=(action,), **changes)


class ProtoTree(ComparesPatches, InterpretableModule):
    """Neural prototype tree.

    Source: Nauta et al. 2021. A node goes right with probability exp(-d), where d is the smallest distance of its
    prototype to a patch of the image. The loss is the negative log-likelihood of the mixture of leaves; the leaves
    learn without a gradient, once per batch (with accumulated gradients too). Presets: ``original`` (the command for
    CUB in the README of the released code, whose backbone is a ResNet-50 trained on iNaturalist; other backbones are
    completely frozen, see ``configs/model/prototree.yaml``), ``sketch`` (ours, for the sketch backbone of a trained
    model) and ``pretrained`` (ours, for a pretrained backbone and few images). In ours prototypes start as random
    patches.

    With multilabel data (ours, no published reference) leaves hold independent probabilities, trained by
    gradient as group ``head`` at the rate of the prototypes, and the tree is not pruned.

    Args:
        depth: decisions per path; the tree has 2^depth - 1 nodes and 2^depth leaves, at least one for every class. By
            default 9, or as many as more than 512 classes need.
        prototype_channels: D, channels of the add-on and of the prototypes.
        inference: of evaluation mode: ``distributed`` mixes all leaves, ``sample_max`` takes the most probable leaf,
            ``greedy`` goes right where the score exceeds one half. May be changed at any time; training is distributed.
        prune_threshold: ``prune_tree`` cuts subtrees in which no class of any leaf has a larger probability; by
            default max(0.01, 2/K), and 3/4 for two classes, halfway between chance and certainty.

    Raises:
        ValueError: if there are fewer leaves than classes, or an argument is out of range.

    Example:
        >>> model = ProtoTree(num_classes=4, image_size=(32, 32), depth=2)
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.logits.shape, output.scores.shape, output.maps.shape
        (torch.Size([3, 4]), torch.Size([3, 3]), torch.Size([3, 3, 4, 4]))
    """

    card = Card(
        name="ProtoTree",
        units="prototypes at the nodes of a soft tree",
        decision="path to a leaf",
        paper="Nauta et al. 2021",
        url="https://arxiv.org/abs/2012.02046",
        page="prototree.md",
        tiny={"depth": 5, "prototype_channels": 8},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": PhasePlan(
            (
                _original("freeze", 30, {}, bn=["backbone_last"]),
                _original(
                    "train",
                    70,
                    {"backbone": 1e-5},
                    scheduler=SchedulerSpec("MultiStepLR", {"milestones": [30, 40, 50, 60, 70], "gamma": 0.5}),
                    on_exit=FINISH,
                ),
            )
        ),
        "sketch": PhasePlan(
            (
                _sketch("warm", 1, "sample_patches"),
                _sketch("joint", 5, "project"),
                _sketch("settle", 3, "project", on_exit=FINISH),
            )
        ),
        "pretrained": PhasePlan(
            (
                _pretrained("warm", 15, {}, "sample_patches"),
                _pretrained("joint", 25, {"backbone": 1e-4, "backbone_last": 1e-4}, "project", on_exit=FINISH),
            )
        ),
    }
    actions: ClassVar[tuple[str, ...]] = (PRUNE,)

    def __init__(
        self,
        depth: int | None = None,
        prototype_channels: int = 256,
        inference: Inference = "distributed",
        prune_threshold: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        depth = max(PUBLISHED_DEPTH, _least_depth(self.num_classes)) if depth is None else depth
        chance = 1 / self.num_classes
        threshold = max(0.01, min(2 * chance, (1 + chance) / 2)) if prune_threshold is None else prune_threshold
        _check(depth, self.num_classes, prototype_channels, inference, threshold)
        self.inference: Inference = inference
        self.prune_threshold = threshold
        convolution = nn.Conv2d(self.backbone.out_channels, prototype_channels, 1, bias=False)
        nn.init.xavier_normal_(convolution.weight)
        self.addon = nn.Sequential(convolution, nn.Sigmoid())
        self.prototypes = PrototypeLayer(2**depth - 1, prototype_channels, "exp")
        nn.init.normal_(self.prototypes.vectors, 0.5, 0.1)
        self.tree = SoftTree(depth, self.num_classes, self.task == "multilabel")
        if self.tree.multilabel:
            self.plan = _leaves_by_gradient(self.plan)

    # -- the contract ------------------------------------------------------------------------------------------------
    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, add-on, similarity of every cell to every prototype, best cell, tree."""
        latent = self.embed(images)
        maps = self.prototypes.maps(latent)
        scores = self.pool(maps) * self.prototypes.active
        if self.training:
            self._step_scores = scores.detach()  # for the leaves, which learn from the forward pass of their step
        return ModelOutput(self.head(scores), scores, maps, latent)

    def head(self, scores: Tensor) -> Tensor:
        """Logits ``(B, K)`` of scores ``(B, U)``: log ŷ."""
        return self.tree(scores, "distributed" if self.training else self.inference)  # type: ignore[no-any-return]

    def contributions(self, output: ModelOutput, classes: Tensor) -> Tensor:
        """``(B, U)`` decrease log ŷ - log ŷ(s_u := 0) of the logit of one class if a node did not see its prototype.

        The values do not add up to the logit. For ``sample_max`` they are the same as for ``distributed``.
        """
        return self.tree.contributions(output.scores, classes, hard=self.inference == "greedy")

    def units(self) -> UnitTable:
        """Prototypes, owned by the classes of the leaves below their node."""
        return UnitTable(
            kind="prototype",
            active=self.prototypes.active.clone(),
            owner=self._owner(),
            pool="max",
            vectors=self.prototypes.vectors,
            source=self.prototypes.source(),
        )

    def _owner(self) -> Tensor:
        return self.tree.classes_below() & self.prototypes.active[:, None]

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Groups ``backbone``, ``backbone_last``, ``addon``, ``prototypes``; multilabel also ``head``, the leaves."""
        *earlier, last = backbone_sections(self.backbone).values()
        groups = {
            "backbone": [parameter for section in earlier for parameter in section],
            "backbone_last": last,
            "addon": list(self.addon.parameters()),
            "prototypes": list(self.prototypes.parameters()),
        }
        return groups | ({"head": list(self.tree.parameters())} if self.tree.multilabel else {})

    # -- training ----------------------------------------------------------------------------------------------------
    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """One step, then the gradient-free update of the leaves from the probabilities of the same step.

        Neither the gradients nor the optimiser read the leaves after the forward pass, so that updating them before or
        after the optimiser's step is the same.
        """
        loss = super().training_step(batch, batch_idx)
        if not self.tree.multilabel:
            if batch_idx == 0:
                self.tree.start_epoch()
            targets = batch.get("class_targets")
            if targets is None:
                targets = F.one_hot(batch["label"], self.num_classes).float()
            evidence = self.tree.evidence(self._step_scores, targets)
            if distributed.is_initialized():
                distributed.all_reduce(evidence)
            self.tree.update_leaves(evidence, int(self.trainer.num_training_batches))
        return loss

    @torch.no_grad()
    def prune_tree(self, trainer: Trainer) -> dict[str, float]:
        """Action ``prune_tree``: cut uninformative subtrees; their nodes, and those directly above, become inactive.

        Raises:
            ValueError: if the task is multilabel.
        """
        if self.tree.multilabel:
            raise ValueError(
                "Expected `task` to be multiclass to prune the tree, but got multilabel. Remove the action."
            )
        before = self._sizes()
        self.tree.prune(self.prune_threshold)
        self.prototypes.active.copy_(self.tree.active())
        after = self._sizes()
        if (self.tree.leaf_logits.softmax(dim=1) <= self.prune_threshold).all():
            rank_zero_warn(
                f"No leaf gives any class more than {self.prune_threshold:.3g}: the tree is not pruned. Train longer."
            )
        return {f"{name}_{when}": s[name] for name in before for when, s in (("before", before), ("after", after))}

    def _sizes(self) -> dict[str, float]:
        reachable = self.tree.reachable()
        return {"nodes": float(self.tree.active().sum()), "leaves": float(reachable[self.tree.nodes :].sum())}

    # -- fidelity ----------------------------------------------------------------------------------------------------
    def fidelity(self, scores: Tensor) -> dict[Inference, Tensor]:
        """``(B,)`` bool for ``sample_max`` and ``greedy``: the same class, or labels, as by the mixture of all leaves.

        Source: fidelity of Nauta et al. 2021.
        """
        mixture = self.tree(scores, "distributed")
        threshold = self.decision_threshold
        decided = mixture.argmax(dim=1) if threshold is None else mixture > threshold
        return {mode: self.is_correct(self.tree(scores, mode), decided) for mode in MODES[1:]}

    def on_test_epoch_start(self) -> None:
        """Start counting."""
        self._faithful = torch.zeros(len(MODES), dtype=torch.int64, device=self.device)

    def test_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Count the images on which the kinds of inference agree, which needs one more forward pass."""
        agreed = torch.stack(list(self.fidelity(self(batch["image"]).scores).values())).sum(dim=1)
        self._faithful += torch.cat([agreed, agreed.new_full((1,), len(batch["image"]))])

    def on_test_epoch_end(self) -> None:
        """Print and log how often they agreed."""
        if distributed.is_initialized():
            distributed.all_reduce(self._faithful)
        *agreed, images = self._faithful.tolist()
        shares = {mode: count / images for mode, count in zip(MODES[1:], agreed, strict=True)}
        rank_zero_info("Decides like the mixture of leaves: " + ", ".join(f"{m} {s:.2%}" for m, s in shares.items()))
        self.log_dict({f"fidelity/{mode}": share for mode, share in shares.items()})

    # -- projection --------------------------------------------------------------------------------------------------
    def allowed(self, targets: Tensor) -> Tensor:
        """``(B, U)`` bool: the class (``(B,)`` int64), or a label (``(B, K)`` bool), belongs to a leaf below."""
        return owned_by_targets(self._owner(), targets)


def _leaves_by_gradient(plan: PhasePlan) -> PhasePlan:
    """The plan for multilabel data: the leaves have a learning rate, and the tree is not pruned."""

    def changed(phase: Phase) -> PhaseOverride:
        trainable: dict[str, float | None] = dict(phase.trainable)
        if "prototypes" in trainable:
            trainable.setdefault("head", trainable["prototypes"])
        on_enter, on_exit = ([a for a in actions if a != PRUNE] for actions in (phase.on_enter, phase.on_exit))
        return {"trainable": trainable, "on_enter": on_enter, "on_exit": on_exit}

    return plan.override({phase.name: changed(phase) for phase in plan.phases})


def _least_depth(classes: int) -> int:
    return (classes - 1).bit_length()


def _check(depth: int, classes: int, channels: int, inference: str, prune_threshold: float) -> None:
    if depth < (least := _least_depth(classes)):
        raise ValueError(
            f"Expected argument `depth` to be at least {least}, which gives one leaf to each of the {classes} classes, "
            f"but got {depth}, which gives {2 ** max(depth, 0)} leaves."
        )
    if depth > DEEPEST:
        raise ValueError(f"Expected argument `depth` to be at most {DEEPEST}, but got {depth}.")
    if not 0 <= prune_threshold < 1:
        raise ValueError(f"Expected argument `prune_threshold` to be null or in [0, 1), but got {prune_threshold}.")
    check_at_least("prototype_channels", channels, 1)
    check_choice("inference", inference, MODES)
