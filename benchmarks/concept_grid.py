"""The cost of a concept bottleneck: ``python benchmarks/concept_grid.py --ckpt_path RUN/checkpoints/last.ckpt``.

For a run of PosthocCBM: the accuracy on its test images with N images with and N without each concept and C of the
support vector machines from 0.001 to 10 (the grid of Aysel et al. 2025, table 3). Then, for several λ of the head, the
bank of the run next to an equal number of random directions, and the linear probe that reads the embedding itself. The
embeddings come from the run; every head is solved to its optimality conditions. Scores are standardised before the
head, so that the accuracies of the projections raw, unit and margin are the same. Mean ± standard deviation over draws.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry.callbacks.forward.walk import walk
from protometry.callbacks.phases.embeddings import Embedded, embed_training_images
from protometry.datamodules import load_datamodule
from protometry.lightning_modules import PosthocCBM, load_model
from protometry.lightning_modules.heads.concept_bank import Examples, fit_concept_bank
from protometry.lightning_modules.heads.sparse_head import Problem, fit_sparse_head

NUMBERS, SVM_CS = (50, 100), (0.001, 0.01, 0.1, 1.0, 10.0)
PENALTIES = (2e-4, 1e-3, 5e-3, 2e-2, 1e-1)  # λ of the head


def embed(model: PosthocCBM, data: Any, folder: Path) -> tuple[Embedded, Tensor, Tensor]:
    """Training images, and embeddings and labels of test images."""
    one = SimpleNamespace(broadcast=lambda value: value, barrier=lambda: None)
    trainer: Any = SimpleNamespace(datamodule=data, strategy=one, is_global_zero=True)
    training = embed_training_images(trainer, model, folder)
    seen = [(seen.latent.mean(dim=(2, 3)), batch["label"])
            for batch, seen in walk(model, data.test_dataloader(), data.image_size)]  # fmt: skip
    embeddings, labels = (torch.cat(part) for part in zip(*seen, strict=True))
    return training, embeddings, labels


def accuracy(
    directions: Tensor, images: tuple[Embedded, Tensor, Tensor], num_classes: int, penalty: float, l1_ratio: float
) -> float:
    """Accuracy in % of a head over projections onto ``(U, D)`` directions."""
    training, test, labels = images
    problem = Problem(training.embeddings @ directions.T, training.targets, num_classes, penalty, l1_ratio)
    head = fit_sparse_head(problem)
    assert head.violation < 1e-4
    weight, bias = problem.on_raw_scores(head.weight, head.bias)
    hits = ((test @ directions.T).double() @ weight.T + bias).argmax(dim=1) == labels
    return 100 * hits.double().mean().item()


def cell(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"


def print_table(title: str, columns: list[str], rows: dict[str, Callable[[int], list[float]]]) -> None:
    """A row of cells as soon as it is there; a function gives the values of a column by its index."""
    print(f"\n| {title} | {' | '.join(columns)} |\n|---{'|---' * len(columns)}|")
    for name, values in rows.items():
        print(f"| {name} | {' | '.join(cell(values(index)) for index in range(len(columns)))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ckpt_path", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=3, help="draws of examples and of random directions")
    arguments = parser.parse_args()
    model = cast(PosthocCBM, load_model(arguments.ckpt_path))
    images = embed(model, load_datamodule(arguments.ckpt_path), arguments.ckpt_path.parents[1] / "embeddings")
    training, channels, draws = images[0], images[1].shape[1], range(arguments.draws)

    def bank(number: int, svm_c: float, seed: int) -> Tensor:
        fitted = fit_concept_bank(training.embeddings, training.concepts, Examples(number, number, svm_c, seed))
        return fitted.vectors[fitted.found]

    def row(made: list[Tensor], l1_ratio: float = model.l1_ratio) -> Callable[[int], list[float]]:
        return lambda index: [
            accuracy(directions, images, model.num_classes, PENALTIES[index], l1_ratio) for directions in made
        ]

    def grid_row(number: int) -> Callable[[int], list[float]]:
        return lambda index: [
            accuracy(bank(number, SVM_CS[index], seed), images, model.num_classes, model.penalty, model.l1_ratio)
            for seed in draws
        ]

    def random(seed: int) -> Tensor:
        return torch.randn(count, channels, generator=torch.Generator().manual_seed(seed))

    print(f"{len(training.embeddings)} training and {len(images[1])} test images, accuracy in %, λ = {model.penalty:g}")
    print_table("images per side", [f"C = {c:g}" for c in SVM_CS], {str(n): grid_row(n) for n in NUMBERS})
    drawn, count = model.drawn, int(model.units().active.sum())
    whole = [torch.eye(channels)]
    rows = {
        f"{count} concepts, N = {drawn.positives}, C = {drawn.svm_c:g}": row(
            [bank(drawn.positives, drawn.svm_c, seed) for seed in draws]
        ),
        f"{count} random directions": row([random(seed) for seed in draws]),
        f"probe of {channels} channels": row(whole),
        "the same, squares alone": row(whole, l1_ratio=0.0),
    }
    print_table("head", [f"λ = {penalty:g}" for penalty in PENALTIES], rows)


if __name__ == "__main__":
    main()
