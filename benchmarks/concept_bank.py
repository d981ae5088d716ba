"""The bank and the head of a post-hoc CBM at the size of CUB: ``python benchmarks/concept_bank.py``.

112 concepts, 100 + 100 images each, 512 channels; a head of 112 concepts by 200 classes on 5,994 images, compared with
200 one-vs-rest fits by stochastic gradients under the settings of the released code of Yuksekgonul et al. 2023, on
5,794 other images. The embeddings are synthetic: classes have concepts, concepts and classes have directions, images
add noise. The SGD side is fitted to scores as they are, as released, and to standardised ones, as the head is.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry.lightning_modules.heads.concept_bank import Examples, fit_concept_bank
from protometry.lightning_modules.heads.sparse_head import Problem, fit_sparse_head

CLASSES, CONCEPTS, CHANNELS, TRAIN, TEST = 200, 112, 512, 5994, 5794
PENALTY, L1_RATIO = 2e-4, 0.99  # λ and α of the released code for CUB


def make_images(seed: int, noise: float) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings ``(n, D)``, labels ``(n,)`` and concepts ``(n, L)`` of training and test images."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.rand(CLASSES, CONCEPTS, generator=generator) < 0.2
    of_concepts = torch.randn(CONCEPTS, CHANNELS, generator=generator) * 0.15
    of_classes = torch.randn(CLASSES, CHANNELS, generator=generator) * 0.3
    labels = torch.arange(TRAIN + TEST) % CLASSES
    clean = table[labels].float() @ of_concepts + of_classes[labels]
    embeddings = (clean + noise * torch.randn(clean.shape, generator=generator)).relu()  # as a backbone ends
    return embeddings, labels, table[labels]


def timed(work: Callable[[], object]) -> tuple[object, float]:
    begin = time.perf_counter()
    result = work()
    return result, time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--noise", type=float, default=1.5, help="of images, which sets how hard the task is")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    embeddings, labels, concepts = make_images(arguments.seed, arguments.noise)
    train, test = slice(TRAIN), slice(TRAIN, None)
    bank, seconds = timed(lambda: fit_concept_bank(embeddings[train], concepts[train], Examples(seed=arguments.seed)))
    print(f"bank of {CONCEPTS} × 200 × {CHANNELS}: {seconds:.2f} s on {arguments.threads} threads")
    scores = (embeddings @ bank.vectors.T + bank.intercepts) / bank.vectors.norm(dim=1)  # margins, as released
    mean, deviation = scores[train].mean(dim=0), scores[train].std(dim=0)
    print("| head | seconds | accuracy on other images, % | weights used, % | violation of KKT |")
    print("|---|---|---|---|---|")

    problem = Problem(scores[train], labels[train], CLASSES, PENALTY, L1_RATIO)
    head, seconds = timed(lambda: fit_sparse_head(problem))
    weight, bias = problem.on_raw_scores(head.weight, head.bias)
    hits = (scores[test].double() @ weight.T + bias).argmax(dim=1) == labels[test]
    accuracy, used = 100 * hits.double().mean(), 100 * (weight != 0).double().mean()
    print(f"| softmax, elastic net | {seconds:.1f} | {accuracy:.2f} | {used:.1f} | {head.violation:.1e} |")

    for name, x in (("as released", scores), ("standardised", (scores - mean) / deviation)):
        sgd = SGDClassifier(
            loss="log_loss", penalty="elasticnet", alpha=PENALTY, l1_ratio=L1_RATIO, max_iter=10000,
            random_state=arguments.seed, n_jobs=arguments.threads,
        )  # fmt: skip
        _, seconds = timed(lambda x=x, sgd=sgd: sgd.fit(x[train].numpy(), labels[train].numpy()))
        accuracy = 100 * sgd.score(x[test].numpy(), labels[test].numpy())
        used = 100 * (sgd.coef_ != 0).mean()
        print(f"| 200 × one-vs-rest SGD, {name} | {seconds:.1f} | {accuracy:.2f} | {used:.1f} | |")


if __name__ == "__main__":
    main()
