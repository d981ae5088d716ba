"""QPM (Norrenbrock et al. 2025, *QPM: Discrete Optimization for ... Image Classification*): a class is k of n features.

Architecture, losses and phases top to bottom. First a dense classifier is trained, with features that look at different
places. Then one quadratic problem selects n of them and assigns k to each class, and the backbone is fine-tuned with
the resulting sparse binary matrix. Deviations from the paper: the problem is solved by a local search instead of a
commercial solver; ternary weights come from the same selection. With an adapter it is DINO-QPM (Zimmermann et al. 2026,
*DINO-QPM: Adapting Visual Foundation Models for Globally Interpretable Image Classification*), whose backbone is
frozen; deviation: AdamW with one cycle of the rate instead of a schedule-free AdamW.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.interpretable import InterpretableModule, LossTerm, Task
from protometry.lightning_modules.bases.losses import feature_diversity, feature_sparsity
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.lightning_modules.heads.feature_constants import FeatureSums
from protometry.lightning_modules.heads.feature_selection import check_sizes, find_selection
from protometry.lightning_modules.phases import OptimizerSpec, Phase, PhasePlan, SchedulerSpec, one_cycle
from protometry.metrics.primitives.checks import check_at_least

LOSSES = {"cross_entropy": 1.0, "feature_diversity": 0.196}
SPARSE_LOSSES = {"cross_entropy": 1.0, "feature_diversity": 1.0, "feature_sparsity": 6.0}
SELECT = ("select_features",)
SMALLEST_STD = 1e-6
ADAPTER_LAYERS, ADAPTER_CHANNELS = 4, 512  # as released


def _published(name: str, epochs: int, rates: dict[str, float], momentum: float, step: int, **changes: Any) -> Phase:
    return Phase(
        name,
        epochs,
        rates,
        LOSSES,
        weight_decay=dict.fromkeys(rates, 5e-4),
        optimizer=OptimizerSpec("SGD", {"momentum": momentum}),
        scheduler=SchedulerSpec("StepLR", {"step_size": step, "gamma": 0.4}),
        **changes,
    )


def _adapted(
    name: str, epochs: int, rates: dict[str, float], decay: float, losses: dict[str, float], **changes: Any
) -> Phase:
    """A phase of DINO-QPM, which trains all but the backbone."""
    return one_cycle(name, epochs, rates, losses, weight_decay=dict.fromkeys(rates, decay), bn=["adapter"], **changes)


class QPM(InterpretableModule):
    """Classes as sets of features.

    Source: Norrenbrock et al. 2025. Presets: ``original`` (the published schedule for CUB and Stanford Cars),
    ``adapter`` (Zimmermann et al. 2026, for a frozen vision transformer) and ``sketch`` (ours, for a backbone from
    scratch). The units are the channels of the backbone, or of the adapter; the selection deactivates all
    but n of them. Before it, the model is a black box with a dense head.

    Args:
        num_features: n, features the model keeps.
        features_per_class: k.
        ternary: weights of -1, 0 and 1 as in Norrenbrock et al. 2024 (Q-SENN): a class may be recognised by the
            absence of a feature. By default 0 and 1.
        adapter: channels of an adapter behind the backbone, a perceptron of four layers that sees one cell at a time;
            the selection then leaves out the locality of features. None for 512 with ``adapter``, otherwise for none.
        adapter_width: channels of its hidden layers.

    Raises:
        ValueError: if the features are fewer than n, k exceeds n, there are fewer sets of k out of n features
            than classes, the task is multilabel, or no phase selects features.

    Example:
        >>> model = QPM(num_features=6, features_per_class=2, num_classes=4, image_size=(32, 32)).eval()
        >>> sums = model.feature_sums()
        >>> sums.update(model(torch.rand(8, 3, 32, 32)).maps, torch.arange(8) % 4)
        >>> report = model.select(sums)
        >>> model.assignment.sum(1), model.units().active.sum()
        (tensor([2., 2., 2., 2.]), tensor(6))
    """

    card = Card(
        name="QPM",
        units="selected channels of the backbone",
        decision="sum of the 5 standardised features of a class",
        paper="Norrenbrock et al. 2025",
        url="https://arxiv.org/abs/2502.20130",
        page="qpm.md",
        tiny={"num_features": 12, "features_per_class": 3},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": PhasePlan(
            (
                _published("dense", 150, {"backbone": 5e-3, "head": 1e-2}, 0.9, 30),
                _published("finetune", 40, {"backbone": 1e-4}, 0.95, 10, on_enter=SELECT, selectable=True),
            )
        ),
        "adapter": PhasePlan(
            (
                _adapted("dense", 25, {"adapter": 1e-3, "head": 1e-3}, 7e-4, LOSSES | {"feature_diversity": 0.5}),
                _adapted("finetune", 25, {"adapter": 5e-3}, 8e-4, SPARSE_LOSSES, on_enter=SELECT, selectable=True),
            )
        ),
        "sketch": PhasePlan(
            (
                one_cycle("dense", 8, {"backbone": 3e-3, "head": 3e-3}, LOSSES),
                one_cycle("finetune", 4, {"backbone": 1e-3}, LOSSES, on_enter=SELECT, selectable=True),
            )
        ),
    }
    tasks: ClassVar[tuple[Task, ...]] = ("multiclass",)
    selected: Tensor
    selection: Tensor
    assignment: Tensor
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        num_features: int = 50,
        features_per_class: int = 5,
        ternary: bool = False,
        adapter: int | None = None,
        adapter_width: int = 2048,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not any({*SELECT} & {*phase.on_enter, *phase.on_exit} for phase in self.plan.phases):
            raise ValueError(
                f"Expected a phase of QPM with {SELECT[0]!r} in `on_enter`, but got none of {self.plan.names}: without "
                "a selection it is a dense classifier, which is `protometry.lightning_modules.Classifier`."
            )
        channels = self.backbone.out_channels
        self.adapter: nn.Module = nn.Identity()
        if adapter is None and any("adapter" in phase.trainable for phase in self.plan.phases):
            adapter = ADAPTER_CHANNELS
        if adapter is not None:
            check_at_least("adapter", adapter, 1)
            check_at_least("adapter_width", adapter_width, 1)
            self.adapter = adapter_layers(channels, adapter_width, adapter)
            channels = adapter
        check_sizes(channels, self.num_classes, num_features, features_per_class)
        self.num_features, self.features_per_class, self.ternary = num_features, features_per_class, ternary
        self.linear = nn.Linear(channels, self.num_classes)
        self.dense_dropout, self.sparse_dropout = nn.Dropout(0.2), nn.Dropout(0.1 if adapter is None else 0.0)
        self.register_buffer("selected", torch.tensor(False))
        self.register_buffer("selection", torch.arange(num_features))
        self.register_buffer("assignment", torch.zeros(self.num_classes, num_features))
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("std", torch.ones(num_features))

    # -- the contract ------------------------------------------------------------------------------------------------
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Groups ``backbone``, ``head`` and, if there is one, ``adapter``."""
        adapter = list(self.adapter.parameters())
        return super().parameter_groups() | ({"adapter": adapter} if adapter else {})

    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, adapter, mean over cells, linear head.

        Once features are selected, n of them are standardised, and all others 0.
        """
        latent = self.adapter(self.backbone(images))
        pooled = latent.mean(dim=(2, 3)).float()
        kept = (self.sparse_dropout(pooled)[:, self.selection] - self.mean) / self.std.clamp_min(SMALLEST_STD)
        sparse = torch.zeros_like(pooled).index_copy(1, self.selection, kept)
        scores = torch.where(self.selected, sparse, self.dense_dropout(pooled))
        return ModelOutput(self.head(scores), scores, latent, latent, {"pooled": pooled})

    def head(self, scores: Tensor) -> Tensor:
        """Logits ``(B, K)`` of scores ``(B, U)``; without bias once features are selected."""
        return F.linear(scores, self.weight(), self.linear.bias.masked_fill(self.selected, 0.0))

    def weight(self) -> Tensor:
        """``(K, U)`` weights: dense, or with k non-zero ones per class."""
        dense = self.linear.weight
        sparse = torch.zeros_like(dense).index_copy(1, self.selection, self.assignment)
        return torch.where(self.selected, sparse, dense)

    def units(self) -> UnitTable:
        """Channels of the backbone or the adapter.

        A class owns its k features, before the selection those with a positive weight.
        """
        weight = self.weight()
        kept = torch.zeros_like(weight[0], dtype=torch.bool).index_fill(0, self.selection, True)
        owner = torch.where(self.selected, weight != 0, weight > 0).T
        return UnitTable(kind="feature", active=kept | ~self.selected, owner=owner, pool="mean", weight=weight)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights.

        Raises:
            ValueError: if the selection contains unknown features.
        """
        keys = super().load_state_dict(state_dict, strict, assign)
        if not 0 <= int(self.selection.min()) <= int(self.selection.max()) < self.linear.in_features:
            raise ValueError(f"Expected `selection` to be among {self.linear.in_features} features, but it is not.")
        return keys

    # -- training ----------------------------------------------------------------------------------------------------
    def loss_terms(self) -> dict[str, LossTerm]:
        """Adds ``feature_diversity`` and ``feature_sparsity``, both over active features."""
        return super().loss_terms() | {
            "feature_diversity": self._feature_diversity,
            "feature_sparsity": lambda output, batch: feature_sparsity(output.maps, self.units().active),
        }

    def _feature_diversity(self, output: ModelOutput, batch: dict[str, Any]) -> Tensor:
        units = self.units()
        assert units.weight is not None
        return feature_diversity(output.maps, output.logits, units.weight, units.active)

    # -- selection ---------------------------------------------------------------------------------------------------
    def feature_sums(self) -> FeatureSums:
        """Empty sums over training images, for :meth:`select`."""
        return FeatureSums.empty(self.num_classes, self.linear.in_features, self.selection.device)

    @torch.no_grad()
    def select(self, sums: FeatureSums) -> dict[str, float]:
        """Select features, assign them to classes, and store their mean and standard deviation.

        Returns:
            objective; threshold of redundancy; starts of the search that ended there; swaps on the way; moved classes,
            whose features another class had as well; constant features.
        """
        constants = sums.constants()
        if not isinstance(self.adapter, nn.Identity):
            constants = replace(constants, locality=torch.zeros_like(constants.locality))
        selected = find_selection(constants, self.num_features, self.features_per_class, self.ternary)
        signs = torch.ones_like(constants.fit) if not self.ternary else torch.where(constants.fit < 0, -1.0, 1.0)
        self.selection.copy_(selected.features)
        self.assignment.copy_(selected.assignment * signs[selected.features].T)
        self.mean.copy_(constants.mean[selected.features])
        self.std.copy_(constants.std[selected.features])
        self.selected.fill_(True)
        return {
            "objective": selected.objective,
            "threshold": selected.threshold,
            "starts": float(selected.starts),
            "swaps": float(selected.swaps),
            "moved": float(selected.moved),
            "constant": float(constants.constant.sum()),
        }


def adapter_layers(inputs: int, width: int, channels: int) -> nn.Sequential:
    """A perceptron on the channels of each cell: four times a 1×1 convolution, BatchNorm and ReLU.

    Source: released code of Zimmermann et al. 2026 (DINO-QPM), with a width of 2,048 and 512 channels.
    """
    sizes = [inputs, *[width] * (ADAPTER_LAYERS - 1), channels]
    layers = [
        layer
        for before, after in pairwise(sizes)
        for layer in (nn.Conv2d(before, after, 1), nn.BatchNorm2d(after), nn.ReLU())
    ]
    return nn.Sequential(*layers)
