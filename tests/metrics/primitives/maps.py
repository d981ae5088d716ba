"""Random maps for the tests of regions and of peaks."""

import torch


def random_maps(seed, shape=(2, 3, 4, 5), dtype=torch.float32, ties=False):
    generator = torch.Generator().manual_seed(seed)
    if ties:
        return torch.randint(-2, 3, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def each_map(maps):
    return maps.flatten(end_dim=-3).flatten(start_dim=1).tolist()
