"""What decides, against loops over the definition for every model."""

import pytest
import torch

from protometry.explanations.decision import decide
from protometry.lightning_modules.contract import DecidesByTree, ModelOutput, UnitTable, logits_of
from protometry.lightning_modules.heads.tree import SoftTree
from tests.lightning_modules.registry import MODELS
from tests.rounding import tolerance


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_what_is_added_up_and_what_is_shown(name, multi_label):
    torch.manual_seed(2)
    model = MODELS[name](num_classes=4, image_size=(32, 32)).eval()
    output = model(torch.rand(5, 3, 32, 32))
    classes = output.logits.argmax(dim=1)
    result = decide(model, output, classes, 3, multi_label)
    if isinstance(model, DecidesByTree):  # the probability of the class comes by the leaves
        total = model.probabilities(output.logits).gather(1, classes[:, None]).squeeze(1)
        paths = model.tree.log_reach(output.scores, hard=True).exp()
        assert torch.equal(result.shown, paths == 1)
    else:
        context = output.extras.get("context")
        empty = None if context is None else torch.zeros_like(context[:1])
        nothing = logits_of(model, torch.zeros_like(output.scores[:1]), empty) + output.extras.get("residual", 0)
        logits = (output.logits - nothing).double()
        own = logits.gather(1, classes[:, None]).squeeze(1)
        total = own if multi_label else own - logits.mean(dim=1)
        rivals = output.logits.argmin(dim=1)
        apart = decide(model, output, classes, 3, multi_label, rivals).contributions.sum(dim=1)
        lead = own - logits.gather(1, rivals[:, None]).squeeze(1)
        torch.testing.assert_close(apart.float(), lead.float(), rtol=0, atol=tolerance(2000, output.logits))
        for sizes, shown in zip(result.contributions.abs(), result.shown, strict=True):
            assert shown.sum() == 3
            assert sizes[shown].min() >= sizes[~shown].max()
    sums = result.contributions.sum(dim=1)
    torch.testing.assert_close(sums.float(), total.float(), rtol=0, atol=tolerance(2000, output.logits))


class Tree:
    """One node, whose leaves give the class 0.9 and 0.2."""

    def __init__(self, inference):
        self.inference, self.tree = inference, SoftTree(depth=1, num_classes=2)
        self.tree.leaf_logits.copy_(torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log())

    def units(self):
        return UnitTable("prototype", torch.tensor([True]), torch.ones(1, 2, dtype=torch.bool), "max")


@pytest.mark.parametrize(
    ("inference", "expected"),
    # the unit is there with 0.6: 0.4 x 0.9 by the left leaf, 0.6 x 0.2 by the right one, the likelier one
    [("distributed", [0.36, 0.12]), ("greedy", [0, 0.2]), ("sample_max", [0, 0.2])],
)
def test_a_tree_by_hand(inference, expected):
    scores = torch.tensor([[0.6]])
    output = ModelOutput(torch.zeros(1, 2), scores, scores[:, :, None, None])
    actual = decide(Tree(inference), output, torch.tensor([0]), 5)
    assert actual.contributions[0].tolist() == pytest.approx(expected, abs=1e-6)
    assert actual.shown.tolist() == [[False, True]]


class Two:
    """Three units for two classes, the last not active."""

    def units(self):
        weight = torch.tensor([[2.0, 3.0, 9.0], [1.0, 5.0, 9.0]])
        active = torch.tensor([True, True, False])
        return UnitTable("prototype", active, torch.ones(3, 2, dtype=torch.bool), "max", weight)


def test_units_by_hand():
    scores = torch.tensor([[4.0, 1.0, 1.0]])
    output = ModelOutput(torch.tensor([[11.0, 9.0]]), scores, scores[:, :, None, None])
    # against the mean of both classes: (2 - 1.5) 4 = 2 and (3 - 4) 1 = -1; for a sigmoid 8 and 3
    result = decide(Two(), output, torch.tensor([0]), 1)
    assert (result.contributions.tolist(), result.shown.tolist()) == ([[2, -1, 0]], [[True, False, False]])
    assert decide(Two(), output, torch.tensor([0]), 1, multi_label=True).contributions.tolist() == [[8, 3, 0]]
