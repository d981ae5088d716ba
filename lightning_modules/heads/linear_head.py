"""A last layer solved exactly on scores of images: a regularisation path, and the one-standard-error rule on it."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.nn import functional as F

from protometry.lightning_modules.contract import UnitTable
from protometry.lightning_modules.heads.sparse_head import (
    Problem,
    SparseHead,
    Terms,
    fit_sparse_head,
    refuse_broken,
    vary,
)
from protometry.lightning_modules.phases import HeadSpec

HALVINGS = 12  # of the penalty at which all weights are 0: the path tried on validation images
PATIENCE = 3  # the path ends after this many in a row without improvement
ROUGH, FINE = 0.05, 1e-3  # violation of the optimality conditions, of the penalty: on the path, and of the solution
Images = tuple[Tensor, Tensor]  # scores (n, U) float, and targets


class LinearHead:
    """The common part of models whose logits are W s of their scores, without a bias."""

    task: Literal["multiclass", "multilabel"]
    num_classes: int
    class_weights: Tensor | None

    @abstractmethod
    def units(self) -> UnitTable:
        """What the units are."""

    @abstractmethod
    def load_weights(self, weight: Tensor) -> None:
        """Set W, ``(K, U)``; units without weight become inactive."""

    def readable(self) -> Tensor:
        """``(K, U)`` bool, weights that may differ from 0, which belong to active units."""
        return self.units().active.expand(self.num_classes, -1)

    @torch.no_grad()
    def fit_head(self, training: Images, validation: Images | None, spec: HeadSpec) -> list[dict[str, Any]]:
        """Solve the last layer.

        The minimum of mean cross-entropy + λ Σ_ku h_ku (α|W_ku| + (1 - α)/2 W_ku²), h being 1 for a class's own units
        and ``spec.others`` for all others; for several labels, of the binary cross-entropy, summed over labels.

        Args:
            training: scores, and targets: ``(n,)`` int64 classes, ``(n, K)`` float probabilities or, for several
                labels, ``(n, K)`` bool.
            validation: scores, and ``(n,)`` or ``(n, K)`` bool targets; read if the penalty is to be chosen.
            spec: the penalty and the rest of the problem.

        Returns:
            A row for each penalty tried, the largest first: penalty, objective, violation, passes over the images,
            weights_per_class and units used, solved (1 if the violation is as small as promised, else 0),
            validation_accuracy or, for several labels, validation_loss, its standard_error, and whether it is chosen:
            of those solved, the largest penalty within a standard error of the best (Breiman et al. 1984).

        Raises:
            ValueError: if a score is not finite, or no score differs between the training images.
        """
        active = self.units().active
        scores = training[0].to(active.device)[:, active]
        _refuse_alike(scores)
        targets, terms = self._targets(training[1].to(active.device)), self._terms(active, spec)
        problem = Problem(scores, targets, self.num_classes, 1.0, spec.l1_ratio, terms)
        if validation is not None:
            validation = validation[0].to(scores)[:, active], validation[1].to(active.device)
            refuse_broken(validation[0])
        rows: list[dict[str, Any]] = []
        heads: list[SparseHead] = []
        for penalty in [spec.penalty] if spec.penalty is not None else _halvings(problem):
            posed, promised = problem.at(penalty), (ROUGH if spec.penalty is None else FINE) * penalty
            heads.append(fit_sparse_head(posed, promised, start=heads[-1] if heads else None))
            rows.append(_row(penalty, posed, heads[-1], promised) | self._validated(heads[-1], validation))
            if len(rows) - 1 - _best(rows) >= PATIENCE:
                break
        chosen = _one_standard_error_choice(rows)
        if spec.penalty is None:
            penalty = rows[chosen]["penalty"]
            posed = problem.at(penalty)
            heads[chosen] = fit_sparse_head(posed, FINE * penalty, start=heads[chosen])
            rows[chosen] = _row(penalty, posed, heads[chosen], FINE * penalty)
            rows[chosen] |= self._validated(heads[chosen], validation)
        head, penalty = heads[chosen], rows[chosen]["penalty"]
        _warn_of_unsolved(rows, chosen)
        if empty := int((head.weight == 0).all(dim=1).sum()):
            rank_zero_warn(
                f"A penalty of {penalty:.1e} leaves {empty} of {self.num_classes} classes without any weight. Lower "
                "`head.penalty` of the phase, or train longer before it."
            )
        weight = torch.zeros(self.num_classes, len(active), dtype=torch.float64, device=active.device)
        weight[:, active] = head.weight
        self.load_weights(weight)
        name, sign = ("validation_loss", -1) if self.task == "multilabel" else ("validation_accuracy", 1)
        for row in rows:
            if "validation" in row:
                row[name] = sign * row.pop("validation")
        return [row | {"chosen": index == chosen} for index, row in enumerate(rows)]

    def _terms(self, active: Tensor, spec: HeadSpec) -> Terms:
        penalty_factor = torch.where(self.units().owner.T, 1.0, spec.others).masked_fill(~self.readable(), torch.inf)
        return Terms(
            penalty_factor=penalty_factor[:, active],
            standardize=False,
            bias=False,
            nonnegative=spec.nonnegative,
            sigmoid=self.task == "multilabel",
        )

    def _targets(self, targets: Tensor) -> Tensor:
        if self.class_weights is None:
            return targets
        whole = F.one_hot(targets, self.num_classes) if targets.ndim == 1 else targets
        return whole * self.class_weights

    def _validated(self, head: SparseHead, images: Images | None) -> dict[str, float]:
        if images is None:
            return {}
        scores, targets = images
        logits = scores.double() @ head.weight.T
        if self.task == "multilabel":
            known, targets = (~targets.isnan()).to(logits), targets.to(logits).nan_to_num()
            values = -F.binary_cross_entropy_with_logits(logits, targets, known, reduction="none").sum(dim=1)
        else:
            values = (logits.argmax(dim=1) == targets).double()
        spread = values.std(correction=0).item() / len(values) ** 0.5
        return {"validation": values.mean().item(), "standard_error": spread}


def _refuse_alike(scores: Tensor) -> None:
    """Refuse scores with which no last layer can tell images apart."""
    refuse_broken(scores)
    if not vary(scores).any():
        raise ValueError(
            "Expected the score of some active unit to vary over the training images, but got the same scores for all "
            f"{len(scores)} images, which no last layer can tell apart. Earlier phases have collapsed: lower their "
            "learning rates, or train them longer."
        )


def _halvings(problem: Problem) -> list[float]:
    """Penalties below the smallest one for which all weights are 0."""
    largest = problem.largest_penalty()
    return [largest / 2**step for step in range(1, HALVINGS + 1)]


def _row(penalty: float, problem: Problem, head: SparseHead, promised: float) -> dict[str, float]:
    return {
        "penalty": penalty,
        "objective": problem.objective(head.weight, head.bias),
        "violation": head.violation,
        "passes": float(head.evaluations),
        "weights_per_class": (head.weight != 0).double().sum(dim=1).mean().item(),
        "units": float((head.weight != 0).any(dim=0).sum()),
        "solved": float(head.violation <= promised),
    }


def _warn_of_unsolved(rows: list[dict[str, float]], chosen: int) -> None:
    row, others = rows[chosen], [f"{row['penalty']:.1e}" for row in rows if not row["solved"]]
    if not row["solved"]:
        rank_zero_warn(
            f"The last layer violates its optimality conditions by {row['violation']:.1e} after {row['passes']:.0f} "
            f"passes, more than {FINE} of its penalty of {row['penalty']:.1e}. Raise `head.penalty` of the phase."
        )
    elif others:
        rank_zero_warn(
            f"The last layer was not solved for {len(others)} of {len(rows)} penalties, which were not chosen: "
            f"{', '.join(others)}."
        )


def _best(rows: list[dict[str, float]]) -> int:
    """The first of the best rows among those solved, or among all if none is."""
    return max(range(len(rows)), key=lambda index: (rows[index]["solved"], rows[index].get("validation", 0.0)))


def _one_standard_error_choice(rows: list[dict[str, float]]) -> int:
    """The first row within a standard error of the best, and as well solved."""
    if len(rows) == 1:
        return 0
    best = rows[_best(rows)]
    least = best["validation"] - best["standard_error"]
    return next(i for i, row in enumerate(rows) if row["solved"] == best["solved"] and row["validation"] >= least)
