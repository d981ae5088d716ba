"""A soft decision tree over unit scores, as plain tensors: nodes in heap order, one step per level, in log space.

Node i has the children 2i + 1 (its unit is absent) and 2i + 2 (present); the U = 2^depth - 1 nodes are followed by the
L = U + 1 leaves. This order is the same in every process and after every reload.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Inference = Literal["distributed", "sample_max", "greedy"]
SOFT, LEFT, RIGHT = 0, 1, 2  # how a node routes: by its score, or always the same way
MARGIN = 1e-7  # keeps the logarithm of the probability of absence finite


class SoftTree(nn.Module):
    """Soft routing from the root to leaves that hold distributions over the classes.

    Source: Nauta et al. 2021 (ProtoTree). The score s of a node is the probability of going
    right; the probability π of a leaf is the product along its path, ŷ = Σ_ℓ π_ℓ softmax(c_ℓ). Deviations:
    probabilities are computed as logarithms, log(1 - s) is computed as log(-expm1(log s - 1e-7)), and there is no
    module and no recursion per node. With multilabel data (ours) leaves hold sigmoid(c_ℓ), trained by gradient, and the
    logits are log ŷ - log(1 - ŷ).

    Example:
        >>> tree = SoftTree(depth=1, num_classes=2)
        >>> _ = tree.leaf_logits.copy_(torch.tensor([[0.0, 0.0], [0.0, 99.0]]))  # right: class 1 with certainty
        >>> tree(torch.tensor([[0.5]])).exp()  # half of the way to either leaf
        tensor([[0.2500, 0.7500]])
        >>> tree(torch.tensor([[0.5]]), "greedy").exp()  # not above one half: left
        tensor([[0.5000, 0.5000]])
    """

    route: Tensor
    epoch_leaf_logits: Tensor | None

    def __init__(self, depth: int, num_classes: int, multilabel: bool = False) -> None:
        super().__init__()
        self.depth = depth
        self.nodes = 2**depth - 1
        leaves = torch.zeros(self.nodes + 1, num_classes)
        self.leaf_logits: Tensor
        if multilabel:
            self.leaf_logits = nn.Parameter(leaves)
        else:
            self.register_buffer("leaf_logits", leaves)
        self.register_buffer("epoch_leaf_logits", None if multilabel else leaves.clone())
        self.multilabel = multilabel
        self.register_buffer("route", torch.full((self.nodes,), SOFT, dtype=torch.int8))

    # -- decisions ---------------------------------------------------------------------------------------------------
    def forward(self, scores: Tensor, inference: Inference = "distributed") -> Tensor:
        """Logits of scores.

        Args:
            scores: ``(B, U)`` float in [0, 1].
            inference: ``"distributed"`` mixes all leaves; ``"sample_max"`` takes the leaf of the largest probability,
                the first on ties; ``"greedy"`` the one at the end of the path that goes right where s > 0.5.

        Returns:
            ``(B, K)`` float32: log ŷ, whose softmax is ŷ itself, or, if multilabel, the logit of ŷ.
        """
        log_reach = self.log_reach(scores, hard=inference == "greedy")
        if inference != "distributed":
            return self._leaf_outputs()[log_reach.argmax(dim=1)]
        if not self.multilabel:
            return _mix(log_reach, self.leaf_logits.log_softmax(dim=1))
        return _mix(log_reach, F.logsigmoid(self.leaf_logits)) - _mix(log_reach, F.logsigmoid(-self.leaf_logits))

    def _leaf_outputs(self) -> Tensor:
        return self.leaf_logits if self.multilabel else self.leaf_logits.log_softmax(dim=1)

    def log_reach(self, scores: Tensor, hard: bool = False) -> Tensor:
        """Logarithm ``(B, L)`` of the probability of every leaf; -inf where it cannot be reached."""
        left, right = self._branches(scores, hard)
        reach = scores.new_zeros(scores.shape[0], 1, dtype=torch.float32)  # `len` would fix the batch of an export
        for level in range(self.depth):
            nodes = _level(level)
            reach = _interleave(reach + left[:, nodes], reach + right[:, nodes])
        return reach

    def _branches(self, scores: Tensor, hard: bool) -> tuple[Tensor, Tensor]:
        """Logarithms of the probabilities of going left and right at every node, both ``(B, U)``."""
        if hard:
            right = torch.where(scores > 0.5, 0.0, -torch.inf)
            left = torch.where(scores > 0.5, -torch.inf, 0.0)
        else:
            right = scores.float().clamp_min(torch.finfo(torch.float32).tiny).log()
            left = torch.log(-torch.expm1(right - MARGIN))
        left = left.masked_fill(self.route == LEFT, 0.0).masked_fill(self.route == RIGHT, -torch.inf)
        right = right.masked_fill(self.route == RIGHT, 0.0).masked_fill(self.route == LEFT, -torch.inf)
        return left, right

    def contributions(self, scores: Tensor, classes: Tensor, hard: bool = False) -> Tensor:
        """``(B, U)`` decrease of the logit of a class if a node did not see its unit; 0 for nodes that do not decide.

        Ours: log ŷ_k - log ŷ_k(s_u := 0), with ŷ_k(s_u := 0) = O_u + ρ_u A_u; ρ_u is the probability of reaching the
        node, A_u the probability of the class in its left subtree, O_u the probability of the class through leaves that
        are not below the node. One upward and one downward pass, with sums of positive numbers only. If multilabel, the
        same difference of logits. The differences do not add up to the logit.
        """
        branches = self._branches(scores, hard)
        if self.multilabel:
            present, absent = F.logsigmoid(self.leaf_logits), F.logsigmoid(-self.leaf_logits)
            lost = _lost(branches, present.T[classes]) - _lost(branches, absent.T[classes])
        else:
            lost = _lost(branches, self.leaf_logits.log_softmax(dim=1).T[classes])
        return torch.where(self.active(), lost, 0.0)

    # -- leaves ------------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def evidence(self, scores: Tensor, targets: Tensor) -> Tensor:
        """``(L, K)`` increments of the leaf logits: every image adds 1 to its class, shared by the leaves it reaches.

        Source: Nauta et al. 2021, learning of the leaves: Σ_b π_ℓ(x_b) softmax(c_ℓ) ⊙ onehot(y_b) / ŷ_b. The factor
        of onehot is the share of the leaf in the probability of the class, a softmax over leaves. Ours: soft
        targets instead of onehot.
        """
        joint = self.log_reach(scores)[:, :, None] + self.leaf_logits.log_softmax(dim=1)
        return (joint.softmax(dim=1) * targets[:, None]).sum(dim=0)

    @torch.no_grad()
    def start_epoch(self) -> None:
        """Store the leaf logits, which are subtracted batch by batch during the epoch."""
        cast(Tensor, self.epoch_leaf_logits).copy_(self.leaf_logits)

    @torch.no_grad()
    def update_leaves(self, evidence: Tensor, batches: int) -> None:
        """The derivative-free step: c ← max(c - c(start of the epoch)/batches, 0) + evidence.

        Source: Nauta et al. 2021 and its released code.
        """
        forgotten = cast(Tensor, self.epoch_leaf_logits) / batches
        self.leaf_logits.copy_((self.leaf_logits - forgotten).relu() + evidence)

    # -- structure ---------------------------------------------------------------------------------------------------
    def reachable(self) -> Tensor:
        """``(U + L,)`` bool, nodes and leaves in heap order that are not cut off."""
        levels = [torch.ones(1, dtype=torch.bool, device=self.route.device)]
        for level in range(self.depth):
            route = self.route[_level(level)]
            levels.append(_interleave(levels[-1] & (route != RIGHT), levels[-1] & (route != LEFT)))
        return torch.cat(levels)

    def active(self) -> Tensor:
        """``(U,)`` bool, the nodes whose score matters."""
        return self.reachable()[: self.nodes] & (self.route == SOFT)

    def classes_below(self) -> Tensor:
        """``(U, K)`` bool: the class is the largest of some leaf below the node that is not cut.

        All classes that share the largest value count, so that a new tree excludes none. If multilabel: the class
        has more than probability one half there.
        """
        leaves = self.leaf_logits.detach()
        chosen = leaves > 0 if self.multilabel else leaves == leaves.amax(dim=1, keepdim=True)
        chosen &= self.reachable()[self.nodes :, None]
        return torch.cat([chosen.view(2**level, -1, chosen.shape[1]).any(dim=1) for level in range(self.depth)])

    @torch.no_grad()
    def prune(self, threshold: float) -> None:
        """Cut every subtree in which no leaf has a class with a probability above the threshold.

        Source: Nauta et al. 2021, pruning. A tree without any leaf above the threshold is not changed.
        """
        useful = self.leaf_logits.softmax(dim=1).amax(dim=1) > threshold
        useful &= self.reachable()[self.nodes :]
        if useful.any():
            self.keep(useful)

    @torch.no_grad()
    def keep(self, useful: Tensor) -> None:
        """Cut every subtree without a useful leaf ``(L,)``; the node above then always takes the other branch."""
        for level in reversed(range(self.depth)):
            left, right = useful.view(-1, 2).unbind(dim=1)
            self.route[_level(level)] = (LEFT * (left & ~right) + RIGHT * (right & ~left)).to(self.route)
            useful = left | right


def _level(level: int) -> slice:
    """The nodes of one level, the root being level 0."""
    return slice(2**level - 1, 2 ** (level + 1) - 1)


def _interleave(left: Tensor, right: Tensor) -> Tensor:
    """The children of one level ``(..., 2n)`` from their values on the left and on the right ``(..., n)``."""
    return torch.stack([left, right], dim=-1).flatten(-2)


def _mix(log_reach: Tensor, log_leaves: Tensor) -> Tensor:
    """Mixture log Σ_ℓ π_ℓ p_ℓ ``(B, K)`` of log π ``(B, L)`` and log p ``(L, K)``; holds B·L·K numbers."""
    return (log_reach[:, :, None] + log_leaves).logsumexp(dim=1)


def _lost(branches: tuple[Tensor, Tensor], log_leaves: Tensor) -> Tensor:
    """Difference log ŷ - log ŷ(s_u := 0) ``(B, U)`` of the probability that leaves ``(B, L)`` give to one class."""
    depth = log_leaves.shape[1].bit_length() - 1
    below = [log_leaves]  # probability of the class at the nodes of each level, once there
    for level in reversed(range(depth)):
        left, right = (branch[:, _level(level)] for branch in branches)
        below.append(torch.logaddexp(left + below[-1][:, 0::2], right + below[-1][:, 1::2]))
    below.reverse()
    reach = torch.zeros_like(below[0])
    elsewhere = torch.full_like(below[0], -torch.inf)  # probability of the class through other leaves
    lost = []
    for level in range(depth):
        left, right = (reach + branch[:, _level(level)] for branch in branches)
        absent, present = below[level + 1][:, 0::2], below[level + 1][:, 1::2]
        lost.append(below[0] - torch.logaddexp(elsewhere, reach + absent))
        elsewhere = _interleave(torch.logaddexp(elsewhere, right + present), torch.logaddexp(elsewhere, left + absent))
        reach = _interleave(left, right)
    return torch.cat(lost, dim=1)
