"""The models of the contract test, each as small as it gets; as their cards say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations, cycle
from random import Random
from typing import Any

import torch
from lightning import Callback, Trainer, seed_everything

from protometry import lightning_modules
from protometry.callbacks import AtomicCheckpointIO, PhaseSchedule, RunCheckpoint
from protometry.datamodules.sketch_birds import SketchBirds
from protometry.lightning_modules import (
    QPM,
    InterpretableModule,
    LabelFreeCBM,
    PosthocCBM,
    ProtoPNet,
    ProtoTree,
)
from tests.words_file import ANY, WORDS, words_file

TINY_PROTOPNET = partial(ProtoPNet, **ProtoPNet.card.tiny)
TRAINED = {"epochs": 3, "on_enter": ["project"]}  # a last layer that is not solved, as published
PRUNE = {
    "epochs": 1, "trainable": {"head": 1e-2}, "losses": {"cross_entropy": 1.0, "off_class_l1": 1e-4}, "bn": "eval",
    "on_enter": ["prune"], "selectable": True,
}  # fmt: skip
SHORT = {  # of preset "original": warm, joint, last with one epoch each
    **{name: {"epochs": 1} for name in ("warm", "joint", "last")},
    **dict.fromkeys(("joint2", "last2")),
}


METRIC = {"addon": "metric", "prototype_channels": None}


def options_of(preset: str) -> dict[str, Any]:
    """What a model needs to have in a preset."""
    return METRIC if preset == "frozen" else {}


def in_every_preset(build: Callable[..., InterpretableModule], **options: Any) -> Iterator[InterpretableModule]:
    """The same model in each preset; without those that changes to its phases were not made for."""
    changed = "phases" in getattr(build, "keywords", {})
    for preset in build(**options).presets:
        if not (changed and preset == "frozen"):
            seed_everything(0, verbose=False)
            yield build(preset=preset, **options, **options_of(preset))


def tiny_prototree(**options: Any) -> ProtoTree:
    """A tree whose every leaf knows one class; those of a new one are all alike, so that no unit would matter."""
    model = ProtoTree(**ProtoTree.card.tiny, **options)
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


def selected_qpm(**options: Any) -> QPM:
    """With features that are assigned to classes at random, each class having others; only fine-tuned."""
    adapter = ADAPTER if options.get("preset") == "adapter" else {}  # the 512 channels of the default are slow
    model = QPM(**({"num_features": 12, "features_per_class": 3, "phases": {"dense": None}} | adapter | options))
    subsets = [*combinations(range(model.num_features), model.features_per_class)]
    random = Random(0)
    random.shuffle(subsets)
    model.selected.fill_(True)
    model.selection.mul_(model.linear.in_features // model.num_features)
    model.std.fill_(0.3)
    for features, row in zip(cycle(subsets), model.assignment, strict=False):
        row[list(features)] = 1.0
        if model.ternary:
            row[list(features[1:])] *= random.choice((-1.0, 1.0))
    return model


KINDS = [kind for name in lightning_modules.__all__ if getattr(kind := getattr(lightning_modules, name), "card", 0)]
TINY = {kind.__name__: partial(kind, **kind.card.tiny) for kind in KINDS}
TINY |= {name: partial(TINY[name], num_concepts=20) for name in ("ConceptBottleneck", "CEM", "IntCEM")}
MODELS: dict[str, Callable[..., InterpretableModule]] = TINY | {
    "ProtoTree": tiny_prototree,
    "PosthocCBM": tiny_posthoc_cbm,
    "LabelFreeCBM": tiny_label_free_cbm,
    "ProtoPNet metric": partial(TINY_PROTOPNET, **METRIC, similarity="cosine_exp"),
    "ProtoPNet pruned": partial(TINY_PROTOPNET, phases={"last": TRAINED, "prune": PRUNE}),
    "ConceptBottleneck joint": partial(TINY["ConceptBottleneck"], preset="sketch_joint"),
    "PosthocCBM hybrid": lambda **options: tiny_posthoc_cbm(**({"preset": "hybrid"} | options)),
    "QPM ternary": partial(selected_qpm, ternary=True),
    "QPM adapter": partial(TINY["QPM"], preset="adapter", **ADAPTER),
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
