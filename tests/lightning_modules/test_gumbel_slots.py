"""The slots of a class: soft with noise where they are trained, hard everywhere else."""

from __future__ import annotations

import math

import pytest
import torch

from protometry.lightning_modules.heads.gumbel_slots import Slots, gumbel_scale

close = torch.testing.assert_close


def make(classes=3, prototypes=5, slots=2, epochs=30, temperature=0.5) -> Slots:
    torch.manual_seed(0)
    return Slots(classes, prototypes, slots, epochs, temperature).train()


def noisy(slots: Slots, step: int = 0) -> torch.Tensor:
    return slots.assignment(step).detach()


def test_gumbel_schedule():
    """1000 √(e / 30) for e = 1 … 30, then 1000."""
    for epoch in range(40):
        expected = 1000 * math.sqrt((epoch + 1) / 30) if epoch < 30 else 1000
        assert gumbel_scale(epoch, 30) == pytest.approx(expected)
    assert gumbel_scale(0, 30) == pytest.approx(182.57, abs=0.01)
    slots = make()
    assert slots.scale.item() == pytest.approx(gumbel_scale(0, 30))
    slots.sharpen(9)
    assert slots.scale.item() == pytest.approx(gumbel_scale(9, 30))


def test_without_a_scale_there_is_no_noise():
    """As in the released codes: the plain softmax, without temperature."""
    slots = make(temperature=0.1)
    slots.scale.zero_()
    close(noisy(slots), slots.logits.detach().softmax(1))


def test_initial_logits():
    wide = make(200, 205, 10).logits
    assert wide.shape == (200, 205, 10)
    assert wide.std().item() == pytest.approx((2 / (10 * (200 + 205))) ** 0.5, rel=0.01)  # .0222


def test_slots_are_distributions_while_trained():
    q = noisy(make())
    assert q.shape == (3, 5, 2)
    close(q.sum(dim=1), torch.ones(3, 2))
    assert ((q > 0) & (q < 1)).any()


def test_noise_is_a_function_of_seed_and_step():
    slots = make()
    first = noisy(slots, step=3)
    torch.rand(5)
    assert torch.equal(noisy(slots, step=3), first)
    assert not torch.equal(noisy(slots, step=4), first)
    slots.noise_seed += 1
    slots.read_seed()
    assert not torch.equal(noisy(slots, step=3), first)


def test_temperature_divides_scaled_logits_plus_noise():
    """log q = (c Q + noise) / τ up to a constant per slot: 2 Q apart for c = 3 and 1, twice as far for half the τ."""
    logs = {}
    for scale, temperature in ((3.0, 1.0), (1.0, 1.0), (3.0, 0.5)):
        slots = make(temperature=temperature)
        slots.scale.fill_(scale)
        log = noisy(slots).log()
        logs[scale, temperature] = log - log[:, :1]
    logits = make().logits.detach()
    close(logs[3.0, 1.0] - logs[1.0, 1.0], 2 * (logits - logits[:, :1]), rtol=1e-4, atol=1e-4)
    close(logs[3.0, 0.5], 2 * logs[3.0, 1.0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("scale", "share"), [(183.0, 0.45), (1000.0, 0.09), (10000.0, 0.009)])
def test_noise_has_the_size_of_gumbel_noise(scale, share):
    """Share of slots of K = 200, U = 202, S = 10 whose noisy arg-max is not the clean one, as known from simulation."""
    slots = make(200, 202, 10)
    slots.scale.fill_(scale)
    clean = slots.logits.argmax(1)
    moved = torch.stack([(noisy(slots, step).argmax(1) != clean).float().mean() for step in range(5)])
    assert moved.mean().item() == pytest.approx(share, rel=0.15)


def test_evaluation_is_hard_and_without_noise():
    slots = make().eval()
    first = slots.assignment(0)
    assert torch.equal(slots.assignment(1), first)
    assert set(first.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(first.argmax(1), slots.logits.argmax(1))


def test_slots_that_are_not_trained_are_hard():
    slots = make()
    slots.logits.requires_grad_(False)
    assert torch.equal(slots.assignment(), slots.hard())


def test_ties_go_to_the_first_prototype():
    slots = make()
    slots.logits.data.zero_()[0, 2:4, 1] = 1.0
    assert slots.hard().argmax(1).tolist() == [[0, 2], [0, 0], [0, 0]]
    assert (slots.hard().sum(1) == 1).all()
    assert slots.presence().int().tolist() == [[1, 0, 1, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]
