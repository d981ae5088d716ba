import math

import pytest
import torch

from metrics.alignment.part_purity import top_images
from metrics.functional import merge_parts, part_purity

NAN = math.nan


def approx(values):
    return pytest.approx(values, nan_ok=True)


class TestMergeParts:
    def test_hand_case(self):
        # left wing hidden but inside, right wing visible and outside: not inside; the visible side decides
        inside, visible = torch.tensor([True, False, True]), torch.tensor([False, True, True])
        merged = merge_parts(inside, visible, [[0, 1], [2]])
        assert [part.tolist() for part in merged] == [[False, True], [True, True]]

    def test_slow_oracle(self):
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            inside, visible = (torch.rand(4, 3, 5, generator=generator) < 0.5 for _ in range(2))
            groups = [[4], [0, 2], [1, 2, 3]]
            new_inside, new_visible = merge_parts(inside, visible, groups)
            for index in torch.cartesian_prod(torch.arange(4), torch.arange(3)).tolist():
                i, v = inside[*index].tolist(), visible[*index].tolist()
                assert new_visible[*index].tolist() == [any(v[part] for part in group) for group in groups]
                assert new_inside[*index].tolist() == [any(v[p] and i[p] for p in group) for group in groups]

    def test_errors(self):
        flags = torch.ones(2, 3, dtype=torch.bool)
        for groups in ([], [[]], [[0, 3]], [[-1]]):
            with pytest.raises(ValueError, match=r"`groups` to hold lists of part indices in \[0, 3\)"):
                merge_parts(flags, flags, groups)
        for other in (flags[:, :2], flags.float()):
            with pytest.raises(ValueError, match="`inside`, `visible` to be bool tensors of one shape"):
                merge_parts(flags, other, [[0]])


INSIDE = torch.tensor([[[True, False], [True, False], [False, False], [True, True]]])
VISIBLE = torch.tensor([[[True, True], [True, True], [True, False], [True, False]]])


class TestPartPurity:
    def test_hand_case(self):
        # part 0: 3 of 4; part 1: 0 of 2, its hit on the last image is out of sight
        assert part_purity(INSIDE, VISIBLE).tolist() == [0.75]
        assert part_purity(INSIDE[..., 1:], VISIBLE[..., 1:]).tolist() == [0]

    def test_a_part_seen_once(self):
        inside = torch.zeros(1, 10, 2, dtype=torch.bool)
        visible = torch.zeros_like(inside)
        visible[0, :, 0], inside[0, :4, 0] = True, True
        visible[0, 7, 1], inside[0, 7, 1] = True, True
        assert part_purity(inside, visible).tolist() == [1]  # one image decides
        assert part_purity(inside, visible, min_visible=2).tolist() == [0.4]
        assert part_purity(inside, visible, min_visible=11).isnan().all()

    def test_slow_oracle(self):
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            inside = torch.rand(9, 4, 3, generator=generator) < 0.5
            visible = torch.rand(9, 4, 3, generator=generator) < 0.3
            for least in (1, 2):
                expected = []
                for i, v in zip(inside.tolist(), visible.tolist(), strict=True):
                    seen = [[i[r][j] for r in range(4) if v[r][j]] for j in range(3)]
                    shares = [sum(images) / len(images) for images in seen if len(images) >= least]
                    expected.append(max(shares) if shares else NAN)
                assert part_purity(inside, visible, least).tolist() == approx(expected)

    def test_errors(self):
        with pytest.raises(ValueError, match="`inside` to be of shape"):
            part_purity(INSIDE[0], VISIBLE)
        with pytest.raises(ValueError, match="`visible` to be of shape"):
            part_purity(INSIDE, VISIBLE.long())
        with pytest.raises(ValueError, match="`min_visible` to be at least 1, but got 0"):
            part_purity(INSIDE, VISIBLE, min_visible=0)


class TestTopImages:
    def top(self, scores, ids, k):
        flags = torch.arange(len(scores))[None, :, None]
        best = top_images(torch.tensor([scores]), torch.tensor([ids]), flags, k)
        return [part.flatten().tolist() for part in best]

    def test_ties_go_to_the_smaller_id(self):
        assert self.top([1.0, 3.0, 3.0, 3.0], [5, 9, 2, 7], 2) == [[3, 3], [2, 7], [2, 3]]

    def test_an_image_counts_once(self):
        assert self.top([1.0, 3.0, 3.0, 2.0], [5, 9, 9, 7], 3) == [[3, 2, 1], [9, 7, 5], [1, 3, 0]]
        # a copy with another score: the best of them
        assert self.top([4.0, 3.0, 5.0], [9, 8, 9], 2) == [[5, 3], [9, 8], [2, 1]]

    def test_empty_slots_come_last(self):
        scores, ids, _ = self.top([-math.inf, 0.0, -math.inf, -7.0], [-1, 4, -1, 3], 3)
        assert (scores, ids[:2]) == ([0, -7, -math.inf], [4, 3])
