"""A bank of concept vectors: for every concept a linear support vector machine over the embeddings of training images.

Source: Kim et al. 2018 (TCAV) and Yuksekgonul et al. 2023 (post-hoc CBM): the normal of the plane that separates images
with the concept from images without it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ROUNDING = 1e-12  # a normal as small as the rounding errors of its terms does not count


@dataclass(frozen=True)
class Examples:
    """Options for fitting the vector of a concept.

    Args:
        positives: images with the concept for fitting, and as many for validation.
        negatives: the same for images without it.
        svm_c: C of the support vector machine; called λ by Aysel et al. 2025.
    """

    positives: int = 100
    negatives: int = 100
    svm_c: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class ConceptBank:
    """Concept vectors, and how well they separate.

    Args:
        vectors: ``(L, D)`` float32, normals; 0 for a concept that is left out.
        intercepts: ``(L,)`` float32.
        examples: ``(L, 2, 2)`` int64, images to learn from and to validate, without and with the concept.
        accuracies: ``(L, 2)`` float32, on the images to learn from and to validate: the mean of the shares of images
            without and with the concept that lie on their side; NaN where one of the two kinds is lacking.
        margins: ``(L, 2)`` float32, mean signed distance (v·f + b)/‖v‖ to the plane, of the images to learn from,
            without and with the concept.
    """

    vectors: Tensor
    intercepts: Tensor
    examples: Tensor
    accuracies: Tensor
    margins: Tensor

    @property
    def found(self) -> Tensor:
        """``(L,)`` bool, the concept has a vector: there are images with and without it, and they differ."""
        return (self.vectors != 0).any(dim=1)


def fit_concept_bank(embeddings: Tensor, concepts: Tensor, options: Examples) -> ConceptBank:
    """The vectors of all concepts, each by scikit-learn's ``SVC(kernel="linear")``, in parallel over concepts.

    Images are drawn without replacement and independently for every concept, so that a vector depends neither on other
    concepts nor on the number of threads. If too few are available, all are used, first for fitting. ``concepts`` are
    ``(n, L)`` bool, or float with NaN for an image of which a concept is unknown, which is not drawn.

    Example:
        >>> embeddings = torch.tensor([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0], [2.0, 3.0]])
        >>> concepts = torch.tensor([[False, True], [True, True], [False, True], [True, True]])
        >>> bank = fit_concept_bank(embeddings, concepts, Examples(positives=2, negatives=2))
        >>> bank.vectors[0], bank.intercepts[0], bank.found  # the plane lies between 0 and 2; all have the second
        (tensor([1., 0.]), tensor(-1.), tensor([ True, False]))
    """
    from sklearn.utils.parallel import Parallel, delayed  # slow to import, and few runs need it

    jobs = (delayed(_fit_one)(embeddings, present, index, options) for index, present in enumerate(concepts.T))
    columns = zip(*Parallel(n_jobs=torch.get_num_threads(), prefer="threads")(jobs), strict=True)
    return ConceptBank(*(torch.stack(column) for column in columns))


def draw_examples(present: Tensor, options: Examples, concept: int) -> tuple[list[Tensor], list[Tensor]]:
    """Rows of the images for fitting and validation, each without and with the concept; its index seeds the draw."""
    generator = torch.Generator().manual_seed(options.seed << 20 | concept)
    train, validation = [], []
    for rows, wanted in ((present == 0, options.negatives), (present == 1, options.positives)):
        rows = rows.nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)]
        train.append(rows[:wanted])
        validation.append(rows[wanted : 2 * wanted])
    return train, validation


def _fit_one(embeddings: Tensor, present: Tensor, concept: int, options: Examples) -> tuple[Tensor, ...]:
    """Vector, intercept, examples, accuracies and margins of one concept."""
    from sklearn.svm import SVC

    splits = draw_examples(present, options, concept)
    counts = torch.tensor([[len(rows) for rows in split] for split in splits])
    vector, intercept = embeddings.new_zeros(embeddings.shape[1]), embeddings.new_zeros(())
    if counts[0].all():
        rows = torch.cat(splits[0])
        images, machine = embeddings[rows].double(), SVC(kernel="linear", C=options.svm_c)
        machine.fit(images.numpy(), (present[rows] == 1).numpy())
        terms = abs(machine.dual_coef_).sum() * images.norm(dim=1).max().item()
        normal = torch.tensor(machine.coef_[0])
        if normal.norm() > _ROUNDING * terms:
            vector, intercept = normal.float(), torch.tensor(machine.intercept_[0]).float()
    if not vector.any():
        unknown = torch.full((2,), torch.nan)
        return vector, torch.zeros(()), counts, unknown, unknown
    sides = [[(embeddings[rows] @ vector + intercept) / vector.norm() for rows in split] for split in splits]
    shares = [torch.stack([(without <= 0).float().mean(), (with_it > 0).float().mean()]) for without, with_it in sides]
    accuracies = torch.stack(shares).mean(dim=1)
    return vector, intercept, counts, accuracies, torch.stack([side.mean() for side in sides[0]])
