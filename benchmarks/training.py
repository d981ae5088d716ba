"""The speed of training compared with the bare backbone: ``python benchmarks/training.py``.

    python benchmarks/training.py                                # every model, ResNet-18, 224 px, 200 classes
    python benchmarks/training.py --models ProtoPNet PIPNet --batch 8

The bare backbone is a plain PyTorch loop: backbone, mean, linear layer, cross-entropy, backward, optimiser step.
The model's side is what ``train.py`` runs, with Lightning and the phase schedule, in the phase that trains the most.
Both see one batch of random images again and again, made beforehand and as large for both, in turn; in every step its
bytes go to the device and become floats there. Images that go through the backbone are counted: a model that looks at
two views of every image cannot be faster than half its backbone, and the last column is the share of what its passes
allow. A backbone that is partly frozen in that phase saves some of the backward pass.
"""

from __future__ import annotations

import argparse
import inspect
import statistics
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from lightning import Callback, LightningDataModule, Trainer
from lightning.pytorch.utilities import disable_possible_user_warnings
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.timing import clock
from protometry import lightning_modules
from protometry.callbacks import PhaseSchedule
from protometry.datamodules.dataset import with_float_images
from protometry.datamodules.sample import Capabilities, ClassTables
from protometry.lightning_modules import InterpretableModule
from protometry.lightning_modules.backbones import build_backbone
from protometry.lightning_modules.phases import PhasePlan

NOT_TRAINED = ("InterpretableModule", "PosthocCBM", "LabelFreeCBM")  # not a model, and two that train no backbone
CLASSES = [name for name in lightning_modules.__all__ if inspect.isclass(getattr(lightning_modules, name))]
MODELS = [name for name in CLASSES if name not in NOT_TRAINED]
BACKBONES = {"BagNet": "bagnet33"}  # of models that refuse others
PRESETS = ("quanproto", "original", "sgd", "joint")  # the first that a model has
CONCEPTS = 112  # of models that name them
WARM_UP = 2  # steps that do not count


class OneBatch(LightningDataModule):
    """The same batch at every step, of ``(B, H, W, 3)`` uint8 pixels that become float images on the device."""

    def __init__(self, images: Tensor, classes: int, steps: int) -> None:
        super().__init__()
        count, keys = len(images), torch.arange(len(images))
        self.batch: dict[str, Any] = {
            "image": images,
            "label": keys % classes,
            "sample_id": [str(key) for key in keys.tolist()],
            "sample_key": keys,
            "concepts": torch.rand(count, CONCEPTS) < 0.5,
        }
        table = torch.zeros(classes, CONCEPTS, dtype=torch.bool)
        self.tables = ClassTables(
            concept_names=[str(i) for i in range(CONCEPTS)], class_concepts=table + 0.5, class_concepts_binary=table
        )
        self.class_weights = torch.ones(classes)
        self.steps, self.num_classes, self.image_size, self.batch_size = steps, classes, images.shape[1:3], count

    def dataset(self, split: str) -> range:
        """As many samples as the batches hold."""
        return range(self.steps * self.batch_size)

    def configure_loaders(self, two_views: bool = False, **changes: object) -> None:
        """The second view for a model that asks for it; others would copy it to the device in vain."""
        self.batch |= {"second_view": 255 - self.batch["image"]} if two_views else {}

    def capabilities(self, split: str) -> Capabilities:
        """One label and some concepts per image."""
        return Capabilities(concepts_image=True)

    def train_dataloader(self) -> DataLoader[Any]:
        """The batch, again and again."""
        on_device = partial(with_float_images, device=self.trainer.strategy.root_device)
        return DataLoader(cast(Any, [self.batch] * self.steps), batch_size=None, collate_fn=on_device)


class Clock(Callback):
    """Seconds from the end of the warm-up to the end of the last step."""

    def __init__(self, device: str) -> None:
        self.device, self.begin, self.seconds = device, 0.0, 0.0

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        """Note the time after the warm-up and after the last step."""
        if trainer.global_step in (WARM_UP, trainer.num_training_batches):
            now = clock(self.device)
            self.begin, self.seconds = now, now - self.begin


def make_model(name: str, backbone: str, pixels: int, classes: int) -> InterpretableModule:
    """A model with random weights whose plan is one epoch of the phase that trains the most groups."""
    kind = getattr(lightning_modules, name)
    more = {"num_concepts": CONCEPTS} if "num_concepts" in inspect.signature(kind).parameters else {}
    torch.manual_seed(0)
    model: InterpretableModule = kind(
        num_classes=classes,
        image_size=(pixels, pixels),
        backbone={"name": BACKBONES.get(name, backbone)},
        preset=next(preset for preset in PRESETS if preset in kind.presets),
        **more,
    )
    phases = [phase for phase in model.plan.phases if "backbone" in phase.trainable]
    widest = max(phases, key=lambda phase: len(phase.trainable))
    model.plan = PhasePlan((replace(widest, epochs=1, on_enter=(), on_exit=()),))
    return model


def train_model(model: InterpretableModule, data: OneBatch, device: str, precision: Any = "32-true") -> float:
    """Seconds a step of the model's own training."""
    clock = Clock(device)
    trainer = Trainer(
        accelerator="gpu" if device == "cuda" else "cpu",
        devices=1,
        max_epochs=-1,
        precision=precision,
        callbacks=[PhaseSchedule(), clock],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, datamodule=data)
    return clock.seconds / (data.steps - WARM_UP)


class Bare(nn.Module):
    """A backbone with a linear head."""

    def __init__(self, model: InterpretableModule, backbone: str, classes: int) -> None:
        super().__init__()
        self.backbone = build_backbone({"name": backbone})
        self.linear = nn.Linear(model.backbone.out_channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        return self.linear(self.backbone(images).mean(dim=(2, 3)))


def train_bare(
    bare: Bare, model: InterpretableModule, data: OneBatch, device: str, precision: str = "32-true"
) -> float:
    """Seconds a step of a plain loop over the bare backbone, with the model's optimiser."""
    half = precision == "bf16-mixed"
    bare.to(device).train()
    spec = model.plan.phases[0].optimizer
    optimizer = getattr(torch.optim, spec.name)(bare.parameters(), lr=1e-4, **spec.kwargs)
    begin = 0.0
    for step in range(data.steps):
        if step == WARM_UP:
            begin = clock(device)
        batch: Any = with_float_images(cast(Any, data.batch), torch.device(device))
        images, labels = batch["image"], batch["label"].to(device)
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=half):
            loss = F.cross_entropy(bare(images), labels)
        loss.backward()
        optimizer.step()
    return (clock(device) - begin) / (data.steps - WARM_UP)


def passes_of(model: InterpretableModule, data: OneBatch, device: str) -> float:
    """Images that go through the backbone per training image."""
    seen: list[int] = []
    hook = model.backbone.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    train_model(model, data, device)
    hook.remove()
    return sum(seen) / (data.steps * data.batch_size)


def models(arguments: argparse.Namespace) -> None:
    """Every model next to its bare backbone."""
    images = torch.randint(0, 256, (arguments.batch, arguments.pixels, arguments.pixels, 3), dtype=torch.uint8)
    images = images.pin_memory() if arguments.device == "cuda" else images  # as a loader leaves them
    data = OneBatch(images, arguments.classes, WARM_UP + arguments.steps)
    print("| model | backbone | phase | passes | bare, images/s | model, images/s | ratio | of what its passes allow |")
    print("|---|---|---|---|---|---|---|---|")
    for name in arguments.models:
        model = make_model(name, arguments.backbone, arguments.pixels, arguments.classes)
        backbone = BACKBONES.get(name, arguments.backbone)
        bare, device, precision = Bare(model, backbone, arguments.classes), arguments.device, arguments.precision
        passes = passes_of(model, data, device)
        if arguments.compile:
            bare.backbone.compile()
            model.backbone.compile()
        times = [  # in turn, so that a busy moment of the machine hits both
            (train_bare(bare, model, data, device, precision), train_model(model, data, device, precision))
            for _ in range(arguments.repeats)
        ]
        floor, seconds = (statistics.median(column) for column in zip(*times, strict=True))
        speeds = f"{arguments.batch / floor:.1f} | {arguments.batch / seconds:.1f}"
        shares = f"{floor / seconds:.2f} | {passes * floor / seconds:.2f}"
        print(f"| {name} | {backbone} | {model.plan.phases[0].name} | {passes:g} | {speeds} | {shares} |", flush=True)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--backbone", default="resnet18", help="of all models but BagNet")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="images per step")
    parser.add_argument("--steps", type=int, default=6, help="per measurement, after the warm-up")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each side; the median counts")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="32-true", choices=["32-true", "bf16-mixed"])
    parser.add_argument("--compile", action="store_true", help="the backbones of both, with torch.compile")
    arguments = parser.parse_args(given)
    torch.set_num_threads(arguments.threads)
    disable_possible_user_warnings()
    warnings.filterwarnings("ignore", ".*(num_workers|TF32|PIPNet trains with batches).*")
    models(arguments)


if __name__ == "__main__":
    main()
