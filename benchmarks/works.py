"""The work that the rows of ``benchmarks/rows.py`` measure, under names that other checkouts share.

Each function makes the work of a row. Packages are imported where they are used: a process first decides whose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Work = Callable[[], object]
CONTRASTIVITY = tuple(f"contrastivity/{name}" for name in ("plc", "palc", "apd", "afd"))


def suite(name: str, units: int = 200, backbone: str = "sketch", pixels: int = 56, images: int = 32) -> Work:
    """A suite on a ProtoPNet with random weights, drawing the birds included."""
    run_engine = import_module("tests.engine_runs").run_engine
    model = protopnet(8, units // 8, pixels, backbone).eval()
    birds = import_module("protometry.datamodules").SketchBirds(
        "tiny", image_size=pixels, test_size=images, eval_batch_size=32
    )
    engine = import_module("protometry.callbacks").Interpretability([name])
    return lambda: run_engine(engine, model, birds, batch_size=32)


def passes(plain: int, explained: int, maps: int) -> Work:
    """The passes of a suite on a ResNet-18, each as a bare call."""
    evaluation = import_module("benchmarks.evaluation")
    model, counted = evaluation.make_model(), evaluation.Passes(16 * plain, 16 * explained, 16 * maps)
    return lambda: evaluation.floor_of(model, counted, 224, 16, 8)


def protopnet(classes: int, per_class: int, pixels: int = 56, backbone: str = "sketch") -> Any:
    """A ProtoPNet with random weights."""
    torch.manual_seed(0)
    kind = import_module("protometry.lightning_modules").ProtoPNet
    size = (pixels, pixels)
    return kind(num_classes=classes, image_size=size, prototypes_per_class=per_class, backbone={"name": backbone})


def projection(backbone_alone: bool = False) -> Work:
    """The nearest patches of 10 prototypes of each of 1,000 classes, in one batch."""
    nearest_patches = import_module("protometry.callbacks.phases.projection").nearest_patches
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


def entropy(images: int, units: int) -> Work:
    """Entropy of scores that were added in batches of 32; the process holds them before and after."""
    metric = import_module("protometry.metrics").PrototypeEntropy(units)
    for count in [32] * (images // 32) + [images % 32]:
        metric.update(torch.rand(count, units))

    def work() -> None:
        metric._computed = None
        metric.compute()

    return work


def distance() -> Work:
    """A batch of both prototype distances, 1,000 classes, 10,000 prototypes."""
    kind, vectors = import_module("protometry.metrics").AveragePrototypeDistance, torch.rand(10_000, 128)
    metrics = [kind(vectors, 1_000, mode) for mode in ("intra", "inter")]
    ids, labels = torch.randint(10_000, (32, 5)), torch.arange(32)
    return lambda: [metric.update(ids, labels) for metric in metrics]


def updates(*keys: str) -> Work:
    """A hundred batches of 32 images, 2,000 units, 7 × 7 cells, 5 units per image, for metrics without a model."""
    benchmark = import_module("benchmarks.metrics")
    work = benchmark.map_work(32)
    chosen = [update for name, update in work.items() if name.startswith(keys)]
    return lambda: [update() for _ in range(100) for update in chosen]


def noise() -> Work:
    """The noisy images of completeness, 224 px, 5 per image."""
    perturb = import_module("protometry.metrics.functional").completeness_perturbation
    boxes = torch.tensor([56, 56, 112, 112]).expand(32, 5, 4)
    images, keys = torch.rand(32, 3, 224, 224), torch.randint(2**62, (32,))
    return lambda: perturb(images, boxes, keys)


def head_phase() -> Work:
    """20 epochs of the head alone on 256 images that do not change."""
    lightning, callbacks = import_module("lightning"), import_module("protometry.callbacks")
    torch.manual_seed(0)
    changes = dict.fromkeys(("warm", "joint", "joint2", "last2")) | {"last": {"on_enter": []}}
    kind, birds = (
        import_module("protometry.lightning_modules").ProtoPNet,
        import_module("protometry.datamodules").SketchBirds,
    )
    options: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )

    def work() -> None:
        model = kind(num_classes=20, image_size=(64, 64), preset="original", phases=dict(changes))
        data = birds("small", image_size=64, train_size=256)
        trainer = lightning.Trainer(
            max_epochs=-1, accelerator="cpu", callbacks=[callbacks.PhaseSchedule()], limit_val_batches=0, **options
        )
        trainer.fit(model, datamodule=data)

    return work


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Args:
        title: what is measured.
        images: the time is divided by, with epochs.
        work: makes it.
        floor: makes what it cannot avoid, with a name; None without one.
    """

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
    "entropy": Row("entropy, 5,794 × 2,000 (state 44 MiB), in all", 1, lambda: entropy(5_794, 2_000)),
    "entropy_many": Row("entropy, 5,000 × 10,000, in all (state 191 MiB)", 1, lambda: entropy(5_000, 10_000)),
    "distance": Row("prototype distances, a batch of 32", 1, distance),
    "noise": Row("noise of completeness, 5 per image", 32, noise),
    "pac": Row("PAC, a batch", 100, lambda: updates("completeness/pac")),
    "contrastivity": Row("contrastivity, a batch, no entropy", 100, lambda: updates(*CONTRASTIVITY)),
    "general": Row("general, a batch", 100, lambda: updates("general")),
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
