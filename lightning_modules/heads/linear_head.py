"""A last layer solved exactly on scores of images, on a regularisation path by the one-standard-error rule."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from lightning.pytorch.utilities import rank_zero_warn
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn import functional as F

from protometry.lightning_modules.contract import UnitTable
from protometry.lightning_modules.heads.sparse_head import (
    HeadProblem,
    SparseHead,
    Terms,
    fit_sparse_head,
    refuse_broken,
    vary,
)
from protometry.lightning_modules.phases import HeadSpec
from protometry.run_folder.command_line.progress import track

HALVINGS = 12  # of the penalty at which all weights are 0: the path tried where the penalty is chosen
FOLDS = 5  # of the training images, where it is chosen on them for want of validation images
PATIENCE = 3  # the path ends after this many in a row without improvement
ROUGH, FINE = 0.05, 1e-3  # violation of the optimality conditions, of the penalty: on the path, and of the solution
Images = tuple[Tensor, Tensor]  # scores (n, U) float, and targets


@dataclass
class _Judged:
    """Images on which heads are judged; those of a fold have a problem of their own, posed on all other images."""

    images: Images
    problem: HeadProblem | None = None
    head: SparseHead | None = None

    def solve(self, penalty: float, head: SparseHead) -> SparseHead:
        """The head that is judged: that of all training images, or the one solved without these."""
        if self.problem is not None:
            head = self.head = fit_sparse_head(self.problem.at(penalty), ROUGH * penalty, start=self.head)
        return head


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
            validation: scores, and ``(n,)`` or ``(n, K)`` bool targets, on which a penalty is chosen. Without them, it
                is chosen by cross-validation: the training images of each class are dealt to five folds in their
                order, and each fold is judged under the heads solved on the other four.
            spec: the penalty and the rest of the problem. With ``"auto"``, it is the largest one, of those solved with
                a weight for every class and at most ``spec.weights_per_class``, within a standard error of the least
                cross-entropy (Breiman et al. 1984) of images that the head has not seen. Cross-entropies are those at
                the temperature that suits these images best (Guo et al. 2017), by which the weights are then divided:
                a penalty makes probabilities too even. Decisions stay, probabilities hold.

        Returns:
            A row for each penalty tried, the largest first: penalty, objective, violation, passes over the images,
            weights_per_class, empty_classes without any weight, units used, solved (1 if the violation is as small as
            promised, else 0), its ``weight`` ``(K, U)`` float64 and whether it is chosen. With images to judge by, also
            validation_accuracy (of single labels), validation_loss and its standard_error, cross_validation_… by folds;
            the temperature of a chosen penalty.

        Raises:
            ValueError: if a score is not finite, or no score differs between the training images.
        """
        active = self.units().active
        scores = training[0].to(active.device)[:, active]
        _refuse_alike(scores)
        targets, terms = self._targets(training[1].to(active.device)), self._terms(active, spec)
        problem = HeadProblem(scores, targets, self.num_classes, 1.0, spec.l1_ratio, terms)
        judged: list[_Judged] = []
        if validation is not None:
            images = validation[0].to(scores)[:, active], validation[1].to(active.device)
            refuse_broken(images[0])
            judged = [_Judged(images)]
        elif spec.is_chosen:
            judged = self._folds(scores, training[1].to(active.device), targets, spec, terms)
        rows, heads = self._path(problem, spec, judged)
        chosen = _one_standard_error_choice(rows, spec.weights_per_class)
        if spec.is_chosen:
            penalty, row = rows[chosen]["penalty"], rows[chosen]
            posed = problem.at(penalty)
            heads[chosen] = fit_sparse_head(posed, FINE * penalty, start=heads[chosen])
            rows[chosen] = row | _row(penalty, posed, heads[chosen], FINE * penalty)
            if validation is not None:
                rows[chosen] |= self._validated(penalty, heads[chosen], judged)
        penalty = rows[chosen]["penalty"]
        weights = torch.zeros(len(heads), self.num_classes, len(active), dtype=torch.float64, device=active.device)
        for row, solved, weight in zip(rows, heads, weights, strict=True):
            weight[:, active] = solved.weight / (row["temperature"] if spec.is_chosen else 1.0)
        _warn_of_unsolved(rows, chosen)
        if empty := rows[chosen]["empty_classes"]:
            rank_zero_warn(
                f"A penalty of {penalty:.1e} leaves {empty:.0f} of {self.num_classes} classes without any weight. "
                "Lower `head.penalty` of the phase, or train longer before it."
            )
        self.load_weights(weights[chosen])
        prefix = "validation" if validation is not None else "cross_validation"
        names = {"accuracy": f"{prefix}_accuracy", "loss": f"{prefix}_loss"}
        return [
            {names.get(name, name): value for name, value in row.items() if name != "temperature" or spec.is_chosen}
            | {"chosen": index == chosen, "weight": weights[index]}
            for index, row in enumerate(rows)
        ]

    @torch.no_grad()
    def calibrate(self, images: Images) -> float:
        """Divide W by the temperature (Guo et al. 2017) that suits images which the model was not trained on.

        Args:
            images: scores ``(n, U)``, and targets: ``(n,)`` int64 classes or, for several labels, ``(n, K)`` bool.

        Returns:
            The temperature, below 1 if the probabilities were too even.
        """
        weight = cast(Tensor, self.units().weight).double()
        scores, targets = (tensor.to(weight.device) for tensor in images)
        temperature = self._temperature(scores.double() @ weight.T, targets)
        self.load_weights(weight / temperature)
        return temperature

    def _path(
        self, problem: HeadProblem, spec: HeadSpec, judged: list[_Judged]
    ) -> tuple[list[dict[str, Any]], list[SparseHead]]:
        """A row and the solution for each penalty, until several in a row bring no improvement."""
        rows: list[dict[str, Any]] = []
        heads: list[SparseHead] = []
        penalties = _halvings(problem) if spec.is_chosen else [cast(float, spec.penalty)]
        for penalty in track(penalties, "Solving the last layer"):
            posed, promised = problem.at(penalty), (ROUGH if spec.is_chosen else FINE) * penalty
            heads.append(fit_sparse_head(posed, promised, start=heads[-1] if heads else None))
            rows.append(_row(penalty, posed, heads[-1], promised) | self._validated(penalty, heads[-1], judged))
            if len(rows) - 1 - _best(rows) >= PATIENCE:
                break
        return rows, heads

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

    def _folds(self, scores: Tensor, labels: Tensor, targets: Tensor, spec: HeadSpec, terms: Terms) -> list[_Judged]:
        """Five parts of the training images, in which classes have equal shares."""
        if self.task != "multilabel" and labels.ndim > 1:
            labels = labels.argmax(dim=1)  # of probabilities
        order = torch.arange(len(scores), device=scores.device) if labels.ndim > 1 else _ranks_within(labels)
        folds = []
        for fold in range(FOLDS):
            held = order % FOLDS == fold
            if held.any() and not held.all():
                problem = HeadProblem(scores[~held], targets[~held], self.num_classes, 1.0, spec.l1_ratio, terms)
                folds.append(_Judged((scores[held], labels[held]), problem))
        return folds

    def _validated(self, penalty: float, head: SparseHead, judged: Sequence[_Judged]) -> dict[str, float]:
        if not judged:
            return {}
        logits = torch.cat([each.images[0].double() @ each.solve(penalty, head).weight.T for each in judged])
        targets = torch.cat([each.images[1] for each in judged])
        temperature = self._temperature(logits, targets)
        losses = self._losses(logits / temperature, targets)
        spread = losses.std(correction=0).item() / len(losses) ** 0.5
        row = {"loss": losses.mean().item(), "standard_error": spread, "temperature": temperature}
        if self.task == "multilabel":
            return row
        return {"accuracy": (logits.argmax(dim=1) == targets).double().mean().item()} | row

    def _temperature(self, logits: Tensor, targets: Tensor) -> float:
        """The one under which logits ``(n, K)`` have the least cross-entropy, as if one image more were wrong."""
        wrong = 1 / (len(logits) + 2)

        def loss(log_temperature: float) -> float:
            return self._losses(logits / math.exp(log_temperature), targets, wrong).mean().item()

        return math.exp(minimize_scalar(loss, bounds=(-7, 7), method="bounded").x)

    def _losses(self, logits: Tensor, targets: Tensor, wrong: float = 0.0) -> Tensor:
        """``(n,)`` cross-entropies, of several labels the sums of theirs, as if a share of the targets were wrong."""
        if self.task == "multilabel":
            known, present = (~targets.isnan()).to(logits), targets.to(logits).nan_to_num()
            present = present * (1 - 2 * wrong) + wrong
            return F.binary_cross_entropy_with_logits(logits, present, known, reduction="none").sum(dim=1)
        smoothing = wrong * self.num_classes / (self.num_classes - 1)
        return F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)


def _ranks_within(labels: Tensor) -> Tensor:
    """``(n,)`` the number of images of the same class before each."""
    order = labels.argsort(stable=True)
    counts = labels.bincount()
    first = counts.cumsum(0) - counts
    return torch.empty_like(order).index_copy(
        0, order, torch.arange(len(order), device=order.device) - first[labels[order]]
    )


def _refuse_alike(scores: Tensor) -> None:
    """Refuse scores with which no last layer can tell images apart."""
    refuse_broken(scores)
    if not vary(scores).any():
        raise ValueError(
            "Expected the score of some active unit to vary over the training images, but got the same scores for all "
            f"{len(scores)} images, which no last layer can tell apart. Earlier phases have collapsed: lower their "
            "learning rates, or train them longer."
        )


def _halvings(problem: HeadProblem) -> list[float]:
    """Penalties below the smallest one for which all weights are 0."""
    largest = problem.largest_penalty()
    return [largest / 2**step for step in range(1, HALVINGS + 1)]


def _row(penalty: float, problem: HeadProblem, head: SparseHead, promised: float) -> dict[str, float]:
    return {
        "penalty": penalty,
        "objective": problem.objective(head.weight, head.bias),
        "violation": head.violation,
        "passes": float(head.evaluations),
        "weights_per_class": (head.weight != 0).double().sum(dim=1).mean().item(),
        "empty_classes": float((head.weight == 0).all(dim=1).sum()),
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
    return max(range(len(rows)), key=lambda index: (rows[index]["solved"], -rows[index].get("loss", 0.0)))


def _one_standard_error_choice(rows: list[dict[str, float]], most: float | None = None) -> int:
    """The first row within a standard error of the best, and as well solved, of those with few enough weights.

    Rows that leave a class without any weight, which is then never predicted, only count where all do.
    """
    if len(rows) == 1:
        return 0
    few = [index for index, row in enumerate(rows) if most is None or row["weights_per_class"] <= most] or [0]
    few = [index for index in few if not rows[index]["empty_classes"]] or few
    best = rows[few[_best([rows[index] for index in few])]]
    most_loss = best["loss"] + best["standard_error"]
    return next(i for i in few if rows[i]["solved"] == best["solved"] and rows[i]["loss"] <= most_loss)
