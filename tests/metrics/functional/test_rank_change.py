import math

import pytest
import torch

from metrics.functional import classification_rank_change, prototype_rank_change
from tests.metrics.change.changes import slow_rank

NAN = math.nan
SCORES = torch.tensor([[9.0, 7.0, 5.0, 3.0]])


class TestUnits:
    @pytest.mark.parametrize(
        ("perturbed", "active", "expected"),
        [
            ([9.0, 2, 5, 3], None, 2),  # from rank 1 to 3
            ([5.0, 5, 5, 3], None, 1),  # from rank 1 to 0, which three units share
            ([9.0, 4, 5, 3], [True, True, False, True], 0),  # the unit that overtakes does not take part
            ([9.0, 4, 5, 3], None, 1),
        ],
    )
    def test_by_hand(self, perturbed, active, expected):
        active = None if active is None else torch.tensor(active)
        change = prototype_rank_change(SCORES, torch.tensor([perturbed]), torch.tensor([[1]]), active)
        assert change.tolist() == [[expected]]
        assert change.dtype == torch.float64

    def test_one_perturbed_image_per_unit(self):
        perturbed = torch.tensor([[[9.0, 2, 5, 3], [9, 7, 10, 3], [9, 7, 5, 3]]])
        change = prototype_rank_change(SCORES, perturbed, torch.tensor([[1, 2, -1]]))
        # unit 1: 1 -> 3; unit 2: 2 -> 0; an empty slot
        assert change.flatten().tolist() == pytest.approx([2, 2, NAN], nan_ok=True)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize("per_slot", [False, True])
    def test_slow_oracle(self, dtype, per_slot):
        generator = torch.Generator().manual_seed(0)
        scores = torch.randint(-2, 3, (6, 7), generator=generator).to(dtype)
        perturbed = torch.randint(-2, 3, (6, 3, 7) if per_slot else (6, 7), generator=generator).to(dtype)
        ids = torch.randint(7, (6, 3), generator=generator)
        active = torch.rand(7, generator=generator) < 0.7
        expected = []
        for image in range(6):
            for slot in range(3):
                unit = int(ids[image, slot])
                after = perturbed[image, slot] if per_slot else perturbed[image]
                flags = active.tolist()
                before = slow_rank(scores[image].tolist(), unit, flags)
                expected.append(abs(slow_rank(after.tolist(), unit, flags) - before))
        assert prototype_rank_change(scores, perturbed, ids, active).flatten().tolist() == expected

    def test_zero_change_and_relabelling(self):
        scores = torch.randint(0, 4, (16, 9), generator=torch.Generator().manual_seed(1)).float()
        ids = torch.tensor([[0, 4, 8]]).expand(16, 3)
        for batch in (1, 4, 16):
            for part in scores.split(batch):
                assert (prototype_rank_change(part, part.clone(), ids[:batch]) == 0).all()
        order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
        perturbed = scores.flip(0)
        moved = prototype_rank_change(scores[:, order], perturbed[:, order], order.argsort()[ids])
        assert torch.equal(moved, prototype_rank_change(scores, perturbed, ids))

    @pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
    def test_not_finite_is_undefined(self, bad):
        broken = torch.tensor([[9.0, bad, 5.0, 3.0]])
        ids = torch.tensor([[0, 1]])
        assert prototype_rank_change(broken, SCORES, ids).isnan().all()
        assert prototype_rank_change(SCORES, broken, ids).isnan().all()
        active = torch.tensor([True, False, True, True])
        assert prototype_rank_change(SCORES, broken, ids, active).isnan().tolist() == [[False, True]]

    def test_errors(self):
        ids = torch.tensor([[0, 1]])
        assert prototype_rank_change(SCORES[:0], SCORES[:0], ids[:0]).shape == (0, 2)
        with pytest.raises(ValueError, match="`scores` to be of shape"):
            prototype_rank_change(SCORES[0], SCORES, ids)
        for perturbed in (SCORES[:, :3], SCORES[:, None].expand(1, 3, 4), SCORES.expand(2, 4)):
            with pytest.raises(ValueError, match="`perturbed_scores` to be of shape"):
                prototype_rank_change(SCORES, perturbed, ids)
        with pytest.raises(ValueError, match="`unit_ids` to be of shape"):
            prototype_rank_change(SCORES, SCORES, ids.int())
        with pytest.raises(ValueError, match="`active` to be of shape"):
            prototype_rank_change(SCORES, SCORES, ids, torch.ones(4))


class TestClasses:
    def test_by_hand(self):
        logits = torch.tensor([[2.0, 1, 0, -1], [2, 2, 0, 0], [0, 1, 0, 0]])
        # class 0 last; of two that tie class 0 is predicted, then overtaken once; a tie at the top is rank 0
        perturbed = torch.tensor([[0.0, 1, 2, 3], [2, 3, 2, 0], [5, 5, 0, 5]])
        assert classification_rank_change(logits, perturbed).tolist() == [3, 1, 0]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_slow_oracle(self, dtype):
        logits, perturbed = torch.randint(-2, 3, (2, 20, 6), generator=torch.Generator().manual_seed(0)).to(dtype)
        expected = []
        for clean, after in zip(logits.tolist(), perturbed.tolist(), strict=True):
            expected.append(slow_rank(after, clean.index(max(clean)), [True] * 6))
        change = classification_rank_change(logits, perturbed)
        assert change.tolist() == expected
        assert change.dtype == torch.float64
        assert (classification_rank_change(logits, logits.clone()) == 0).all()

    @pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
    def test_not_finite_is_undefined(self, bad):
        logits, broken = torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.tensor([[1.0, bad], [1.0, 2.0]])
        assert classification_rank_change(logits, broken).isnan().tolist() == [True, False]
        assert classification_rank_change(broken, logits).isnan().tolist() == [True, False]
        assert classification_rank_change(logits[:0], logits[:0]).shape == (0,)

    def test_errors(self):
        with pytest.raises(ValueError, match="`logits` to be of shape"):
            classification_rank_change(torch.zeros(3), torch.zeros(3))
        with pytest.raises(ValueError, match="`perturbed_logits` to be of shape"):
            classification_rank_change(torch.zeros(1, 3), torch.zeros(1, 2))
