import torch

from protometry.metrics.functional import merge_parts


def test_slow_oracle():
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        inside, visible = (torch.rand(4, 3, 5, generator=generator) < 0.5 for _ in range(2))
        groups = [[4], [0, 2], [1, 2, 3]]
        new_inside, new_visible = merge_parts(inside, visible, groups)
        for index in torch.cartesian_prod(torch.arange(4), torch.arange(3)).tolist():
            i, v = inside[*index].tolist(), visible[*index].tolist()
            assert new_visible[*index].tolist() == [any(v[part] for part in group) for group in groups]
            assert new_inside[*index].tolist() == [any(v[p] and i[p] for p in group) for group in groups]
