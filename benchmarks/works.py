"""The work that the rows of ``benchmarks/rows.py`` measure; each function makes the work of a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from lightning import Trainer
from torch import Tensor
from torch.nn import functional as F

from protometry.callbacks import Interpretability, PhaseSchedule
from protometry.callbacks.phases.projection import nearest_patches
from protometry.datamodules import SketchBirds
from protometry.lightning_modules import ProtoPNet
from protometry.lightning_modules.phases import HeadSpec
from tests.engine_runs import run_engine

Work = Callable[[], object]


def suite(name: str, units: int = 200, backbone: str = "sketch", pixels: int = 56, images: int = 32) -> Work:
    """A suite on a ProtoPNet with random weights, drawing the birds included."""
    model = protopnet(8, units // 8, pixels, backbone).eval()
    birds = SketchBirds("tiny", image_size=pixels, test_size=images, eval_batch_size=32)
    engine = Interpretability([name])
    return lambda: run_engine(engine, model, birds, batch_size=32)


def passes(plain: int, explained: int, maps: int) -> Work:
    """What a suite needs per image of a ResNet-18, as bare calls on batches of 8.

    A map is a plain backward pass to the pixels; the first explained forward pass has all maps that the others lack.
    """
    model = protopnet(8, 25, 224, "resnet18").eval().requires_grad_(False)
    batches = torch.rand(16, 3, 224, 224).split(8)

    def work() -> None:
        for batch in batches:
            with torch.inference_mode():
                for _ in range(plain):
                    model(batch.clone())
            for index in range(explained):
                leaf = batch.clone().requires_grad_()
                scores = model(leaf).scores
                for unit in range(1 if index else maps - explained + 1):
                    torch.autograd.grad(scores[:, unit].sum(), leaf, retain_graph=True)

    return work


def protopnet(classes: int, per_class: int, pixels: int = 56, backbone: str = "sketch") -> Any:
    """A ProtoPNet with random weights."""
    torch.manual_seed(0)
    size = (pixels, pixels)
    return ProtoPNet(num_classes=classes, image_size=size, prototypes_per_class=per_class, backbone={"name": backbone})


def projection(backbone_alone: bool = False) -> Work:
    """The nearest patches of 10 prototypes of each of 1,000 classes, in one batch."""
    model, keys = protopnet(1_000, 10).eval(), torch.arange(32)
    images = torch.rand(32, 3, 56, 56)
    batch = {"image": images, "sample_key": keys, "label": keys, "sample_id": [str(key) for key in keys.tolist()]}
    if backbone_alone:
        return torch.no_grad()(lambda: model.addon(model.backbone(images)))
    return lambda: nearest_patches(model, [batch], images.device)


def head() -> Work:
    """A training step of everything behind the backbone, 10,000 prototypes, with the losses of the preset."""
    model, labels = protopnet(1_000, 10), torch.arange(16)
    model.backbone, model.addon = torch.nn.Identity(), torch.nn.Identity()
    latent = torch.rand(16, 128, 7, 7).requires_grad_()
    terms = model.loss_terms()

    def step() -> None:
        _losses(model, terms, model(latent), labels).backward()
        model.zero_grad(set_to_none=False)

    return step


def released_head() -> Work:
    """The same by the formula of the released code, three convolutions and a pool, which makes no maps."""
    model, labels = protopnet(1_000, 10), torch.arange(16)
    latent, terms = torch.rand(16, 128, 7, 7).requires_grad_(), model.loss_terms()

    def step() -> None:
        filters = model.prototypes.vectors[..., None, None]
        squares = F.conv2d(latent**2, torch.ones_like(filters)) - 2 * F.conv2d(latent, filters)
        distances = F.relu(squares + (filters**2).sum((1, 2, 3))[:, None, None])
        nearest = -F.max_pool2d(-distances, 7).flatten(1)
        scores = model.prototypes.similarities(nearest)
        output = SimpleNamespace(logits=model.linear(scores), extras={"distance": nearest})
        _losses(model, terms, output, labels).backward()
        model.zero_grad(set_to_none=False)

    return step


def _losses(model: Any, terms: Any, output: Any, labels: Tensor) -> Tensor:
    rates = model.plan.phases[0].losses
    return torch.stack([rate * terms[name](output, {"label": labels}) for name, rate in rates.items()]).sum()


def head_phase() -> Work:
    """20 epochs of the head alone on 256 images that do not change."""
    torch.manual_seed(0)
    changes = dict.fromkeys(("warm", "joint", "joint2", "last2")) | {"last": {"on_enter": []}}
    options: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )

    def work() -> None:
        model = ProtoPNet(num_classes=20, image_size=(64, 64), preset="original", phases=dict(changes))
        data = SketchBirds("small", image_size=64, train_size=256)
        trainer = Trainer(max_epochs=-1, accelerator="cpu", callbacks=[PhaseSchedule()], limit_val_batches=0, **options)
        trainer.fit(model, datamodule=data)

    return work


def last_layer(classes: int, images: int) -> Work:
    """Solving the last layer for scores of 10 units per class, a part of them common to all units."""
    model, labels = protopnet(classes, 10), torch.arange(images) % classes
    common = torch.randn(images, 20) @ torch.randn(20, 10 * classes) / 20**0.5
    own = model.owner[:, labels].T * torch.rand(images, 10 * classes) * torch.rand(10 * classes)
    scores = (0.3 + 0.05 * torch.randn(images, 10 * classes) + 0.08 * common + 0.8 * own).clamp(0, 1)

    def work() -> None:
        model.prototypes.active.fill_(True)
        model.fit_head((scores, labels), None, HeadSpec(1e-3))

    return work


@dataclass(frozen=True)
class Row:
    """One line of the table; its time is divided by ``images``, and ``floor`` makes what the work cannot avoid."""

    title: str
    images: int
    work: Callable[[], Work]
    floor: tuple[str, Callable[[], Work]] | None = None


ROWS = {
    "suite": Row("quanproto, 200 units", 32, lambda: suite("quanproto")),
    "suite_many": Row(
        "quanproto, 10,000 units", 32, lambda: suite("quanproto", 10_000), ("200 units", lambda: suite("quanproto"))
    ),
    "alignment": Row("alignment, 200 units", 32, lambda: suite("alignment")),
    "alignment_many": Row(
        "alignment, 10,000 units", 32, lambda: suite("alignment", 10_000), ("200 units", lambda: suite("alignment"))
    ),
    "projection": Row(
        "projection, 1,000 classes × 10", 32, projection, ("latent alone", lambda: projection(backbone_alone=True))
    ),
    "head": Row("head in training, 10,000 prototypes", 16, head, ("released formula", released_head)),
    "head_phase": Row("head-only phase, per image and epoch", 256 * 20, head_phase),
    "last_layer": Row("last layer solved, 20 classes × 10", 4_000, lambda: last_layer(20, 4_000)),
    "last_layer_many": Row("last layer solved, 200 classes × 10", 5_994, lambda: last_layer(200, 5_994)),
    "completeness": Row(
        "completeness, ResNet-18, 224 px",
        16,
        lambda: suite("completeness", 200, "resnet18", 224, 16),
        ("its passes", lambda: passes(0, 6, 10)),
    ),
    "quanproto": Row(
        "quanproto, ResNet-18, 224 px",
        16,
        lambda: suite("quanproto", 200, "resnet18", 224, 16),
        ("its passes", lambda: passes(1, 6, 10)),
    ),
}
