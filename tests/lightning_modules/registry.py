"""The models of the contract test, each as small as it gets; a new model adds one line to ``MODELS``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from lightning import Callback, Trainer

from protometry.callbacks import AtomicCheckpointIO, PhaseSchedule, RunCheckpoint
from protometry.datamodules.sketch_birds import SketchBirds
from protometry.lightning_modules import (
    CEM,
    QPM,
    BagNet,
    Classifier,
    ConceptBottleneck,
    DeformableProtoPNet,
    IntCEM,
    InterpretableModule,
    LabelFreeCBM,
    PIPNet,
    PosthocCBM,
    ProtoPNet,
    ProtoPool,
    ProtoTree,
    ProtoViT,
    STProtoPNet,
    TesNet,
)
from tests.words_file import ANY, WORDS, words_file

TINY_PROTOPNET = partial(ProtoPNet, prototypes_per_class=2, prototype_channels=8)
TRAINED = {"epochs": 3, "on_enter": ["project"]}  # a last layer that is not solved, as published
PRUNE = {
    "epochs": 1, "trainable": {"head": 1e-2}, "losses": {"cross_entropy": 1.0, "off_class_l1": 1e-4}, "bn": "eval",
    "on_enter": ["prune"], "selectable": True,
}  # fmt: skip
SHORT = {  # of preset "original": warm, joint, last with one epoch each
    **{name: {"epochs": 1} for name in ("warm", "joint", "last")},
    **dict.fromkeys(("joint2", "last2")),
}


def tiny_prototree(**options: Any) -> ProtoTree:
    """A tree whose every leaf knows one class; those of a new one are all alike, so that no unit would matter."""
    model = ProtoTree(depth=5, prototype_channels=8, **options)
    leaves = torch.arange(32)
    with torch.no_grad():
        model.tree.leaf_logits[leaves, leaves % model.num_classes] = 4.0
    return model


def tiny_posthoc_cbm(**options: Any) -> PosthocCBM:
    return with_residual(PosthocCBM(num_concepts=20, **options))


def tiny_label_free_cbm(**options: Any) -> LabelFreeCBM:
    return with_residual(LabelFreeCBM(words_file(), words=WORDS, **(ANY | options)))


def with_residual(model: Any) -> Any:
    """With a residual that is not 0, as a new one is, if the model has one."""
    if model.residual is not None:
        torch.nn.init.normal_(model.residual.weight, std=0.1)
    return model


ADAPTER = {"adapter": 16, "adapter_width": 24}
_selections: dict[tuple[int, ...], dict[str, torch.Tensor]] = {}  # they depend on sizes alone


def selected_qpm(**options: Any) -> QPM:
    """With features selected by random maps, which the classes have in different measure; only fine-tuned."""
    adapter = ADAPTER if options.get("preset") == "adapter" else {}  # a selection among the 512 of the default is slow
    model = QPM(**({"num_features": 12, "features_per_class": 3, "phases": {"dense": None}} | adapter | options))
    sizes = (*model.linear.weight.shape, model.num_features, model.features_per_class, model.ternary)
    if sizes not in _selections:
        _selections[sizes] = dict(_select(model).named_buffers(recurse=False))
    model.load_state_dict(_selections[sizes], strict=False)
    return model


def _select(model: QPM) -> QPM:
    model = copy.deepcopy(model)
    sums, labels = model.feature_sums(), torch.arange(64) % model.num_classes
    generator = torch.Generator().manual_seed(0)
    shown = torch.rand(model.num_classes, model.linear.in_features, 1, 1, generator=generator)[labels]
    sums.update(shown + torch.rand(64, model.linear.in_features, 4, 4, generator=generator), labels)
    model.select(sums)
    model.mean.zero_()  # a new backbone is darker than these maps: no score would be above 0
    return model


MODELS: dict[str, Callable[..., InterpretableModule]] = {
    "ProtoPNet": TINY_PROTOPNET,
    "ProtoPNet cosine": partial(TINY_PROTOPNET, similarity="cosine", addon="linear"),
    "ProtoPNet pruned": partial(TINY_PROTOPNET, phases={"last": TRAINED, "prune": PRUNE}),
    "DeformableProtoPNet": partial(DeformableProtoPNet, prototypes_per_class=2, hidden=8),
    "ProtoViT": partial(ProtoViT, prototypes_per_class=2, parts=3),
    "ProtoPool": partial(ProtoPool, num_prototypes=12, slots_per_class=2, prototype_channels=8, off_class_init=-0.5),
    "ProtoTree": tiny_prototree,
    "TesNet": partial(TesNet, prototypes_per_class=2, prototype_channels=8),
    "STProtoPNet": partial(STProtoPNet, prototypes_per_class=2, prototype_channels=8),
    "Classifier": Classifier,
    "ConceptBottleneck": partial(ConceptBottleneck, num_concepts=20),
    "ConceptBottleneck joint": partial(ConceptBottleneck, num_concepts=20, preset="sketch_joint"),
    "BagNet": partial(BagNet, backbone={"name": "bagnet9", "width": 16}),
    "PIPNet": partial(PIPNet, num_features=8),
    "PosthocCBM": tiny_posthoc_cbm,
    "PosthocCBM hybrid": lambda **options: tiny_posthoc_cbm(**({"preset": "hybrid"} | options)),
    "CEM": partial(CEM, num_concepts=20, embedding_size=4),
    "IntCEM": partial(IntCEM, num_concepts=20, embedding_size=4),
    "LabelFreeCBM": tiny_label_free_cbm,
    "QPM": partial(QPM, num_features=12, features_per_class=3),
    "QPM ternary": partial(selected_qpm, ternary=True),
    "QPM adapter": partial(QPM, num_features=12, features_per_class=3, preset="adapter", **ADAPTER),
}

# all but those that only train otherwise than another
NETWORKS = {name: MODELS[name] for name in MODELS if name not in ("ProtoPNet pruned", "ConceptBottleneck joint")}


def tiny_birds(**changes: Any) -> SketchBirds:
    """SketchBirds tiny with few, small images: 8 classes, 24 training images of 32x32 in 3 batches."""
    options = {"image_size": 32, "train_size": 24, "val_size": 8, "test_size": 8, "batch_size": 8}
    return SketchBirds("tiny", **(options | changes))


def tiny_trainer(*callbacks: Callback, **options: Any) -> Trainer:
    """A silent trainer on one CPU process that walks the whole phase plan."""
    defaults: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "max_epochs": -1, "logger": False,
        "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0,
        "plugins": AtomicCheckpointIO(), "enable_checkpointing": any(isinstance(c, RunCheckpoint) for c in callbacks),
    }  # fmt: skip
    return Trainer(callbacks=[PhaseSchedule(), *callbacks], **(defaults | options))
