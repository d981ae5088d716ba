"""The soft tree against the recursive definition, node by node and in float64."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from protometry.lightning_modules.heads.tree import LEFT, RIGHT, SOFT, SoftTree

close = torch.testing.assert_close
MODES = ("distributed", "sample_max", "greedy")


def make(depth=3, classes=4, seed=0, multilabel=False, cut=0.0) -> SoftTree:
    """A tree with random leaves, a share ``cut`` of whose nodes always goes one way."""
    generator = torch.Generator().manual_seed(seed)
    tree = SoftTree(depth, classes, multilabel)
    with torch.no_grad():
        tree.leaf_logits.copy_(torch.randn(2**depth, classes, generator=generator) * 2)
    route = torch.randint(1, 3, (tree.nodes,), generator=generator)
    tree.route.copy_(torch.where(torch.rand(tree.nodes, generator=generator) < cut, route, SOFT))
    return tree


def scores_of(tree, batch=5, seed=1) -> Tensor:
    return torch.rand(batch, tree.nodes, generator=torch.Generator().manual_seed(seed))


# -- by the definition -----------------------------------------------------------------------------------------------
def paths(tree: SoftTree, scores: list[float], node: int = 0, probability: float = 1.0) -> dict[int, float]:
    """Leaf -> probability, walking down from a node."""
    if node >= tree.nodes:
        return {node - tree.nodes: probability}
    right = {SOFT: scores[node] if node < tree.nodes else 0.0, LEFT: 0.0, RIGHT: 1.0}[int(tree.route[node])]
    left = paths(tree, scores, 2 * node + 1, probability * (1 - right))
    return left | paths(tree, scores, 2 * node + 2, probability * right)


def leaf_of(tree: SoftTree, scores: list[float]) -> int:
    """The end of the greedy path."""
    node = 0
    while node < tree.nodes:
        goes_right = {SOFT: scores[node] > 0.5, LEFT: False, RIGHT: True}[int(tree.route[node])]
        node = 2 * node + (2 if goes_right else 1)
    return node - tree.nodes


def slow_probabilities(tree: SoftTree, scores: Tensor, inference: str = "distributed") -> Tensor:
    leaves = tree.leaf_logits.detach().double()
    leaves = leaves.sigmoid() if tree.multilabel else leaves.softmax(dim=1)
    rows = []
    for row in scores.double().tolist():
        reach = paths(tree, row)
        if inference == "distributed":
            rows.append(sum(reach[leaf] * leaves[leaf] for leaf in range(len(leaves))))
        else:
            rows.append(leaves[leaf_of(tree, row) if inference == "greedy" else max(reach, key=reach.get)])
    return torch.stack(rows)


def outputs(probabilities: Tensor, multilabel: bool) -> Tensor:
    return probabilities.logit() if multilabel else probabilities.log()


@pytest.mark.parametrize("inference", MODES)
@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize(("depth", "classes", "cut"), [(1, 2, 0.0), (2, 3, 0.0), (4, 5, 0.0), (4, 5, 0.3), (6, 3, 0.1)])
def test_outputs_follow_the_recursive_definition(depth, classes, cut, multilabel, inference):
    for seed in range(3):
        tree = make(depth, classes, seed, multilabel, cut)
        scores = scores_of(tree, seed=seed)
        expected = outputs(slow_probabilities(tree, scores, inference), multilabel)
        close(tree(scores, inference).detach().double(), expected, rtol=1e-4, atol=1e-5)


def test_two_levels_by_hand():
    """s = .5 at the root, .25 at its left, .8 at its right child: π = .5·.75, .5·.25, .5·.2, .5·.8."""
    tree = SoftTree(2, 2)
    tree.leaf_logits.copy_(torch.tensor([[0.0, 0.0], [0.0, math.log(3)], [math.log(3), 0.0], [0.0, 0.0]]))
    scores = torch.tensor([[0.5, 0.25, 0.8]])
    close(tree.log_reach(scores).exp(), torch.tensor([[0.375, 0.125, 0.1, 0.4]]))
    # ŷ_0 = .375·½ + .125·¼ + .1·¾ + .4·½
    close(tree(scores).exp(), torch.tensor([[0.49375, 0.50625]]))
    close(tree(scores, "sample_max").exp(), torch.tensor([[0.5, 0.5]]))
    close(tree(torch.tensor([[0.4, 0.6, 0.9]]), "greedy").exp(), torch.tensor([[0.25, 0.75]]))


def test_a_score_of_one_half_goes_left_and_the_first_leaf_wins_ties():
    tree = make(depth=2)
    half = torch.full((1, 3), 0.5)
    assert tree.log_reach(half, hard=True).argmax().item() == 0
    close(tree(half, "sample_max"), tree.leaf_logits[:1].log_softmax(1))


@pytest.mark.parametrize("inference", MODES)
def test_probabilities_sum_to_one(inference):
    tree = make(depth=7, classes=9, cut=0.1)
    close(tree(scores_of(tree), inference).exp().sum(1), torch.ones(5))


def test_images_do_not_see_each_other():
    tree = make(4)
    scores = scores_of(tree)
    order = torch.tensor([3, 1, 4, 0, 2])
    for inference in MODES:
        close(tree(scores[order], inference), tree(scores, inference)[order])
        close(tree(scores[1:2], inference), tree(scores, inference)[1:2])
    assert tree(scores[:0]).shape == (0, 4)


# -- numbers at the edge ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("value", [0.0, 1.0, 1e-30, 1 - 1e-7])
def test_certain_nodes_keep_everything_finite(value):
    """Eleven certain decisions: most leaves have probability 0 in float32, no class has."""
    tree = make(depth=11, classes=3)
    tree.leaf_logits.mul_(50)  # softmax(c) too is 0 in float32
    scores = torch.full((2, tree.nodes), value, requires_grad=True)
    logits = tree(scores)
    assert logits.isfinite().all()
    logits.min(dim=1).values.sum().backward()
    assert scores.grad.isfinite().all()


def test_the_floor_of_absence():
    """log(1 - s) at s = 1 is log 1e-7 = -16.1."""
    tree = SoftTree(1, 2)
    assert tree.log_reach(torch.ones(1, 1))[0, 0].item() == pytest.approx(-16.118, abs=0.01)
    assert tree.log_reach(torch.ones(1, 1))[0, 1].item() == 0
    assert tree.log_reach(torch.zeros(1, 1))[0].tolist() == pytest.approx(
        [0, math.log(torch.finfo(torch.float32).tiny)]
    )


def test_half_precision_scores_are_routed_in_float32():
    tree, scores = make(5), scores_of(make(5))
    assert tree(scores.bfloat16()).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        close(tree(scores), make(5)(scores))


def test_gradients_of_the_mixture():
    """Against finite differences in the slow definition."""
    tree = make(3)
    scores = (0.1 + 0.8 * scores_of(tree, 1)).requires_grad_()
    tree(scores)[0, 2].backward()
    for unit in range(tree.nodes):
        values = []
        for step in (1e-5, -1e-5):
            moved = scores.detach().double().clone()
            moved[0, unit] += step
            values.append(slow_probabilities(tree, moved)[0, 2].log().item())
        assert scores.grad[0, unit].item() == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-3)


# -- contributions ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("inference", ["distributed", "greedy"])
@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize(("depth", "cut"), [(1, 0.0), (3, 0.0), (5, 0.0), (5, 0.25)])
def test_contributions_are_what_is_lost_without_a_unit(depth, cut, multilabel, inference):
    for seed in range(3):
        tree = make(depth, 4, seed, multilabel, cut)
        scores = scores_of(tree, 3, seed)
        scores[2].round_()  # certain nodes
        whole = tree(scores, inference)[:, None]
        silent = scores[:, None] * (1 - torch.eye(tree.nodes))  # one unit after the other
        without = tree(silent.flatten(0, 1), inference).unflatten(0, silent.shape[:2])
        for label in range(4):
            classes = torch.full((3,), label)
            shares = tree.contributions(scores, classes, hard=inference == "greedy")
            close(shares, whole[..., label] - without[..., label], rtol=1e-4, atol=1e-4)


def test_contributions_take_one_class_per_image():
    tree = make()
    scores, classes = scores_of(tree, 3), torch.tensor([2, 0, 3])
    for row, label in enumerate(classes.tolist()):
        close(tree.contributions(scores, classes)[row], tree.contributions(scores, torch.full((3,), label))[row])


def test_contributions_by_hand():
    """s = .8, left leaf (.5, .5), right leaf (.25, .75): ŷ = (.3, .7); without the unit (.5, .5)."""
    tree = SoftTree(1, 2)
    tree.leaf_logits.copy_(torch.tensor([[0.0, 0.0], [0.0, math.log(3)]]))
    shares = tree.contributions(torch.full((2, 1), 0.8), torch.tensor([0, 1]))
    assert shares.flatten().tolist() == pytest.approx([math.log(0.3 / 0.5), math.log(0.7 / 0.5)], abs=1e-6)


def test_nodes_that_do_not_decide_contribute_exactly_nothing():
    tree = make(5, cut=0.3)
    shares = tree.contributions(scores_of(tree), torch.zeros(5, dtype=torch.int64))
    assert 0 < (~tree.active()).sum() < tree.nodes
    assert (shares[:, ~tree.active()] == 0).all()
    assert (shares[:, tree.active()] != 0).any()


# -- leaves ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("soft", [False, True])
def test_evidence_by_definition(soft):
    tree = make(3, 4)
    scores, labels = scores_of(tree), torch.tensor([0, 3, 3, 1, 0])
    targets = torch.eye(4)[labels]
    if soft:
        targets = (targets + torch.eye(4)[(labels + 1) % 4]) / 2
    leaves = tree.leaf_logits.double().softmax(1)
    expected = torch.zeros(8, 4, dtype=torch.float64)
    for row, target in zip(scores.tolist(), targets.double(), strict=True):
        reach = paths(tree, row)
        mixture = sum(reach[leaf] * leaves[leaf] for leaf in range(8))
        for leaf in range(8):
            expected[leaf] += reach[leaf] * leaves[leaf] * target / mixture
    evidence = tree.evidence(scores, targets)
    close(evidence.double(), expected, rtol=1e-4, atol=1e-6)
    close(evidence.sum(0), targets.sum(0))  # every image gives 1, shared by the leaves


def test_evidence_of_an_impossible_class_is_a_number():
    tree = make(4, 3)
    tree.leaf_logits.mul_(200)
    evidence = tree.evidence(torch.ones(2, tree.nodes), torch.eye(3)[[0, 1]])
    close(evidence.sum(0), torch.tensor([1.0, 1.0, 0.0]))


def test_an_epoch_forgets_the_epoch_before():
    """c = 4, 2 batches: each takes 4/2 away and adds its evidence; at the end nothing of the 4 is left."""
    tree = SoftTree(1, 2)
    tree.leaf_logits.fill_(4.0)
    tree.start_epoch()
    tree.update_leaves(torch.full((2, 2), 0.5), batches=2)
    assert tree.leaf_logits.unique().tolist() == [2.5]
    tree.update_leaves(torch.full((2, 2), 0.25), batches=2)
    assert tree.leaf_logits.unique().tolist() == [0.75]
    assert tree.epoch_leaf_logits.unique().tolist() == [4.0]


def test_leaf_logits_are_cut_at_zero_before_the_evidence():
    """1 of at most .5 is taken away: 0, not -.5; then .25 is added."""
    tree = SoftTree(1, 2)
    tree.leaf_logits.fill_(2.0)
    tree.start_epoch()
    tree.leaf_logits.fill_(0.5)
    tree.update_leaves(torch.full((2, 2), 0.25), batches=2)
    assert tree.leaf_logits.unique().tolist() == [0.25]


def test_repeated_updates_find_the_classes_of_the_leaves():
    """Certain routing, class 0 on the left, class 1 on the right."""
    tree = SoftTree(1, 2)
    scores, targets = torch.tensor([[0.01], [0.99]]), torch.eye(2)
    for _ in range(5):
        tree.start_epoch()
        tree.update_leaves(tree.evidence(scores, targets), batches=1)
    assert tree.leaf_logits.argmax(1).tolist() == [0, 1]
    assert tree(scores).argmax(1).tolist() == [0, 1]


def test_several_labels_train_by_gradient():
    tree = make(2, 3, multilabel=True)
    assert tree.epoch_leaf_logits is None
    assert [name for name, _ in tree.named_parameters()] == ["leaf_logits"]
    tree(scores_of(tree)).sum().backward()
    assert (tree.leaf_logits.grad != 0).any()
    assert not list(make(2, 3).parameters())


# -- structure -------------------------------------------------------------------------------------------------------
def below(tree: SoftTree, node: int) -> list[int]:
    """Leaves below a node."""
    if node >= tree.nodes:
        return [node - tree.nodes]
    return below(tree, 2 * node + 1) + below(tree, 2 * node + 2)


def slow_reachable(tree: SoftTree, node: int = 0) -> set[int]:
    if node >= tree.nodes:
        return {node}
    result = {node}
    if tree.route[node] != RIGHT:
        result |= slow_reachable(tree, 2 * node + 1)
    if tree.route[node] != LEFT:
        result |= slow_reachable(tree, 2 * node + 2)
    return result


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("cut", [0.0, 0.3])
@pytest.mark.parametrize("depth", [1, 3, 5])
def test_structure_by_definition(depth, cut, multilabel):
    tree = make(depth, 6, seed=depth, multilabel=multilabel, cut=cut)
    reachable = slow_reachable(tree)
    assert set(tree.reachable().nonzero().flatten().tolist()) == reachable
    leaves = tree.leaf_logits.detach()
    for node in range(tree.nodes):
        assert bool(tree.active()[node]) == (node in reachable and tree.route[node] == SOFT)
        classes = set()
        for leaf in below(tree, node):
            if leaf + tree.nodes in reachable:
                best = leaves[leaf] > 0 if multilabel else leaves[leaf] == leaves[leaf].max()
                classes |= set(best.nonzero().flatten().tolist())
        assert set(tree.classes_below()[node].nonzero().flatten().tolist()) == classes


def test_a_new_tree_excludes_no_class():
    assert SoftTree(3, 5).classes_below().all()


# -- pruning ---------------------------------------------------------------------------------------------------------
def knowing(*leaves: int, depth=3, classes=4) -> SoftTree:
    """A tree in which only these leaves know a class."""
    tree = SoftTree(depth, classes)
    for leaf in leaves:
        tree.leaf_logits[leaf, leaf % classes] = 5.0
    return tree


def test_pruning_by_hand():
    """Leaves 0..7 below the nodes 3 4 5 6; 0, 1, 2 and 7 know something.

    Node 3 keeps both leaves, node 4 its left one; node 5 knows nothing, so node 2 goes right; node 6 goes right.
    """
    tree = knowing(0, 1, 2, 7)
    tree.prune(0.5)
    assert tree.route.tolist() == [SOFT, SOFT, RIGHT, SOFT, LEFT, SOFT, RIGHT]
    assert tree.active().tolist() == [True, True, False, True, False, False, False]
    assert tree.reachable()[7:].tolist() == [True, True, True, False, False, False, False, True]


def slow_prune(tree: SoftTree, threshold: float) -> list[int]:
    useful = (tree.leaf_logits.softmax(1).amax(1) > threshold) & tree.reachable()[tree.nodes :]
    route = []
    for node in range(tree.nodes):
        left, right = (any(useful[leaf] for leaf in below(tree, child)) for child in (2 * node + 1, 2 * node + 2))
        route.append(SOFT if left == right else LEFT if left else RIGHT)
    return route


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("depth", [1, 3, 6])
def test_pruning_by_definition(depth, threshold):
    for seed in range(4):
        tree = make(depth, 5, seed)
        expected = slow_prune(tree, threshold)
        tree.prune(threshold)
        assert tree.route.tolist() == expected
        again = tree.route.clone()
        tree.prune(threshold)
        assert torch.equal(tree.route, again)


def test_what_is_cut_stays_cut():
    tree = knowing(0, 1, 2, 7)
    tree.prune(0.5)
    tree.leaf_logits[4, 0] = 9.0  # a leaf that is cut learns something
    before = tree.reachable()
    tree.prune(0.5)
    assert torch.equal(tree.reachable(), before)


def test_below_a_node_that_is_cut_off_nothing_is_active():
    for seed in range(5):
        tree = make(5, 5, seed)
        tree.prune(0.8)
        reachable, active = tree.reachable(), tree.active()
        for node in range(tree.nodes):
            if not reachable[node]:
                assert not active[node]
                assert not reachable[2 * node + 1]
                assert not reachable[2 * node + 2]
                assert not tree.classes_below()[node].any()


def test_scores_of_inactive_nodes_decide_nothing():
    tree = make(5, 5)
    tree.prune(0.7)
    scores = scores_of(tree)
    other = torch.where(tree.active(), scores, 1 - scores)
    for inference in MODES:
        assert torch.equal(tree(scores, inference), tree(other, inference))


def test_a_tree_that_knows_nothing_is_left_as_it_is():
    tree = SoftTree(3, 4)
    tree.prune(0.5)
    assert (tree.route == SOFT).all()


def test_one_knowing_leaf_leaves_one_path():
    tree = knowing(5)
    tree.prune(0.5)
    assert not tree.active().any()
    assert tree.reachable()[7:].nonzero().flatten().tolist() == [5]
    close(tree(torch.rand(2, 7)), tree.leaf_logits[5].log_softmax(0).expand(2, 4))


def test_everything_survives_a_state_dict():
    tree = make(4, cut=0.3)
    tree.start_epoch()
    again = SoftTree(4, 4)
    again.load_state_dict(tree.state_dict(), strict=True)
    scores = scores_of(tree)
    assert torch.equal(again(scores), tree(scores))
    assert torch.equal(again.epoch_leaf_logits, tree.epoch_leaf_logits)
    assert torch.equal(again.active(), tree.active())
