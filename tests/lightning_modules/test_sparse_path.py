"""Heads with a given number of weights: planted units, and what the scale of a score may not change."""

import torch

from protometry.lightning_modules.heads.sparse_path import heads_with_weights

CLASSES, UNITS = 4, 12


def planted(images=200):
    """Unit k is strong in class k alone, units 4 to 7 are weaker in classes 0 and 1, and the others know nothing."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(images) % CLASSES
    scores = torch.randn(images, UNITS, generator=generator)
    scores[:, :CLASSES] += 3 * torch.nn.functional.one_hot(labels, CLASSES)
    scores[:, 4:8] += (labels < 2).float()[:, None]
    return scores, labels


def test_one_weight_per_class_is_that_of_its_unit():
    scores, labels = planted()
    weight, bias = heads_with_weights(scores, labels, CLASSES, [1, 2])
    assert (weight != 0).sum(dim=(1, 2)).tolist() == [CLASSES, 2 * CLASSES]
    assert torch.equal(weight[0] > 0, torch.eye(CLASSES, UNITS) > 0)
    for logits in scores.double() @ weight.mT + bias[:, None]:
        assert (logits.argmax(dim=1) == labels).double().mean() > 0.85


def test_units_and_offsets_of_scores_move_no_logit():
    scores, labels = planted()
    scale, offset = torch.arange(1.0, UNITS + 1), torch.arange(UNITS) - 4.0
    both = [
        inputs.double() @ weight.mT + bias[:, None]
        for inputs in (scores, scale * scores + offset)
        for weight, bias in [heads_with_weights(inputs, labels, CLASSES, [2])]
    ]
    torch.testing.assert_close(*both, rtol=0, atol=0.02)  # as far as both are solved, and rounded to float32


def test_more_weights_than_the_path_has():
    """The last head is as it is; a unit that never varies is not read."""
    scores, labels = planted()
    scores[:, 8] = 3
    weight, _ = heads_with_weights(scores, labels, CLASSES, [1, 100, 200])
    assert torch.equal(weight[1], weight[2])
    assert CLASSES < (weight[1] != 0).sum() <= CLASSES * (UNITS - 1)


def test_scores_that_never_vary_give_no_head():
    weight, bias = heads_with_weights(torch.ones(8, 3), torch.arange(8) % 2, 2, [1, 2])
    assert weight.isnan().all()
    assert (weight.shape, bias.shape) == ((2, 2, 3), (2, 2))
