"""The feature selection of QPM compared with a solver: ``python benchmarks/feature_selection.py``.

    python benchmarks/feature_selection.py                  # proven sizes, 40 s of HiGHS at 256x100, 2048x200 alone
    python benchmarks/feature_selection.py --seconds 200 --seeds 0 1 2 3

The solver is HiGHS (``scipy.optimize.milp``) on the linearised program: s_u for a selected feature, w_uc <= s_u for a
feature of a class, z >= s_u + s_v - 1 for a redundant pair. The constraint that no two classes are alike is left out
there; its value is compared with ours where rows may be equal, and ours with distinct rows is printed next to them.
Features are drawn as images would give them: classes that differ in a few hidden properties, features that answer to
some of these, and noise. Both sides have one thread and are timed by the processor; ``--seconds`` is by the clock.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, eye_array, hstack, kron, vstack

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry.lightning_modules.heads.feature_constants import FeatureConstants, FeatureSums
from protometry.lightning_modules.heads.feature_search import Problem, local_optimum, starting_points
from protometry.lightning_modules.heads.feature_selection import find_selection, make_problem, redundancy_threshold

PROVEN = ((40, 20, 10, 3), (80, 30, 12, 3), (100, 40, 12, 3))  # features, classes, selected, per class
LARGE = (256, 100, 50, 5)
FULL = (2048, 200, 50, 5)


def draw(features: int, classes: int, seed: int, images: int = 10) -> FeatureConstants:
    """The constants of random features: ``images`` per class, 24 hidden properties of classes, grids of 2x2 cells."""
    generator = torch.Generator().manual_seed(seed)
    properties = (torch.rand(classes, 24, generator=generator) < 0.3).float()
    answers = torch.randn(24, features, generator=generator) * (torch.rand(24, features, generator=generator) < 0.2)
    labels = torch.arange(classes).repeat_interleave(images)
    values = (properties @ answers)[labels, :, None, None]
    noise = torch.randn(len(labels), features, 2, 2, generator=generator)
    sums = FeatureSums.empty(classes, features, labels.device)
    sums.update((values + noise).relu(), labels)
    return sums.constants()


def searched(constants: FeatureConstants, size: int, per_class: int) -> tuple[Problem, float]:
    """The problem with the redundant pairs that the selection finds, and the best bound that its search climbs to."""
    threshold, independent = redundancy_threshold(constants.redundancy, size)
    problem = make_problem(constants, threshold, size, per_class, signed=False)
    return problem, max(local_optimum(problem, start)[1] for start in starting_points(problem, independent, seed=0))


def solve(problem: Problem, seconds: float) -> tuple[float, float]:
    """Value and upper bound of HiGHS after at most ``seconds``; equal if it has proven its value."""
    fit, penalty = problem.fit.numpy(), np.triu(problem.penalty.numpy())
    features, classes = fit.shape
    first, second = np.nonzero(penalty)
    pairs, ways = len(first), features * classes
    everything, nothing = np.ones(features), csr_array((1, ways + pairs))
    select = hstack([csr_array(everything[None]), nothing])
    per_class = hstack(
        [csr_array((classes, features)), kron(everything[None], eye_array(classes)), csr_array((classes, pairs))]
    )
    owned = hstack([kron(eye_array(features), -np.ones((classes, 1))), eye_array(ways), csr_array((ways, pairs))])
    rows, both = np.arange(pairs), np.ones(pairs)
    members = coo_array((both, (rows, first)), (pairs, features)) + coo_array((both, (rows, second)), (pairs, features))
    together = hstack([members, csr_array((pairs, ways)), -eye_array(pairs)])
    low = np.concatenate([[problem.size], np.full(classes, problem.per_class), np.full(ways + pairs, -np.inf)])
    high = np.concatenate([low[: 1 + classes], np.zeros(ways), np.ones(pairs)])
    cost = np.concatenate([-problem.bonus.numpy(), -fit.ravel(), penalty[first, second]])
    solution = milp(
        cost,
        integrality=np.concatenate([everything, np.zeros(ways + pairs)]),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(vstack([select, per_class, owned, together]).tocsc(), low, high),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    return (-float(solution.fun) if solution.x is not None else -np.inf), -float(solution.mip_dual_bound)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--seconds", type=float, default=40, help="for HiGHS, on each large instance")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    columns = ("ours", "rows differ", "CPU s", "starts at the best", "HiGHS", "its bound", "CPU s")
    print(f"| features | classes | n, k | seed | {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for sizes in (*PROVEN, LARGE, FULL):
        features, classes, size, per_class = sizes
        for seed in arguments.seeds:
            constants = draw(features, classes, seed)
            begin = time.process_time()
            selection = find_selection(constants, size, per_class)
            own = time.process_time() - begin
            problem, ours = searched(constants, size, per_class)
            prefix = (
                f"| {features} | {classes} | {size}, {per_class} | {seed} | {ours:.4f} | "
                f"{selection.objective:.4f} | {own:.2f} | {selection.starts}"
            )
            if sizes == FULL:
                print(f"{prefix} | - | - | - |", flush=True)
                continue
            begin = time.process_time()
            value, bound = solve(problem, arguments.seconds if sizes == LARGE else np.inf)
            print(f"{prefix} | {value:.4f} | {bound:.4f} | {time.process_time() - begin:.1f} |", flush=True)


if __name__ == "__main__":
    main()
