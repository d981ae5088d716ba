import math

import pytest
import torch

from metrics.functional import part_coverage_consistency

NAN = math.nan


def counts(*rows):
    return torch.tensor(rows)


def slow(hits, visible, shown, variant):
    values = []
    for row, seen, images in zip(hits, visible, shown, strict=True):
        shares = [h / (v if variant == "paper" else images) for h, v in zip(row, seen, strict=True) if h]
        values.append((sum(shares) / len(shares) if shares else 0) if any(seen) else NAN)
    return values


def test_hand_case():
    hits, visible, shown = counts([3, 1, 0]), counts([4, 2, 4]), torch.tensor([4])
    assert part_coverage_consistency(hits, visible, shown).tolist() == [0.625]  # (.75 + .5) / 2
    assert part_coverage_consistency(hits, visible, shown, "quanproto").tolist() == [0.5]  # (.75 + .25) / 2


def test_slow_oracle():
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        visible = torch.randint(0, 4, (12, 5), generator=generator)
        visible[:3] = 0
        hits = (torch.rand(12, 5, generator=generator) * (visible + 1)).long()
        shown = torch.randint(4, 9, (12,), generator=generator)
        for variant in ("paper", "quanproto"):
            values = part_coverage_consistency(hits, visible, shown, variant)
            assert values.dtype == torch.float64
            assert values.tolist() == pytest.approx(
                slow(*(x.tolist() for x in (hits, visible, shown)), variant), nan_ok=True
            )
            assert ((values >= 0) & (values <= 1)).equal(~values.isnan())
            order, parts = torch.randperm(12, generator=generator), torch.randperm(5, generator=generator)
            relabelled = part_coverage_consistency(
                hits[order][:, parts], visible[order][:, parts], shown[order], variant
            )
            torch.testing.assert_close(relabelled, values[order], equal_nan=True)


def test_edges():
    two = torch.tensor([2])
    for variant in ("paper", "quanproto"):
        assert part_coverage_consistency(counts([0, 0]), counts([2, 1]), two, variant).tolist() == [0]
        assert part_coverage_consistency(counts([0, 0]), counts([0, 0]), two, variant).isnan().all()
        assert part_coverage_consistency(counts([2, 2]), counts([2, 2]), two, variant).tolist() == [1]
        # the region was always empty: parts in sight, none covered
        assert part_coverage_consistency(counts([0, 0]), counts([2, 1]), two * 0, variant).tolist() == [0]
    # a part in sight once and hit then is no worse for the other image
    assert part_coverage_consistency(counts([2, 1]), counts([2, 1]), two).tolist() == [1]


def test_errors():
    hits, shown = counts([1, 1]), torch.tensor([1])
    with pytest.raises(ValueError, match=r"`hits` to be of shape \(U, N\) and dtype int64"):
        part_coverage_consistency(hits.float(), hits, shown)
    with pytest.raises(ValueError, match=r"`visible` to be of shape \(1, 2\)"):
        part_coverage_consistency(hits, hits[:, :1], shown)
    with pytest.raises(ValueError, match=r"`shown` to be of shape \(1,\)"):
        part_coverage_consistency(hits, hits, hits)
    with pytest.raises(ValueError, match="`variant` to be one of"):
        part_coverage_consistency(hits, hits, shown, "published")
