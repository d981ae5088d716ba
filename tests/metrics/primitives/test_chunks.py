import pytest
import torch

from protometry.metrics.primitives import chunks
from protometry.metrics.primitives.chunks import image_chunks


@pytest.mark.parametrize(("at_once", "sizes"), [
    (1, [1] * 5), (11, [1] * 5), (12, [2, 2, 1]), (18, [3, 2]), (30, [5]), (2**20, [5]),
])  # fmt: skip
def test_the_largest_tensor_decides(monkeypatch, at_once, sizes):
    # images of 6 and of 2 elements
    monkeypatch.setattr(chunks, "CPU_ELEMENTS", at_once)
    images, other = torch.arange(30).view(5, 2, 3), torch.arange(10).view(5, 2)
    parts = list(image_chunks(other, images))
    assert [len(part) for _, part in parts] == sizes
    assert torch.equal(torch.cat([part for _, part in parts]), images)
    assert torch.equal(torch.cat([part for part, _ in parts]), other)


def test_units_of_images(monkeypatch):
    monkeypatch.setattr(chunks, "CPU_ELEMENTS", 16)
    maps, ranks = torch.arange(24).view(2, 3, 4), torch.arange(3).expand(2, 3)  # 8 and 2 elements per unit
    parts = list(image_chunks(ranks, maps, dim=1))
    assert [part.tolist() for part, _ in parts] == [[[0, 1], [0, 1]], [[2], [2]]]
    assert torch.equal(torch.cat([part for _, part in parts], dim=1), maps)


def test_chunks_are_views():
    images = torch.zeros(3, 2**20)
    for (part,) in image_chunks(images):
        part += 1
    assert images.min() == 1


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_nothing(shape):
    assert [part.shape for (part,) in image_chunks(torch.zeros(shape))] == [torch.Size(shape)]


def test_different_numbers_of_images():
    with pytest.raises(ValueError, match="zip"):
        list(image_chunks(torch.zeros(2, 2**20), torch.zeros(3, 2**20)))
